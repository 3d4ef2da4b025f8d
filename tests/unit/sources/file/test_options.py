"""The options of a file source, and the types of its columns."""

from __future__ import annotations

import pickle
import re
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.config.model import Column, Place, SourceTable
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.core.ids import SourceId
from laminar_dagster.sources.file.options import FileOptions, read_options
from laminar_dagster.sources.file.source import FileSource
from laminar_dagster.sources.formats.arrow_types import arrow_schema, arrow_type
from tests.unit.sources.file.files import plan, read

GIVEN = {"path": "in", "format": "csv"}


def _table(options: dict[str, str], *columns: Column) -> SourceTable:
    return SourceTable(
        source_id=SourceId("clicks"),
        columns=columns or (Column("n", "int"),),
        watermark=None,
        connector="file",
        options=options,
        place=Place("sources.sql", 3),
    )


def test_a_table_becomes_a_source(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_bytes(b"n\n1\n")
    source = FileSource.from_table(_table({**GIVEN, "pattern": "*.csv"}), tmp_path)
    assert source.source_id == "clicks"
    assert read(source, plan(source).ranges).rows == [{"n": 1}]
    assert pickle.loads(pickle.dumps(source.reader())) == source.reader()


def test_defaults() -> None:
    assert read_options({"path": "in", "format": "ndjson"}, "here") == (
        "in",
        FileOptions(format="ndjson"),
    )


@pytest.mark.parametrize(
    ("name", "text", "attribute", "value"),
    [
        ("csv.delimiter", r"\t", "csv_delimiter", "\t"),
        ("csv.header", "FALSE", "csv_header", False),
        ("csv.multiline", "false", "csv_multiline", False),
        ("csv.null", "NULL", "csv_null", "NULL"),
        ("on_gap", "earliest", "on_gap", "earliest"),
        ("on_vanished", "forget", "on_vanished", "forget"),
        ("idle.timeout", "5m", "idle_timeout", timedelta(minutes=5)),
        ("idle.timeout", "never", "idle_timeout", None),
        ("settle", "30s", "settle", timedelta(seconds=30)),
        ("max.record.bytes", "1MiB", "max_record_bytes", 2**20),
        ("max.files", "7", "max_files", 7),
        ("split.bytes", "4096", "split_bytes", 4096),
    ],
)
def test_every_option(name: str, text: str, attribute: str, value: object) -> None:
    _, options = read_options({**GIVEN, name: text}, "here")
    assert getattr(options, attribute) == value


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"path": "in"}, "`format` is missing"),
        ({"format": "csv"}, "`path` is missing"),
        ({**GIVEN, "format": "cvs"}, "did you mean 'csv'?"),
        ({**GIVEN, "format": "json"}, "must be one of ndjson, csv, parquet"),
        ({**GIVEN, "on_gap": "ignore"}, "must be one of fail, earliest"),
        ({**GIVEN, "csv.header": "maybe"}, "must be true or false"),
        ({**GIVEN, "csv.delimiter": ";;"}, "one ASCII character"),
        ({**GIVEN, "csv.delimiter": "ä"}, "one ASCII character"),
        ({**GIVEN, "csv.delimiter": "\n"}, "one ASCII character"),
        ({**GIVEN, "csv.delimiter": '"'}, "must not be the quote"),
        ({**GIVEN, "pattern": "../*"}, "`pattern` must not hold"),
        ({**GIVEN, "pattern": "/x"}, "`pattern` must be a relative path"),
        ({**GIVEN, "pattern": "a**"}, "`pattern` has '**' next to"),
        ({**GIVEN, "settle": "soon"}, "must be a duration"),
        ({**GIVEN, "max.files": "0"}, "at least 1"),
        ({**GIVEN, "max.files": "-1"}, "must be a whole number"),
        ({**GIVEN, "max.record.bytes": "big"}, "must be a size"),
        ({**GIVEN, "max.record.bytes": "2GiB"}, "must be between"),
        ({"path": "in", "format": "ndjson", "csv.header": "true"}, "is for files of format csv"),
    ],
)
def test_what_is_refused(options: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read_options(options, "sources.sql:3")
    assert caught.value.where == "sources.sql:3"
    assert problem in str(caught.value)


def test_an_unknown_option_names_the_nearest_and_every_mistake_is_told() -> None:
    with pytest.raises(InvalidConfig) as caught:
        read_options({"format": "csv", "patern": "*", "settle": "x"}, "here")
    assert "unknown option `patern`" in str(caught.value)
    assert caught.value.suggestion == "did you mean `pattern`?"
    assert "`settle` must be a duration" in str(caught.value)
    assert "`path` is missing" in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ((Column("n", "strng"),), "column `n`: unknown type `strng`, did you mean `string`?"),
        ((Column("n", "int"), Column("n", "int")), "column `n` is declared twice"),
        ((Column("n", "array<int>"),), "column `n`: a file of format csv holds plain types only"),
    ],
)
def test_columns_that_cannot_be(columns: tuple[Column, ...], problem: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        FileSource.from_table(_table(GIVEN, *columns), Path("/"))
    assert problem in str(caught.value)
    assert caught.value.where == "sources.sql:3"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("BOOLEAN", pa.bool_()),
        ("tinyint", pa.int8()),
        ("SHORT", pa.int16()),
        ("Integer", pa.int32()),
        ("long", pa.int64()),
        ("real", pa.float32()),
        ("double", pa.float64()),
        ("decimal", pa.decimal128(10, 0)),
        ("decimal(12)", pa.decimal128(12, 0)),
        ("numeric ( 12 , 3 )", pa.decimal128(12, 3)),
        ("varchar(20)", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("array<array<int>>", pa.list_(pa.list_(pa.int32()))),
        ("map<string, array<date>>", pa.map_(pa.string(), pa.list_(pa.date32()))),
        (
            "struct<a: int, `b c`:string, d struct<e: date>>",
            pa.struct(
                [("a", pa.int32()), ("b c", pa.string()), ("d", pa.struct([("e", pa.date32())]))]
            ),
        ),
    ],
)
def test_types(text: str, expected: pa.DataType) -> None:
    assert arrow_type(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a type is missing"),
        ("int int", "unexpected `int`"),
        ("array", "`<` is missing"),
        ("array<int", "`>` is missing"),
        ("map<int>", "`,` is missing"),
        ("map<array<int>, int>", "a map's key must be a plain type"),
        ("struct<>", "a struct without fields"),
        ("struct<a: int, a: int>", "field `a` is declared twice"),
        ("struct<a: int not null>", "NOT NULL is for columns"),
        ("decimal(39, 0)", "out of range"),
        ("decimal(2, 3)", "out of range"),
        ("varchar(x)", "a number is missing"),
        ("interval", "unknown type `interval`"),
        ("int;", "unexpected `;`"),
        ("array<" * 40 + "int" + ">" * 40, "nested more than"),
    ],
)
def test_types_that_are_none(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        arrow_type(text)


@given(st.text(st.sampled_from("intaraymp<>(),:` 19é"), max_size=20))
def test_any_text_is_a_type_or_a_named_mistake(text: str) -> None:
    try:
        arrow_type(text)
    except ValueError as error:
        assert type(error) is ValueError


def test_a_source_needs_columns() -> None:
    with pytest.raises(ValueError, match="no columns"):
        arrow_schema([])
