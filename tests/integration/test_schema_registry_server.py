"""The schema registry: that it speaks as Confluent's does, and how it ends."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from infra import service
from infra.errors import ServiceFailed
from infra.ports import free_port, is_listening
from infra.schema_registry import SchemaRegistry, SchemaRegistryEndpoint

pytestmark = pytest.mark.service("schema_registry")

_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"


def click(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Click", "fields": list(fields)})


def ask(endpoint: SchemaRegistryEndpoint, path: str, body: object = None) -> Any:
    content = None if body is None else json.dumps(body).encode()
    request = Request(f"{endpoint.url}{path}", content, {"Content-Type": _MEDIA_TYPE})
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


@pytest.fixture
def subject() -> str:
    return f"test-{uuid.uuid4().hex}-value"


def test_confluents_client_registers_an_avro_schema_and_gets_it_back_by_its_number(
    schema_registry_service: SchemaRegistryEndpoint, subject: str
) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

    schema = Schema(click({"name": "user", "type": "string"}), "AVRO")
    with SchemaRegistryClient({"url": schema_registry_service.url}) as writer:
        number = writer.register_schema(subject, schema)
        assert writer.register_schema(subject, schema) == number
    # Another client, as the first remembers what it has registered.
    with SchemaRegistryClient({"url": schema_registry_service.url}) as reader:
        found = reader.get_schema(number)
        latest = reader.get_latest_version(subject)
    assert json.loads(found.schema_str or "") == json.loads(schema.schema_str or "")
    assert (latest.schema_id, latest.version) == (number, 1)


def test_a_subject_has_versions(
    schema_registry_service: SchemaRegistryEndpoint, subject: str
) -> None:
    user = {"name": "user", "type": "string"}
    versions = [click(user), click(user, {"name": "n", "type": "int", "default": 0})]
    numbers = [
        ask(schema_registry_service, f"/subjects/{subject}/versions", {"schema": text})["id"]
        for text in versions
    ]
    assert len(set(numbers)) == 2
    assert ask(schema_registry_service, f"/subjects/{subject}/versions") == [1, 2]
    latest = ask(schema_registry_service, f"/subjects/{subject}/versions/latest")
    assert latest["id"] == numbers[1]


def test_an_unknown_number_is_not_found_in_confluents_words(
    schema_registry_service: SchemaRegistryEndpoint,
) -> None:
    with pytest.raises(HTTPError) as caught:
        ask(schema_registry_service, "/schemas/ids/987654321")
    with caught.value as answer:
        assert answer.code == 404
        assert json.load(answer)["error_code"] == 40403


def test_it_listens_on_loopback_only(schema_registry_service: SchemaRegistryEndpoint) -> None:
    assert schema_registry_service.host == "127.0.0.1"
    assert is_listening(schema_registry_service.port)
    assert not is_listening(schema_registry_service.port, "127.0.0.2")


def test_another_registry_on_its_port_is_not_taken_for_it(
    tmp_path: Path,
    schema_registry_service: SchemaRegistryEndpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offered = iter([schema_registry_service.port])
    monkeypatch.setattr(service, "free_port", lambda: next(offered, None) or free_port())
    with SchemaRegistry() as server:
        endpoint = server.start(tmp_path)
        assert endpoint.port != schema_registry_service.port
        assert ask(endpoint, "/subjects") == []


def test_a_failed_start_shows_the_log(tmp_path: Path) -> None:
    with SchemaRegistry({"quarkus.http.host": "no such host"}) as server:
        with pytest.raises(ServiceFailed, match="no such host"):
            server.start(tmp_path)
