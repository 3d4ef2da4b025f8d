"""Every type through MySQL, sent both ways, and what another client reads there."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pyarrow as pa
import pymysql
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laminar_dagster.clients.mysql.identifiers import listed, quoted
from laminar_dagster.core.errors import WriteFailed
from laminar_dagster.sinks.mysql import values
from laminar_dagster.sinks.mysql.columns import ColumnType, MysqlColumn
from laminar_dagster.sinks.mysql.loading import Loader
from laminar_dagster.sinks.mysql.texts import Form
from tests.integration.sinks.databases.any_values import (
    ZONED,
    check_digits,
    columns_of,
    decimals,
    tables,
)
from tests.integration.sinks.databases.epochs import UPSERT, commit
from tests.integration.sinks.databases.mysql_place import MysqlPlace

pytestmark = pytest.mark.every_server

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["\\N", "NULL", "\\", "\t", "\n", "\r\n", "\0", "'", '"', "a ", "%s", "\U0001f600", "\\'; --"]
)
COLUMNS = columns_of(
    TEXT,
    float32=(pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
    float64=(pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    longest_decimal=(pa.decimal256(65, 30), decimals(65, 30)),
    zoned=(pa.timestamp("us", "Asia/Tokyo"), ZONED),
    duration=(pa.duration("us"), st.timedeltas(timedelta(-(10**8)), timedelta(10**8))),
)


def as_read(kind: pa.DataType, value: Any) -> Any:
    """What PyMySQL makes of a value that is there as it should be."""
    types = pa.types
    if value is None:
        return None
    if types.is_time(kind):
        return datetime.combine(date.min, value, UTC) - datetime.combine(date.min, time.min, UTC)
    if types.is_duration(kind):
        return value // timedelta(microseconds=1)
    if types.is_timestamp(kind) and kind.tz is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    if types.is_boolean(kind):
        return int(value)
    return value


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(table=tables(COLUMNS))
def test_what_is_written_is_what_another_client_reads(
    either_way: MysqlPlace, table: pa.Table
) -> None:
    name = f"t{uuid.uuid4().hex}"
    either_way.query("DROP TABLE IF EXISTS _laminar_ledger")
    commit(either_way.sink(name), 1, table)
    found = either_way.query(
        f"SELECT {listed(table.column_names)} FROM {quoted(name)} ORDER BY `row`"
    )
    for at, field in enumerate(table.schema):
        expected = [as_read(field.type, value) for value in table.column(at).to_pylist()]
        read = [row[at] for row in found]
        if pa.types.is_nested(field.type):
            read = [None if each is None else json.loads(each) for each in read]
        assert read == expected, field
        check_digits(field, read)


WARNED: list[tuple[str, list[str], str]] = [
    ("varchar(2)", ["ab", "abc"], "column 'x' at row 2"),
    ("decimal(3,1)", ["1.5", "1.25"], "Data truncated for column 'x'"),
    ("tinyint", ["1", "128"], "Out of range value for column 'x'"),
    ("int", ["1", "1x"], "column"),
    ("date", ["2024-02-29", "2023-02-29"], "column"),
    ("double", ["1", "1e999"], "column"),
    ("int UNIQUE", ["1", "1"], r"Duplicate entry '1' for key '(t\.)?x'"),
]


@pytest.mark.parametrize(("kind", "texts", "reason"), WARNED, ids=lambda each: str(each)[:30])
def test_what_nobody_checked_before_is_told_by_the_server(
    either_way: MysqlPlace, kind: str, texts: list[str], reason: str
) -> None:
    """A stream is read as if by INSERT IGNORE: each warning of it has to be an error here."""
    either_way.query(f"CREATE TABLE t (x {kind}) CHARACTER SET utf8mb4")
    column = MysqlColumn("x", "x", ColumnType("?", "?"), values.as_text, Form.TEXT)
    with either_way.sink()._connected() as (session, facts), session.transaction():
        loader = Loader(session, facts, bulk=either_way.bulk)
        loader.send("t", [column], pa.table({"x": texts[:1]}))
        with pytest.raises(pymysql.Error, match=reason) as caught:
            loader.send("t", [column], pa.table({"x": texts if "Dup" not in reason else texts[1:]}))
    if either_way.dialect.blames_row or " at row " in str(caught.value):
        assert caught.value.__notes__ == [f"in the row x={texts[1]!r}"]
    assert either_way.query("SELECT * FROM t") == []


def test_text_that_is_no_unicode_publishes_nothing(either_way: MysqlPlace) -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 2, pa.array([b"fine", b"a\xff"]).buffers(), null_count=0
    )
    sink = either_way.sink()
    with pytest.raises(WriteFailed):
        commit(sink, 1, pa.table({"x": broken}))
    assert either_way.query("SELECT * FROM t") == []


def test_zero_is_a_key_like_any_other(either_way: MysqlPlace) -> None:
    """Where the server numbers rows, it takes 0 for "the next number" unless it is told not to."""
    either_way.query(
        "CREATE TABLE t (k bigint AUTO_INCREMENT PRIMARY KEY, v longtext) CHARSET utf8mb4"
    )
    commit(either_way.sink(**UPSERT), 1, pa.table({"k": [7, 0], "v": ["a", "b"]}))
    assert either_way.query("SELECT k, v FROM t ORDER BY k") == [(0, "b"), (7, "a")]
