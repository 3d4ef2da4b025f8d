"""The client of the registry over real HTTP: what it asks for once, what it tries again."""

from __future__ import annotations

import contextlib
import pickle
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from laminar_dagster.clients.schema_registry import (
    RetryPolicy,
    SchemaRegistry,
    UnknownSchema,
)
from laminar_dagster.core.errors import AuthFailed, InvalidConfig, RegistryUnavailable
from tests.unit.sources.formats.small_registry import SmallRegistry, small_registry

QUICK = RetryPolicy(first_pause=0.01, longest_pause=0.05, patience=2.0)
SECRET = "p4ss:w@rd"


@pytest.fixture
def held() -> Iterator[SmallRegistry]:
    with small_registry() as found:
        yield found


def test_an_id_is_asked_for_once(held: SmallRegistry) -> None:
    held.add(7, "long")
    registry = SchemaRegistry(held.url + "/", retry=QUICK)
    assert registry.schema(7) is registry.schema(7)
    assert registry.schema(7).kind == "AVRO"
    assert registry.schema(7).text == "long"
    assert held.requests == ["/schemas/ids/7"]


def test_what_is_not_there_is_asked_for_again(held: SmallRegistry) -> None:
    registry = SchemaRegistry(held.url, retry=QUICK)
    with pytest.raises(UnknownSchema, match="schema id 17 is not in the registry"):
        registry.schema(17)
    held.add(17, "long")
    assert registry.schema(17).text == "long"
    with pytest.raises(UnknownSchema, match="schema id 4294967295 is not in the registry"):
        registry.schema(2**32 - 1)
    assert held.requests == ["/schemas/ids/17"] * 2


@pytest.mark.parametrize("failures", [[500, 503, 0], [429], [0, 0, 502]])
def test_a_registry_that_recovers_is_borne_with(held: SmallRegistry, failures: list[int]) -> None:
    held.add(1, "int")
    held.failures = list(failures)
    assert SchemaRegistry(held.url, retry=QUICK).schema(1).text == "int"
    assert len(held.requests) == len(failures) + 1


def test_patience_ends(held: SmallRegistry) -> None:
    held.failures = [503] * 1000
    begun = time.monotonic()
    with pytest.raises(RegistryUnavailable, match="it answered 503"):
        SchemaRegistry(held.url, retry=RetryPolicy(0.05, 0.2, patience=0.5)).schema(1)
    assert time.monotonic() - begun < 1.5
    assert 3 <= len(held.requests) <= 20


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://user:s3cret@127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RegistryUnavailable, match="refused") as caught:
            SchemaRegistry(url, retry=RetryPolicy(0.01, 0.02, patience=0.1)).schema(1)
    assert "s3cret" not in str(caught.value)


def test_a_registry_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        begun = time.monotonic()
        with pytest.raises(RegistryUnavailable, match="timed out"):
            SchemaRegistry(url, retry=RetryPolicy(patience=0.6, timeout=0.3)).schema(1)
        assert time.monotonic() - begun < 3


class SlowServer:
    """Sends an answer byte by byte, and never comes to its end. Counts who asked."""

    def __init__(self, beginning: bytes, more: bytes) -> None:
        self.asked = 0
        self._beginning, self._more = beginning, more
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._listening.close()
        self._thread.join()

    def _serve(self) -> None:
        while not self._over.is_set():
            try:
                line, _ = self._listening.accept()
            except OSError:
                return
            self.asked += 1
            with line, contextlib.suppress(OSError):
                line.recv(65_536)
                line.sendall(self._beginning)
                # Often enough that no time-out of the socket is ever reached.
                while not self._over.wait(0.02):
                    line.sendall(self._more)


