"""Of the messages of every kind of key the last ones are a dictionary."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pytest

from infra.kafka import KafkaEndpoint
from laminar_dagster.core.ports import Sink
from laminar_dagster.testing.sink_keys import Key, KeyContract, KeyKind, KeyPlace
from tests.integration.sinks.kafka_place import KafkaPlace, messages
from tests.unit.sinks.key_values import NO_KEYS, as_view_has
from tests.unit.sinks.staging import SINK

pytestmark = [pytest.mark.slow, pytest.mark.service("kafka")]


@dataclass(frozen=True)
class KafkaKeyPlace:
    """A topic whose messages have keys: of these, what a compacted topic keeps."""

    kafka: KafkaPlace

    def open_keyed(self, key: tuple[str, ...]) -> Sink:
        return self.kafka.sink(SINK, "upsert", key_columns=key)

    def read_keyed(self, kind: KeyKind) -> list[tuple[Key, str]]:
        latest: dict[bytes, tuple[Key, str] | None] = {}
        for message in messages(self.kafka.bootstrap, self.kafka.topic(SINK)):
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            assert isinstance(value, bytes | None)
            latest[key] = None if value is None else (_key(kind, key), json.loads(value)["value"])
        return [row for row in latest.values() if row is not None]


def _key(kind: KeyKind, data: bytes) -> Key:
    found = json.loads(data)
    stored = [
        base64.b64decode(found[name]) if _is_binary(each) else found[name]
        for name, each in zip(kind.columns, kind.types, strict=True)
    ]
    return as_view_has(kind, stored)


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


class TestKafkaKeys(KeyContract):
    looks_after_every_epoch = False
    refused: ClassVar[Mapping[str, str]] = NO_KEYS

    @pytest.fixture
    def key_place(self, kafka_service: KafkaEndpoint) -> KeyPlace:
        return KafkaKeyPlace(KafkaPlace.new(kafka_service.bootstrap))
