"""Values as they are, and the header that names a schema."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.formats.raw import raw_encoder
from laminar_dagster.sinks.formats.wire_format import framed, message_index


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_raw_is_the_bytes_of_the_column(kind: pa.DataType) -> None:
    array = pa.array(["left out", "é", None, ""], pa.string()).cast(kind)
    batch = pa.record_batch({"value": array}).slice(1)
    found = raw_encoder(batch.schema).encode(batch)
    assert found.type == pa.large_binary()
    assert found.to_pylist() == ["é".encode(), None, b""]
    assert raw_encoder(batch.schema).encode(batch.slice(0, 0)).to_pylist() == []


def test_raw_takes_bytes_that_are_no_text() -> None:
    batch = pa.record_batch({"value": [b"\xff\0"]})
    assert raw_encoder(batch.schema).encode(batch).to_pylist() == [b"\xff\0"]


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("a", pa.int64())]),
        pa.schema([("a", pa.string()), ("b", pa.string())]),
        pa.schema([("a", pa.list_(pa.string()))]),
    ],
    ids=str,
)
def test_raw_takes_one_column_of_text_or_bytes(schema: pa.Schema) -> None:
    with pytest.raises(
        Unwritable, match="one column, the value, of STRING or BINARY; the view has"
    ):
        raw_encoder(schema)


@given(
    st.lists(st.none() | st.binary(max_size=20), max_size=10),
    st.integers(0, 2**31 - 1),
    st.binary(max_size=4),
    st.sampled_from([pa.binary(), pa.large_binary()]),
)
def test_a_header_stands_before_every_message(
    bodies: list[bytes | None], schema_id: int, index: bytes, kind: pa.DataType
) -> None:
    array = pa.array([b"other", *bodies], kind).slice(1)
    header = b"\0" + struct.pack(">I", schema_id) + index
    expected = [None if body is None else header + body for body in bodies]
    assert framed(array, schema_id, index).to_pylist() == expected


@pytest.mark.parametrize("schema_id", [-1, 2**31, 2**32])
def test_an_id_that_no_registry_gives_is_refused(schema_id: int) -> None:
    with pytest.raises(ValueError, match="32 bits"):
        framed(pa.array([b""]), schema_id)


@pytest.mark.parametrize(
    ("path", "expected"),
    [([0], b"\0"), ([1], b"\2\2"), ([0, 0], b"\4\0\0"), ([1, 0, 64], b"\6\2\0\x80\1")],
    ids=str,
)
def test_the_path_of_a_message_as_confluent_writes_it(path: list[int], expected: bytes) -> None:
    assert message_index(path) == expected
