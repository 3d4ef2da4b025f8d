"""A small registry that speaks Confluent's protocol over real HTTP, and can misbehave."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class SmallRegistry:
    """What the registry holds, and what it was asked.

    Attributes:
        failures: Statuses to answer with before anything else; 0 closes the connection.
        credentials: User and password that it asks for.
    """

    url: str = ""
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    versions: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    failures: list[int] = field(default_factory=list)
    credentials: str = ""
    requests: list[str] = field(default_factory=list)

    def add(self, schema_id: int, schema: Any, **more: Any) -> None:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.schemas[schema_id] = {"schema": text, **more}

    def add_version(self, subject: str, version: int, schema: Any, **more: Any) -> None:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        answer = {"schema": text, "id": 1000 + version, "subject": subject, **more}
        self.versions[subject, str(version)] = self.versions[subject, "latest"] = answer

    def answer(self, path: str, authorization: str) -> tuple[int, Any]:
        self.requests.append(path)
        if self.failures:
            return self.failures.pop(0), {"error_code": 50001, "message": "not now"}
        wanted = "Basic " + base64.b64encode(self.credentials.encode()).decode()
        if self.credentials and authorization != wanted:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match path.strip("/").split("/"):
            case ["schemas", "ids", number]:
                found = self.schemas.get(int(number))
                return (200, found) if found else (404, {"error_code": 40403, "message": "none"})
            case ["subjects", subject, "versions", version]:
                found = self.versions.get((subject, version))
                return (200, found) if found else (404, {"error_code": 40401, "message": "none"})
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


@contextmanager
def small_registry() -> Iterator[SmallRegistry]:
    held = SmallRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, answer = held.answer(self.path, self.headers.get("Authorization", ""))
            if not status:
                self.close_connection = True
                return
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    held.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield held
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
