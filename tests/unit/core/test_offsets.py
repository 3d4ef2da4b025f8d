"""Positions: strict JSON, no defaults, half-open ranges in one partition."""

from __future__ import annotations

import base64
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.core.document import decode, encode
from laminar_dagster.core.errors import LaminarError, MalformedDocument
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.offsets import (
    CustomPosition,
    FilePosition,
    KafkaPosition,
    MysqlPosition,
    PostgresPosition,
    SourceOffset,
    SourceOffsets,
    SourcePosition,
    SourceRange,
    lane_of,
    position_from_json,
    position_to_json,
    progress_of,
)
from tests.unit.core import strategies
from tests.unit.core.samples import CLICKS, checkpoint, kafka

EXAMPLES: dict[str, dict[str, Any]] = {
    "kafka": {"type": "kafka", "topic": "clicks", "partition": 3, "offset": 42},
    "postgres_cdc": {"type": "postgres_cdc", "lsn": 2**64 - 1, "slot": "s"},
    "mysql_cdc": {"type": "mysql_cdc", "binlog_file": "bin.000007", "binlog_position": 4},
    "file": {"type": "file", "path": "/var/log/x", "byte_offset": 10},
    "custom": {"type": "custom", "source_type": "mqtt", "position_bytes": "AAE="},
}
MEMBERS = [(kind, name) for kind, members in EXAMPLES.items() for name in members]
NUMBERS = [
    ("kafka", "partition", 2**31 - 1),
    ("kafka", "offset", 2**63 - 1),
    ("postgres_cdc", "lsn", 2**64 - 1),
    ("mysql_cdc", "binlog_position", 2**64 - 1),
    ("file", "byte_offset", 2**64 - 1),
]


def read(members: dict[str, Any]) -> SourcePosition:
    return position_from_json(json.dumps(members).encode())


def round_trip(position: SourcePosition) -> dict[str, Any]:
    data = position_to_json(position)
    again = position_from_json(data)
    assert again == position
    assert type(again) is type(position)
    assert hash(again) == hash(position)
    assert position_to_json(again) == data
    assert pickle.loads(pickle.dumps(position)) == position
    members: dict[str, Any] = json.loads(data)
    return members


@given(strategies.kafka_positions)
def test_source_position_kafka_json_roundtrip(position: KafkaPosition) -> None:
    members = round_trip(position)
    assert members == {
        "type": "kafka",
        "topic": position.topic,
        "partition": position.partition,
        "offset": position.offset,
    }


def _take_snapshot(members: dict[str, object], position: PostgresPosition | MysqlPosition) -> None:
    """It is left out where there is none, as documents from before it existed have it."""
    progress = position.snapshot
    expected = progress and {"number": progress.number, "rows": progress.rows}
    assert members.pop("snapshot", None) == expected


@given(strategies.postgres_positions)
def test_source_position_postgres_cdc_json_roundtrip(position: PostgresPosition) -> None:
    members = round_trip(position)
    _take_snapshot(members, position)
    assert members == {"type": "postgres_cdc", "lsn": position.lsn, "slot": position.slot}


@given(strategies.mysql_positions)
def test_source_position_mysql_cdc_json_roundtrip(position: MysqlPosition) -> None:
    members = round_trip(position)
    _take_snapshot(members, position)
    assert members.pop("gtid_set", None) == position.gtid_set
    assert members == {
        "type": "mysql_cdc",
        "binlog_file": position.binlog_file,
        "binlog_position": position.binlog_position,
    }


@given(strategies.file_positions)
def test_source_position_file_json_roundtrip(position: FilePosition) -> None:
    members = round_trip(position)
    assert members == {"type": "file", "path": position.path, "byte_offset": position.byte_offset}


@given(strategies.custom_positions)
def test_source_position_custom_json_roundtrip(position: CustomPosition) -> None:
    members = round_trip(position)
    assert members == {
        "type": "custom",
        "source_type": position.source_type,
        "position_bytes": base64.b64encode(position.position_bytes).decode(),
    }


def offsets_of(*positions: SourcePosition) -> SourceOffsets:
    return SourceOffsets(
        version=1,
        source_id=CLICKS,
        epoch=EpochNumber(7),
        checkpoint_id=checkpoint(7),
        positions=positions,
    )


@given(st.lists(strategies.kafka_positions, max_size=4))
def test_source_offset_kafka_serialization(positions: list[SourcePosition]) -> None:
    offsets = offsets_of(*positions)
    assert decode(encode(offsets), SourceOffsets, "x") == offsets


@given(st.lists(strategies.postgres_positions | strategies.mysql_positions, max_size=4))
def test_source_offset_cdc_serialization(positions: list[SourcePosition]) -> None:
    offsets = offsets_of(*positions)
    assert decode(encode(offsets), SourceOffsets, "x") == offsets


def test_source_position_from_json_invalid_type() -> None:
    with pytest.raises(MalformedDocument, match="redis"):
        read({"type": "redis", "offset": 1})


@pytest.mark.parametrize(("kind", "name"), MEMBERS)
def test_a_missing_member_is_named_and_has_no_default(kind: str, name: str) -> None:
    members = dict(EXAMPLES[kind])
    del members[name]
    with pytest.raises(MalformedDocument, match=f"missing required field `{name}`"):
        read(members)