@pytest.mark.parametrize(
    ("beginning", "more"),
    [
        (b"", b"H"),
        (b"HTTP/1.1 200 OK\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
    ],
)
def test_a_registry_that_answers_byte_by_byte_is_given_up(beginning: bytes, more: bytes) -> None:
    retry = RetryPolicy(0.01, 0.02, patience=0.9, timeout=0.3)
    with SlowServer(beginning, more) as url:
        registry = SchemaRegistry(url, retry=retry)
        with pytest.raises(RegistryUnavailable, match="timed out: no whole answer within"):
            registry.schema(1)


def test_an_answer_that_is_cut_short_is_asked_for_again() -> None:
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for body in (b'{"sch', b'{"schema": "int"}'):
                line, _ = listening.accept()
                with line:
                    line.recv(65_536)
                    line.sendall(whole + body)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        assert SchemaRegistry(url, retry=QUICK).schema(1).text == "int"
        thread.join()


def test_an_answer_without_end_is_read_to_a_limit() -> None:
    with SlowServer(b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (8 << 20), b" " * (1 << 20)) as url:
        with pytest.raises(InvalidConfig, match="larger than 8 MiB"):
            SchemaRegistry(url).schema(1)


def test_a_schema_takes_no_longer_than_all_of_it_may(held: SmallRegistry) -> None:
    _diamond(held, 10)
    retry = RetryPolicy(whole=0.0)
    with pytest.raises(RegistryUnavailable, match="all that it needs took longer than 0 s"):
        SchemaRegistry(held.url, retry=retry).latest("level-10")


def _diamond(held: SmallRegistry, levels: int) -> None:
    """Each level needs the one below by two names."""
    held.add_version("level-0", 1, "int")
    for level in range(1, levels + 1):
        below = {"subject": f"level-{level - 1}", "version": 1}
        names = [f"left-{level}", f"right-{level}"]
        needed = [{"name": name, **below} for name in names]
        held.add_version(f"level-{level}", 1, "int", references=needed)


@pytest.mark.parametrize("levels", [10, 60])
def test_what_is_needed_twice_is_asked_for_once(held: SmallRegistry, levels: int) -> None:
    _diamond(held, levels)
    found = SchemaRegistry(held.url, retry=QUICK).latest(f"level-{levels}")
    assert len(held.requests) == levels + 1
    order = [each.name for each in found.in_order()]
    assert len(order) == len(set(order)) == 2 * levels
    places = {name: place for place, name in enumerate(order)}
    for level in range(2, levels + 1):
        assert places[f"left-{level - 1}"] < places[f"left-{level}"]


@pytest.mark.parametrize(
    "references", [[{"name": "a"}], [7], 7, [{"subject": "a", "version": 1}], [None]]
)
def test_references_that_are_none(held: SmallRegistry, references: object) -> None:
    held.add(1, "int", references=references)
    with pytest.raises(InvalidConfig, match="references that are none"):
        SchemaRegistry(held.url, retry=QUICK).schema(1)


def test_credentials(held: SmallRegistry) -> None:
    held.add(1, "int")
    held.credentials = f"ann:{SECRET}"
    registry = SchemaRegistry(held.url, user="ann", password=SECRET)
    assert registry.schema(1).text == "int"
    assert SECRET not in repr(registry)
    within = SchemaRegistry(held.url.replace("//", "//ann:p4ss%3Aw%40rd@"))
    assert within.schema(1).text == "int"
    assert within.url == held.url
    assert "p4ss" not in repr(within)


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_are_not_tried_again(held: SmallRegistry, status: int) -> None:
    held.failures = [status]
    with pytest.raises(AuthFailed, match=str(status)) as caught:
        SchemaRegistry(held.url, user="ann", password=SECRET).schema(1)
    assert SECRET not in str(caught.value) + repr(caught.value)
    assert len(held.requests) == 1


@pytest.mark.parametrize("status", [301, 400, 404, 422])
def test_an_address_of_something_else_is_no_missing_schema(
    held: SmallRegistry, status: int
) -> None:
    held.failures = [status]
    with pytest.raises(InvalidConfig, match="is this a schema registry's address"):
        SchemaRegistry(held.url).schema(1)


@pytest.mark.parametrize(
    "url", ["", "localhost:8081", "file:///etc/passwd", "http://", "http://:80"]
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(InvalidConfig):
        SchemaRegistry(url)


def test_it_pickles_without_what_it_knows(held: SmallRegistry) -> None:
    held.add(1, "int")
    registry = SchemaRegistry(held.url, retry=QUICK)
    registry.schema(1)
    copy = pickle.loads(pickle.dumps(registry))
    assert copy == registry
    assert copy.schema(1) == registry.schema(1)
    assert len(held.requests) == 2


def test_references_are_followed_and_put_in_order(held: SmallRegistry) -> None:
    def needs(*subjects: str) -> list[dict[str, object]]:
        return [{"name": each.upper(), "subject": each, "version": 1} for each in subjects]

    held.add_version("a", 1, "A")
    held.add_version("b", 1, "B", references=needs("a"))
    held.add_version("c/d", 1, "C", references=needs("a", "b"))
    held.versions["c%2Fd", "1"] = held.versions["c/d", "1"]
    held.add(5, "top", references=needs("b", "c/d"))
    found = SchemaRegistry(held.url).schema(5)
    assert [each.name for each in found.in_order()] == ["A", "B", "C/D"]
    assert SchemaRegistry(held.url).latest("b").schema_id == 1001
    with pytest.raises(UnknownSchema, match="subject z, version latest"):
        SchemaRegistry(held.url).latest("z")


def test_schemas_that_refer_to_themselves(held: SmallRegistry) -> None:
    held.add_version("a", 1, "A", references=[{"name": "A", "subject": "a", "version": 1}])
    with pytest.raises(UnknownSchema, match="refers to itself"):
        SchemaRegistry(held.url).latest("a")
