"""Format raw: values as they are."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from laminar_dagster.core.errors import InvalidConfig
from tests.unit.sources.kafka.batches import Value, bad, batch_of, decode, rows

TEXT = pa.schema([("value", pa.string())])
BYTES = pa.schema([("value", pa.binary())])


def test_a_tombstone_is_a_row() -> None:
    for schema in (TEXT, BYTES):
        chunk = decode(schema, batch_of([b"a", None, b""]), format="raw")
        found = [each["value"] for each in rows(chunk)]
        assert found == (["a", None, ""] if schema is TEXT else [b"a", None, b""])
        assert (chunk.skipped, chunk.positions.to_pylist()) == (0, [0, 3, 6])


def test_a_tombstone_is_bad_where_the_column_must_not_be_null() -> None:
    schema = pa.schema([pa.field("value", pa.string(), nullable=False)])
    chunk = decode(schema, batch_of([b"a", None]), format="raw")
    assert bad(chunk) == [(3, b"", "`value` must not be null")]
    # There is nothing that could be sent again.
    assert chunk.bad.column("is_whole").to_pylist() == [False]


# Parts of a character, which are one only together.
PARTS = st.sampled_from([b"a\xc3", b"\xa9b", b"\xe2\x82", b"\xac", b"", "é".encode()])


@given(st.lists(st.none() | PARTS | st.binary(max_size=6) | st.text(max_size=4).map(str.encode)))
@example([b"a\xc3", b"\xa9b"])
@example([b"\xe2\x82", None, b"", b"\xac"])
def test_text_is_utf8_and_bytes_are_anything(values: list[Value]) -> None:
    assert [each["value"] for each in rows(decode(BYTES, batch_of(values), format="raw"))] == values
    chunk = decode(TEXT, batch_of(values), format="raw")
    good: list[str | None] = []
    wrong: list[bytes] = []
    for value in values:
        try:
            good.append(value.decode() if value is not None else None)
        except UnicodeDecodeError:
            assert value is not None
            wrong.append(value)
    assert [each["value"] for each in rows(chunk)] == good
    assert [(raw, reason) for _, raw, reason in bad(chunk)] == [
        (each, "not UTF-8") for each in wrong
    ]


@pytest.mark.parametrize("kinds", [[pa.int64()], [pa.string(), pa.string()]])
def test_other_columns_are_refused(kinds: list[pa.DataType]) -> None:
    schema = pa.schema([(str(place), kind) for place, kind in enumerate(kinds)])
    with pytest.raises(InvalidConfig, match="format raw has one column"):
        decode(schema, batch_of([]), format="raw")
