"""Messages of every format into rows, against a decoder of one message at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.clients.kafka.options import RegistryOptions
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.sources.formats.arrow_types import arrow_schema
from laminar_dagster.sources.kafka import portable_fetcher
from laminar_dagster.sources.kafka.decoding import HEAD_BYTES, MessageDecoder
from laminar_dagster.sources.kafka.traits import METADATA
from tests.unit.sources.kafka.batches import Value, bad, batch_of, decode, options, rows

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])
WITH_METADATA = pa.schema([*SCHEMA, *arrow_schema(METADATA)])


def test_json_messages_become_rows_at_their_offsets() -> None:
    chunk = decode(SCHEMA, batch_of([b'{"id": 1, "name": "a"}', b'{"name": "b", "more": []}']))
    assert rows(chunk) == [{"id": 1, "name": "a"}, {"id": None, "name": "b"}]
    assert chunk.positions.to_pylist() == [0, 3]
    assert (chunk.records, chunk.added, chunk.skipped, chunk.size_bytes) == (2, 0, 0, 47)


def test_what_reading_took_is_told() -> None:
    cost = decode(SCHEMA, batch_of([b'{"id": 1}'])).cost
    assert (cost.fetch_seconds, cost.pauses, cost.errors) == (0.25, 2, 1)
    assert 0 < cost.decode_seconds < 10


def test_executors_load_no_configuration() -> None:
    """Nor Avro and Protobuf where nothing is decoded with them: each worker would pay for it."""
    code = "import sys, laminar_dagster.sources.kafka.decoding; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    loaded = found.stdout.decode().split()
    assert "laminar_dagster.sources.kafka.decoding" in loaded
    heavy = ("sqlglot", "yaml", "google.protobuf", "urllib3", "laminar_dagster.config.model")
    assert not [name for name in heavy if name in loaded]


def test_no_message_gives_no_row() -> None:
    for kind in ("json", "csv", "debezium-json"):
        chunk = decode(SCHEMA, batch_of([]), format=kind)
        assert (chunk.records, chunk.rows.num_rows, chunk.bad.num_rows) == (0, 0, 0)


def test_tombstones_are_skipped_and_counted() -> None:
    chunk = decode(SCHEMA, batch_of([None, b'{"id": 1}', None], keys=[b"k", b"l", None]))
    assert rows(chunk) == [{"id": 1, "name": None}]
    assert (chunk.records, chunk.skipped, chunk.positions.to_pylist()) == (3, 2, [3])
    assert chunk.size_bytes == 11


def test_a_bad_message_keeps_its_bytes_and_its_partition() -> None:
    values = [b'{"id": 1}', b'{"id": "x"}\r', b"", b"\xff{}", b'{"id": 2}', b"nothing\n\n"]
    chunk = decode(SCHEMA, batch_of(values))
    assert [each["id"] for each in rows(chunk)] == [1, 2]
    assert [each[:2] for each in bad(chunk)] == [(3 * i, values[i]) for i in (1, 2, 3, 5)]
    assert chunk.bad.column("partition").unique().to_pylist() == ["t/7"]
    assert all(chunk.bad.column("is_whole").to_pylist())


def test_a_message_that_is_too_long_is_bad_and_its_beginning_is_kept() -> None:
    long = b'{"name": "' + b"x" * 100_000 + b'"}'
    chunk = decode(SCHEMA, batch_of([b'{"id": 1}', long]), max_record_bytes=90_000)
    ((offset, raw, reason),) = bad(chunk)
    assert (offset, raw) == (3, long[:HEAD_BYTES])
    assert reason.startswith("100012 bytes long, more than `max.record.bytes` = 90000")
    assert chunk.bad.column("is_whole").to_pylist() == [False]
    just_fits = decode(SCHEMA, batch_of([long]), max_record_bytes=len(long))
    assert just_fits.rows.num_rows == 1


def test_a_message_of_json_may_go_over_several_lines() -> None:
    pretty = json.dumps({"id": 1, "name": 'a "quoted" \\ text'}, indent=2).encode()
    chunk = decode(SCHEMA, batch_of([pretty, b'{"id": 2}\n', b'\n\n{"id"\n:\r\n3}\n']))
    assert [each["id"] for each in rows(chunk)] == [1, 2, 3]
    assert rows(chunk)[0]["name"] == 'a "quoted" \\ text'


def test_a_newline_inside_a_string_is_bad() -> None:
    values = [
        b'{"name": "a\nb"}',
        b'{"name": "a\\\\"\n}',
        b'{"name": "a\\"\n"}',
        b'{"name"\n: "a"}',
    ]
    chunk = decode(SCHEMA, batch_of(values))
    assert [each["name"] for each in rows(chunk)] == ["a\\", "a"]
    assert bad(chunk) == [
        (0, values[0], "a newline inside a string"),
        (6, values[2], "a newline inside a string"),
    ]


JSON_VALUES = st.one_of(
    st.dictionaries(
        st.sampled_from(["id", "name", "more"]),
        st.one_of(
            st.none(),
            st.integers(-(2**63), 2**63 - 1),
            st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        ),
    ).flatmap(
        lambda value: st.sampled_from([None, 0, 2]).map(
            lambda indent: json.dumps(value, indent=indent, ensure_ascii=False).encode()
        )
    ),
    st.sampled_from(
        [
            b"",
            b"{",
            b"null",
            b'{"id": 1}{"id": 2}',
            b'{"id": 1}\n{"id": 2}',
            b'{"name": "\n"}',
            b'{"name": "\\\n"}',
            b'{"name": "\\\\"\n}',
            b"\xff",
            b'{"id": 1, "id": 2}',
            b'{"name": "}\n{"}',
            b"{\x00}",
            b'[{"id": 1}]',
            b'"\n{"id": 1}',
        ]
    ),
    st.none(),
)


def expected_json(value: bytes) -> dict[str, Any] | None:
    """One message by the standard library; None if it is bad."""
    try:
        pairs = json.loads(value.decode(), object_pairs_hook=lambda found: found)
    except ValueError:
        return None
    found: dict[str, Any] = {}
    if not isinstance(pairs, list) or not value.strip().startswith(b"{"):
        return None
    for name, each in pairs:
        if name in found or not isinstance(each, int if name == "id" else str | None):
            if name in SCHEMA.names and not (each is None and name not in found):
                return None
        found[name] = each
    return {name: found.get(name) for name in SCHEMA.names}


@given(st.lists(JSON_VALUES, max_size=12), st.data())
def test_json_is_decoded_alike_in_any_cut(values: list[Value], data: st.DataObject) -> None:
    whole = decode(SCHEMA, batch_of(values))
    good = [(3 * i, expected_json(v)) for i, v in enumerate(values) if v is not None]
    expected = [(offset, row) for offset, row in good if row is not None]
    assert list(zip(whole.positions.to_pylist(), rows(whole), strict=True)) == expected
    assert [each[:2] for each in bad(whole)] == [
        (offset, values[offset // 3]) for offset, row in good if row is None
    ]
    assert whole.skipped == values.count(None)
    decoder = MessageDecoder(SCHEMA, options(), "s")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=3)))
    batch = batch_of(values)
    edges = [0, *cuts, len(values)]
    parts = [decoder.decode("t", 7, batch.slice(low, high)) for low, high in pairwise(edges)]
    assert [row for part in parts for row in rows(part)] == rows(whole)
    assert [each[:2] for part in parts for each in bad(part)] == [each[:2] for each in bad(whole)]
    assert sum(part.records for part in parts) == whole.records
    assert sum(part.size_bytes for part in parts) == whole.size_bytes


def test_the_prefix_of_a_registry_is_taken_off_and_its_ids_are_told() -> None:
    # It is never asked: JSON says itself what it holds.
    registry = RegistryOptions(url="http://127.0.0.1:1")
    values = [
        b"\0\0\0\x01\x0a" + b'{"id": 1}',
        b'{"id": 2}',
        b"\0\0\0\0\x07" + b'{"id": "bad"}',
        b"\0\0\0",
    ]
    chunk = decode(SCHEMA, batch_of(values), registry=registry)
    assert [each["id"] for each in rows(chunk)] == [1, 2]
    assert chunk.schema_ids == {266, 7}
    assert [each[:2] for each in bad(chunk)] == [(6, values[2]), (9, values[3])]
    assert decode(SCHEMA, batch_of(values)).rows.num_rows == 1


def test_csv_is_one_record_a_message() -> None:
    values = [b"1,a", b"2,b\n", b'3,"c\nd"\r\n', b"4,e\n5,f", b"\n", b"", b"6", b'7,"', b"x,y"]
    chunk = decode(SCHEMA, batch_of(values), format="csv")
    assert rows(chunk) == [
        {"id": 1, "name": "a"},
        {"id": 2, "name": "b"},
        {"id": 3, "name": "c\nd"},
    ]
    reasons = {offset // 3: reason for offset, _, reason in bad(chunk)}
    assert [*reasons] == [3, 4, 5, 6, 7, 8]
    assert reasons[3] == "more than one record"
    assert reasons[4] == reasons[5] == "it is empty"
    assert reasons[6] == "1 field, 2 expected"
    assert [raw for _, raw, _ in bad(chunk)] == values[3:]


def test_csv_takes_its_delimiter_and_null() -> None:
    given = {"csv_delimiter": ";", "csv_null": "-"}
    chunk = decode(SCHEMA, batch_of([b"1;-", b"-;"]), format="csv", **given)
    assert rows(chunk) == [{"id": 1, "name": None}, {"id": None, "name": ""}]


@given(st.lists(st.text('ab,"\n\r\\ 1', max_size=7).map(str.encode), max_size=8))
def test_whether_csv_is_good_does_not_depend_on_its_neighbours(values: list[bytes]) -> None:
    schema = pa.schema([("one", pa.string()), ("two", pa.string())])
    together = decode(schema, batch_of(values), format="csv")
    alone = [decode(schema, batch_of([value]), format="csv") for value in values]
    assert rows(together) == [row for each in alone for row in rows(each)]
    assert [raw for _, raw, _ in bad(together)] == [b[1] for each in alone for b in bad(each)]


def avro_file(folder: Path, **fields: str) -> Path:
    path = folder / "row.avsc"
    columns = [{"name": name, "type": kind} for name, kind in fields.items()]
    path.write_text(json.dumps({"type": "record", "name": "Row", "fields": columns}))
    return path


def test_avro_is_decoded_by_a_schema_in_a_file(tmp_path: Path) -> None:
    given = {"format": "avro", "avro_schema": avro_file(tmp_path, id="long", name="string")}
    chunk = decode(SCHEMA, batch_of([b"\x02\x02a", b"\x04", None, b"\x06\x04\n\n"]), **given)
    assert rows(chunk) == [{"id": 1, "name": "a"}, {"id": 3, "name": "\n\n"}]
    assert ([each[:2] for each in bad(chunk)], chunk.skipped) == ([(3, b"\x04")], 1)


def test_a_key_of_avro_stands_beside_a_value_of_json(tmp_path: Path) -> None:
    given = {"key_format": "avro", "key_columns": ("id",)}
    values, keys = [b'{"name": "a"}', b'{"name": "b"}'], [b"\x02", b"\x02\x02"]
    chunk = decode(
        SCHEMA, batch_of(values, keys), avro_schema=avro_file(tmp_path, id="long"), **given
    )
    assert rows(chunk) == [{"id": 1, "name": "a"}]
    assert [(each[0], each[2][:5]) for each in bad(chunk)] == [(3, "key: ")]


def test_protobuf_is_decoded_by_a_descriptor_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "row.desc"
    path.write_bytes(descriptor_set())
    given = {"format": "protobuf", "protobuf_descriptor": path, "protobuf_message": "Row"}
    chunk = decode(SCHEMA, batch_of([b"\x08\x01\x12\x01a", b"\x08", None]), **given)
    assert [each["id"] for each in rows(chunk)] == [1]
    assert ([each[:2] for each in bad(chunk)], chunk.skipped) == ([(3, b"\x08")], 1)


def descriptor_set() -> bytes:
    """Of a message ``Row { int64 id = 1; string name = 2; }``."""
    field = descriptor_pb2.FieldDescriptorProto
    row = descriptor_pb2.DescriptorProto(name="Row")
    for number, (name, kind) in enumerate({"id": 3, "name": 9}.items(), start=1):
        row.field.append(field(name=name, number=number, type=kind, label=1))  # type: ignore[arg-type]
    file = descriptor_pb2.FileDescriptorProto(name="row.proto", syntax="proto3", message_type=[row])
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def test_a_schema_that_does_not_fit_is_refused_before_the_first_record(tmp_path: Path) -> None:
    given = options(format="avro", avro_schema=avro_file(tmp_path, id="string"))
    with pytest.raises(InvalidConfig, match="id"):
        MessageDecoder(SCHEMA, given, "s")
    with pytest.raises(InvalidConfig, match="No such file"):
        MessageDecoder(SCHEMA, options(format="avro", avro_schema=tmp_path / "none"), "s")


def test_the_columns_of_the_key_are_decoded_from_the_key() -> None:
    given = {"key_format": "json", "key_columns": ("id",)}
    keys = [b'{"id": 1}', b"oops", None, b'{"id": 4}', b'{"id": 5}']
    values = [b'{"name": "a"}', b'{"name": "b"}', b'{"name": "c"}', b"{oops", None]
    chunk = decode(SCHEMA, batch_of(values, keys), **given)
    assert rows(chunk) == [{"id": 1, "name": "a"}, {"id": None, "name": "c"}]
    assert [(each[0], each[1]) for each in bad(chunk)] == [(3, values[1]), (9, values[3])]
    assert bad(chunk)[0][2] == "key: not a JSON object"
    assert not bad(chunk)[1][2].startswith("key: ")
    assert (chunk.skipped, chunk.added) == (1, 0)


def test_a_missing_key_is_bad_where_its_column_must_not_be_null() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    given = {"key_format": "csv", "key_columns": ("id",)}
    chunk = decode(schema, batch_of([b"{}", b"{}"], [None, b"3"]), **given)
    assert rows(chunk) == [{"id": 3, "name": None}]
    assert bad(chunk) == [(0, b"{}", "key: there is none, and `id` must not be null")]


def test_a_value_without_columns_is_refused() -> None:
    given = options(key_format="json", key_columns=("id", "name"))
    with pytest.raises(InvalidConfig, match="no column is left for the value"):
        MessageDecoder(SCHEMA, given, "s")


def test_headers_without_a_readable_name_are_set_aside() -> None:
    """Kafka takes any bytes for a name; a client that reads text cannot hand them out."""
    given = [[{"key": "h", "value": b"x"}], None, None]
    batch = batch_of(
        [b'{"id": 1}', b'{"id": 2}', None],
        keys=[None, None, None],
        headers=given,
        timestamps=[1, 1, 1],
        offsets=[0, 1, 2],
    )
    chunk = decode(WITH_METADATA, batch, include_metadata=True)
    assert [row["id"] for row in rows(chunk)] == [1]
    assert bad(chunk) == [(1, b'{"id": 2}', "`_headers`: the name of a header is not UTF-8")]


def test_the_portable_reader_has_no_headers_of_such_a_message() -> None:
    class Unreadable:
        def headers(self) -> None:
            raise SystemError("returned a result with an exception set")

    class Plain:
        def headers(self) -> list[tuple[str, bytes]]:
            return [("h", b"x")]

    class Bare:
        def headers(self) -> None:
            return None

    made: Any = [Unreadable(), Plain(), Bare()]
    assert portable_fetcher._headers(made).to_pylist() == [None, [{"key": "h", "value": b"x"}], []]


def test_metadata_stands_beside_its_row() -> None:
    batch = batch_of(
        [b'{"id": 1}', b"bad", None, b'{"id": 2}'],
        keys=[b"k", b"l", b"m", None],
        timestamps=[1_700_000_000_123, 1, 2, -1],
        headers=[[{"key": "h", "value": b"\xff"}, {"key": "h", "value": None}], [], [], []],
        offsets=[5, 6, 8, 100],
    )
    chunk = decode(WITH_METADATA, batch, include_metadata=True)
    assert rows(chunk) == [
        {
            "id": 1,
            "name": None,
            "_topic": "t",
            "_partition": 7,
            "_offset": 5,
            "_timestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
            "_key": b"k",
            "_headers": [{"key": "h", "value": b"\xff"}, {"key": "h", "value": None}],
        },
        {
            "id": 2,
            "name": None,
            "_topic": "t",
            "_partition": 7,
            "_offset": 100,
            "_timestamp": None,
            "_key": None,
            "_headers": [],
        },
    ]


@pytest.mark.parametrize("absurd", [253_402_300_800_000, 1_700_000_000_000_000_000, 2**63 - 1])
def test_a_message_of_an_absurd_time_is_bad_by_itself(absurd: int) -> None:
    batch = batch_of(
        [b'{"id": 1}', b'{"id": 2}', b'{"id": 3}'],
        keys=[None] * 3,
        timestamps=[1, absurd, 253_402_300_799_999],
        headers=[[]] * 3,
    )
    chunk = decode(WITH_METADATA, batch)
    assert [each["id"] for each in rows(chunk)] == [1, 3]
    assert rows(chunk)[1]["_timestamp"] == datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    assert bad(chunk) == [
        (3, b'{"id": 2}', f"`_timestamp`: {absurd} milliseconds are beyond the year 9999")
    ]
    # Where nobody asks for the time it does not matter.
    assert decode(SCHEMA, batch).rows.num_rows == 3


def test_a_message_without_a_time_is_bad_where_that_is_event_time() -> None:
    place = WITH_METADATA.get_field_index("_timestamp")
    schema = WITH_METADATA.set(place, WITH_METADATA.field(place).with_nullable(False))
    batch = batch_of([b'{"id": 1}', b'{"id": 2}', None], [None] * 3, [5, -1, -1], [[], [], []])
    chunk = decode(schema, batch, include_metadata=True)
    assert [each["id"] for each in rows(chunk)] == [1]
    assert bad(chunk) == [(3, b'{"id": 2}', "`_timestamp` must not be null")]
    assert chunk.skipped == 1


def test_metadata_stands_beside_both_rows_of_an_update() -> None:
    schema = pa.schema([*WITH_METADATA, ("_weight", pa.int8())])
    update = b'{"op": "u", "before": {"id": 1}, "after": {"id": 2}}'
    batch = batch_of([update], [b"k"], [0], [[]], [9])
    chunk = decode(schema, batch, include_metadata=True, format="debezium-json")
    found = [(each["id"], each["_weight"], each["_offset"], each["_key"]) for each in rows(chunk)]
    assert found == [(1, -1, 9, b"k"), (2, 1, 9, b"k")]
    assert (chunk.records, chunk.added, chunk.positions.to_pylist()) == (1, 1, [9, 9])


def test_a_slice_of_a_batch_is_decoded_by_itself() -> None:
    batch = batch_of([b'{"id": %d}' % number for number in range(10)])
    chunk = MessageDecoder(SCHEMA, options(), "s").decode("t", 7, batch.slice(3, 5))
    assert [each["id"] for each in rows(chunk)] == [3, 4]
    assert np.array_equal(chunk.positions.to_numpy(), [9, 12])


# --- rows that are found to be bad later --------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("json", [b'{"id": 1}', b"nonsense", b'{"id": 2, "name": "b"}', b'{"id": 3}']),
        ("csv", [b"1,a", b"x,y,z", b"2,b", b"3,c"]),
    ],
)
def test_a_row_can_be_set_aside_as_it_came(kind: Any, values: list[Value]) -> None:
    chunk = decode(SCHEMA, batch_of(values), format=kind)
    assert [each[0] for each in bad(chunk)] == [3]
    assert chunk.set_aside
    found = chunk.set_aside({1: "one", 2: "two"})
    assert found.schema == chunk.bad.schema
    assert found.to_pylist() == [
        {"partition": "t/7", "position": 6, "raw": values[2], "reason": "one", "is_whole": True},
        {"partition": "t/7", "position": 9, "raw": values[3], "reason": "two", "is_whole": True},
    ]


def test_a_change_of_a_table_cannot_be_set_aside() -> None:
    """The sums of the others would be wrong without it."""
    value = b'{"op": "c", "after": {"id": 1, "name": "a"}}'
    chunk = decode(SCHEMA, batch_of([value]), format="debezium-json")
    assert chunk.rows.num_rows + chunk.bad.num_rows == 1
    assert chunk.set_aside is None