@pytest.mark.parametrize(("kind", "name"), MEMBERS)
@pytest.mark.parametrize("wrong", [None, [], {}, True, 1.5, -1, "?"], ids=repr)
def test_a_wrong_member_is_named(kind: str, name: str, wrong: object) -> None:
    members = EXAMPLES[kind] | {name: wrong}
    if wrong == "?" and name in ("topic", "slot", "path", "source_type"):
        assert getattr(read(members), name) == wrong
        return
    with pytest.raises(MalformedDocument, match=name):
        read(members)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_unknown_member_is_named(kind: str) -> None:
    with pytest.raises(MalformedDocument, match="unknown field `colour`"):
        read(EXAMPLES[kind] | {"colour": 1})


@pytest.mark.parametrize(("kind", "name", "largest"), NUMBERS)
def test_the_limits_of_numbers(kind: str, name: str, largest: int) -> None:
    for number in (0, largest):
        assert getattr(read(EXAMPLES[kind] | {name: number}), name) == number
    for number in (largest + 1, 2**64, 10**30, -1):
        with pytest.raises(MalformedDocument, match=name):
            read(EXAMPLES[kind] | {name: number})


@pytest.mark.parametrize("name", ["topic", "slot", "path", "source_type", "binlog_file"])
def test_the_limits_of_texts(name: str) -> None:
    members = next(each for each in EXAMPLES.values() if name in each)
    for text in ("", "x" * 4097):
        with pytest.raises(MalformedDocument, match=name):
            read(members | {name: text})


@pytest.mark.parametrize("file", ["binlog", "binlog.", ".1", "binlog.1a", "binlog.٣", "a.1\n"])
def test_a_binlog_without_its_number_is_refused(file: str) -> None:
    with pytest.raises(MalformedDocument, match="binlog_file"):
        read(EXAMPLES["mysql_cdc"] | {"binlog_file": file})


def test_a_path_with_nul_is_refused() -> None:
    with pytest.raises(MalformedDocument, match="path"):
        read(EXAMPLES["file"] | {"path": "a\0b"})


@given(st.binary(max_size=60))
def test_random_bytes_end_in_a_named_error(data: bytes) -> None:
    with pytest.raises(LaminarError):
        position_from_json(data)


def test_a_part_larger_than_any_document_is_not_read() -> None:
    with pytest.raises(MalformedDocument, match="larger than"):
        position_from_json(b" " * (16 * 1024 * 1024 + 1))


# --- order --------------------------------------------------------------------------------------


def at(kind: str, **members: Any) -> SourcePosition:
    return read(EXAMPLES[kind] | members)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (at("kafka", offset=9), at("kafka", offset=10)),
        (at("postgres_cdc", lsn=2**63), at("postgres_cdc", lsn=2**64 - 1)),
        (at("mysql_cdc", binlog_position=9), at("mysql_cdc", binlog_position=10)),
        (at("mysql_cdc", binlog_position=10), at("mysql_cdc", binlog_file="bin.000008")),
        (at("mysql_cdc", binlog_file="bin.999999"), at("mysql_cdc", binlog_file="bin.1000000")),
        (at("file", byte_offset=9), at("file", byte_offset=10)),
        (at("custom", position_bytes="AAE="), at("custom", position_bytes="AQA=")),
    ],
)
def test_later_positions_compare_greater(earlier: SourcePosition, later: SourcePosition) -> None:
    assert progress_of(earlier) < progress_of(later)
    assert not SourceRange(start=earlier, end=later).is_empty
    assert SourceRange(start=later, end=later).is_empty
    with pytest.raises(ValueError, match="backwards"):
        SourceRange(start=later, end=earlier)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (at("kafka"), at("kafka", partition=4)),
        (at("kafka"), at("kafka", topic="views")),
        (at("postgres_cdc"), at("postgres_cdc", slot="t")),
        (at("file"), at("file", path="/var/log/y")),
        (at("custom"), at("custom", source_type="amqp")),
        (at("kafka"), at("file")),
    ],
)
def test_a_range_stays_in_one_partition(one: SourcePosition, two: SourcePosition) -> None:
    assert lane_of(one) != lane_of(two)
    with pytest.raises(ValueError, match="one partition"):
        SourceRange(start=one, end=two)


@given(strategies.positions)
def test_a_position_is_in_the_partition_of_its_kind(position: SourcePosition) -> None:
    kind = json.loads(position_to_json(position))["type"]
    assert lane_of(position)[0] == kind
    assert SourceRange(start=position, end=position).is_empty


def test_a_source_offset_names_its_source() -> None:
    offset = SourceOffset(source_id=CLICKS, position=kafka(5))
    assert (offset.source_id, offset.position) == ("clicks", kafka(5))


def test_offsets_of_another_source_are_told_apart() -> None:
    data = encode(offsets_of(kafka(1))).replace(b'"clicks","epoch":7', b'"clicks","epoch":8')
    with pytest.raises(LaminarError):
        decode(data, SourceOffsets, "x")
