"""A tiny S3 server that can be told to misbehave as real ones do."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True, slots=True)
class Answer:
    """An error reply, given once; the request may have been carried out before it."""

    status: int
    code: str
    carried_out: bool = False


@dataclass
class Behaviour:
    """How the server misbehaves, and what it has seen."""

    ignores_if_none_match: bool = False
    ignores_if_match: bool = False
    ignores_range: bool = False
    changes_after_each_read: bool = False
    truncated_bodies: int = 0
    put_answers: list[Answer] = field(default_factory=list)
    get_answers: list[Answer] = field(default_factory=list)
    delete_errors: list[dict[str, str]] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, behaviour: Behaviour) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behaviour = behaviour


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_PUT(self) -> None:
        key, body = self._begin()
        behaviour = self.server.behaviour
        answer = behaviour.put_answers.pop(0) if behaviour.put_answers else None
        if answer is not None and not answer.carried_out:
            return self._fail(answer.status, answer.code)
        with behaviour.lock:
            found = behaviour.objects.get(key)
            if "If-None-Match" in self.headers and not behaviour.ignores_if_none_match:
                if found is not None:
                    return self._fail(412, "PreconditionFailed")
            if "If-Match" in self.headers and not behaviour.ignores_if_match:
                if found is None:
                    return self._fail(404, "NoSuchKey")
                if self.headers["If-Match"] != _etag(found):
                    return self._fail(412, "PreconditionFailed")
            behaviour.objects[key] = body
        if answer is not None:
            return self._fail(answer.status, answer.code)
        self._reply(200, b"", {"ETag": _etag(body)})

    def do_GET(self) -> None:
        key, _ = self._begin()
        behaviour = self.server.behaviour
        if behaviour.get_answers:
            answer = behaviour.get_answers.pop(0)
            return self._fail(answer.status, answer.code)
        data = behaviour.objects.get(key)
        if data is None:
            return self._fail(404, "NoSuchKey")
        if self.headers.get("If-Match", _etag(data)) != _etag(data):
            return self._fail(412, "PreconditionFailed")
        if behaviour.changes_after_each_read:
            behaviour.objects[key] = data[1:] + data[:1]
        headers = {"ETag": _etag(data)}
        status, body = 200, data
        if "Range" in self.headers and not behaviour.ignores_range:
            first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
            if int(first) >= len(data):
                return self._fail(416, "InvalidRange")
            status, body = 206, data[int(first) : int(last) + 1]
            headers["Content-Range"] = f"bytes {first}-{int(first) + len(body) - 1}/{len(data)}"
        if behaviour.truncated_bodies:
            behaviour.truncated_bodies -= 1
            self._reply(status, body, headers, sent=body[: len(body) // 2])
            self.close_connection = True
            return
        self._reply(status, body, headers)

    def do_POST(self) -> None:
        _, body = self._begin()
        assert "delete" in parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        behaviour = self.server.behaviour
        errors = behaviour.delete_errors.pop(0) if behaviour.delete_errors else {}
        for part in body.decode().split("<Key>")[1:]:
            key = part.split("</Key>")[0]
            if key not in errors:
                behaviour.objects.pop(key, None)
        told = "".join(
            f"<Error><Key>{key}</Key><Code>{code}</Code><Message>no</Message></Error>"
            for key, code in errors.items()
        )
        self._reply(200, f"<DeleteResult>{told}</DeleteResult>".encode(), {})

    def _begin(self) -> tuple[str, bytes]:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.behaviour.requests.append(self.command)
        return unquote(urlsplit(self.path).path).split("/", 2)[-1], body

    def _fail(self, status: int, code: str) -> None:
        if code == "garbage":
            return self._reply(status, b"<Error", {})
        text = f"<Error><Code>{code}</Code><Message>as told</Message></Error>"
        self._reply(status, text.encode(), {})

    def _reply(
        self, status: int, body: bytes, headers: dict[str, str], sent: bytes | None = None
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if sent is None else sent)


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


@contextmanager
def fake_s3() -> Iterator[tuple[str, Behaviour]]:
    """A running server: its address and its behaviour."""
    behaviour = Behaviour()
    with _Server(behaviour) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", behaviour
        finally:
            server.shutdown()
            thread.join()
