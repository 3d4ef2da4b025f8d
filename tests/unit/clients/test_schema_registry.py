"""The client of the registry over real HTTP: what it asks for once, what it tries again."""

from __future__ import annotations

import pickle
import socket
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
