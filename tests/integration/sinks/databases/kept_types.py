"""Columns that are there already: which take a type as it is, which do not, and bad values."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

MOMENT = datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=UTC)
LOCAL = MOMENT.replace(tzinfo=None)
ONE = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

# --- PostgreSQL -----------------------------------------------------------------------------------

# Has to be run before the tables are made.
POSTGRES_OWN = (
    "CREATE TYPE mood AS ENUM ('happy', 'sad')",
    "CREATE DOMAIN positive AS integer CHECK (VALUE > 0)",
    "CREATE DOMAIN short AS varchar(2)",
)

# The type of the column, what is written to it, and what a client reads.
POSTGRES_EXISTING: list[tuple[str, pa.Array, Any]] = [
    ("int8", pa.array([-7], pa.int8()), -7),
    ("numeric", pa.array([2**64 - 1], pa.uint64()), Decimal(2**64 - 1)),
    ("numeric", pa.array([-(2**63)], pa.int64()), Decimal(-(2**63))),
    ("numeric(40,20)", pa.array([Decimal("1.50")], pa.decimal128(4, 2)), Decimal("1.5")),
    ("real", pa.array([-(2**15)], pa.int16()), -32768.0),
    ("float8", pa.array([2**32 - 1], pa.uint32()), 4294967295.0),
    ("float8", pa.array([0.5], pa.float16()), 0.5),
    ("varchar(3)", pa.array(["éüß"]), "éüß"),
    ("char(2)", pa.array(["DE"]), "DE"),
    ("json", pa.array(['{"b": 1, "a": 2}']), {"b": 1, "a": 2}),
    ("jsonb", pa.array(['{"a": [1.50]}']), {"a": [1.5]}),
    (
        "jsonb",
        pa.array([[("k", MOMENT)]], pa.map_(pa.string(), pa.timestamp("us", "UTC"))),
        {"k": "2024-02-29 23:59:59.123456Z"},
    ),
    ("text", pa.array([{"a": b"\0"}]), '{"a":"AA=="}'),
    ("uuid", pa.array([str(ONE)]), ONE),
    ("uuid", pa.array([ONE.bytes], pa.binary(16)), ONE),
    ("mood", pa.array(["happy"]), "happy"),
    ("positive", pa.array([5], pa.int16()), 5),
    ("short", pa.array(["ab"]), "ab"),
    ("timestamp(0)", pa.array([1], pa.timestamp("s")), datetime(1970, 1, 1, 0, 0, 1)),  # noqa: DTZ001
    ("timestamptz", pa.array([MOMENT], pa.timestamp("us", "Asia/Tokyo")), MOMENT),
    ("time(3)", pa.array([1], pa.time32("ms")), time(0, 0, 0, 1000)),
    ("interval", pa.array([-1], pa.duration("s")), timedelta(seconds=-1)),
    ("date", pa.array([date(2024, 2, 29)], pa.date64()), date(2024, 2, 29)),
]

# And what the refusal says.
POSTGRES_REFUSED: list[tuple[str, pa.Array, str]] = [
    ("integer", pa.array([1], pa.int64()), "make it bigint"),
    ("bigint", pa.array([1.5]), "make it double precision"),
    ("real", pa.array([1.5]), "make it double precision"),
    ("numeric", pa.array([1.5]), "make it double precision"),
    ("numeric(5,2)", pa.array([Decimal("1.234")]), r"make it numeric\(4,3\)"),
    ("timestamp", pa.array([MOMENT]), "make it timestamp with time zone"),
    ("timestamptz", pa.array([1], pa.timestamp("us")), "make it timestamp,"),
    ("timestamptz(3)", pa.array([MOMENT]), "does not hold every value"),
    ("interval day", pa.array([1], pa.duration("us")), "make it interval"),
    ("integer[]", pa.array([[1]]), "make it jsonb"),
    ("text", pa.array([1]), "make it bigint"),
    ("inet", pa.array(["::1"]), "make it text"),
    ("short", pa.array([1]), "make it bigint"),
]

POSTGRES_BAD: list[tuple[str, pa.Array, str]] = [
    ("text", pa.array(["fine", "a\0b"]), "hold the character U+0000"),
    ("jsonb", pa.array(["{}", "{nonsense"]), "json"),
    ("jsonb", pa.array([["fine"], ["a\0b"]]), "hold the character U+0000"),
    ("json", pa.array(["{}", ""]), "json"),
    ("mood", pa.array(["happy", "hungry"]), "enum mood"),
    ("positive", pa.array([1, -1], pa.int32()), "positive_check"),
    ("short", pa.array(["ab", "abc"]), "at most 2 characters"),
]

# --- MariaDB and MySQL ----------------------------------------------------------------------------

_BOTH_EXISTING: list[tuple[str, pa.Array, Any]] = [
    ("bigint", pa.array([-7], pa.int8()), -7),
    ("mediumint unsigned", pa.array([65535], pa.uint16()), 65535),
    ("int unsigned zerofill", pa.array([7], pa.uint32()), 7),
    ("decimal(20,0)", pa.array([2**64 - 1], pa.uint64()), Decimal(2**64 - 1)),
    ("decimal(21,2)", pa.array([-(2**63)], pa.int64()), Decimal(-(2**63))),
    ("decimal(40,20)", pa.array([Decimal("1.50")], pa.decimal128(4, 2)), Decimal("1.5")),
    ("float", pa.array([-(2**15)], pa.int16()), -32768.0),
    ("double", pa.array([2**32 - 1], pa.uint32()), 4294967295.0),
    ("float", pa.array([0.5], pa.float32()), 0.5),
    ("double", pa.array([0.5], pa.float16()), 0.5),
    ("varchar(3)", pa.array(["éü\U0001f600"]), "éü\U0001f600"),
    ("varchar(3)", pa.array(["a "]), "a "),
    ("char(3)", pa.array(["DE"]), "DE"),
    ("tinytext", pa.array(["x" * 255]), "x" * 255),
    ("text", pa.array([{"a": b"\0"}]), '{"a":"AA=="}'),
    ("varbinary(3)", pa.array([b"\0\xff"]), b"\0\xff"),
    ("binary(3)", pa.array([b"\0\xff\0"], pa.binary(3)), b"\0\xff\0"),
    ("tinyblob", pa.array([b"\\N\t\n"]), b"\\N\t\n"),
    ("datetime", pa.array([1], pa.timestamp("s")), datetime(1970, 1, 1, 0, 0, 1)),  # noqa: DTZ001
    ("datetime(3)", pa.array([1], pa.timestamp("ms")), datetime(1970, 1, 1, 0, 0, 0, 1000)),  # noqa: DTZ001
    ("timestamp(6) NULL", pa.array([MOMENT], pa.timestamp("us", "Asia/Tokyo")), LOCAL),
    ("datetime(6)", pa.array([MOMENT], pa.timestamp("us", "UTC")), LOCAL),
    ("datetime(6)", pa.array([1_000], pa.timestamp("ns")), datetime(1970, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001
    ("time(3)", pa.array([1], pa.time32("ms")), timedelta(milliseconds=1)),
    ("bigint", pa.array([-1], pa.duration("s")), -1),
    ("date", pa.array([date(2024, 2, 29)], pa.date64()), date(2024, 2, 29)),
    ("smallint", pa.array([True]), 1),
]
_DOCUMENT = pa.array(['{"b": 1, "a": 2}'])
_NESTED = pa.array([[("k", MOMENT)]], pa.map_(pa.string(), pa.timestamp("us", "UTC")))
# The text as it was sent, and as MySQL spells it.
MARIADB_EXISTING = [
    *_BOTH_EXISTING,
    ("json", _DOCUMENT, '{"b": 1, "a": 2}'),
    ("json", _NESTED, '{"k":"2024-02-29 23:59:59.123456Z"}'),
]
MYSQL_EXISTING = [
    *_BOTH_EXISTING,
    ("json", _DOCUMENT, '{"a": 2, "b": 1}'),
    ("json", _NESTED, '{"k": "2024-02-29 23:59:59.123456Z"}'),
]

MYSQL_REFUSED: list[tuple[str, pa.Array, str]] = [
    ("int", pa.array([1], pa.int64()), "make it bigint"),
    ("bigint", pa.array([1], pa.uint64()), "make it bigint unsigned"),
    ("bigint unsigned", pa.array([1], pa.int8()), "make it tinyint"),
    ("bigint", pa.array([1.5]), "make it double"),
    ("float", pa.array([1.5]), "make it double"),
    ("double(5,2)", pa.array([1.5]), "make it double"),
    ("float", pa.array([1], pa.int32()), "make it int"),
    ("decimal(5,2)", pa.array([Decimal("1.234")]), r"make it decimal\(4,3\)"),
    ("timestamp(6)", pa.array([1], pa.timestamp("us")), r"make it datetime\(6\)"),
    ("datetime(3)", pa.array([MOMENT]), r"make it datetime\(6\)"),
    ("datetime", pa.array([1], pa.timestamp("ms")), r"make it datetime\(6\)"),
    ("time", pa.array([1], pa.time64("us")), r"make it time\(6\)"),
    ("binary(3)", pa.array([b"x"]), "make it longblob"),
    ("text", pa.array([1]), "make it bigint"),
    ("text CHARACTER SET latin1", pa.array(["x"]), "make it longtext CHARACTER SET utf8mb4"),
    ("text CHARACTER SET utf8mb3", pa.array(["x"]), "make it longtext CHARACTER SET utf8mb4"),
    # Where '1' would be the first of them.
    ("enum('2','1')", pa.array(["1"]), "make it longtext"),
    ("set('a')", pa.array(["a"]), "make it longtext"),
    ("bit(1)", pa.array([True]), r"make it tinyint\(1\)"),
    ("year", pa.array([2024], pa.int16()), "make it smallint"),
]
MARIADB_REFUSED = [*MYSQL_REFUSED, ("inet6", pa.array(["::1"]), "make it longtext")]

_BOTH_BAD: list[tuple[str, pa.Array, str]] = [
    ("varchar(2)", pa.array(["ab", "abc"]), "at most 2 characters"),
    ("varchar(2)", pa.array(["ab", "ab "]), "at most 2 characters"),
    ("char(2)", pa.array(["ab", "a "]), "end with a space"),
    ("tinytext", pa.array(["", "é" * 128]), "at most 255 bytes"),
    ("tinyblob", pa.array([b"", b"x" * 256]), "at most 255 bytes"),
    ("double", pa.array([1.5, float("nan")]), "NaN or infinite"),
    ("double", pa.array([1.5, float("-inf")]), "NaN or infinite"),
    ("timestamp(6)", pa.array([10**6, 2**31 * 10**6], pa.timestamp("us", "UTC")), "out of the"),
    ("timestamp(6)", pa.array([10**6, 0], pa.timestamp("us", "UTC")), "out of the range"),
    ("datetime(6)", pa.array([0, 1], pa.timestamp("ns")), "no whole microseconds"),
    ("datetime(6)", pa.array([0, 2**60], pa.timestamp("us")), "out of the range"),
    ("date", pa.array([0, -800_000], pa.date32()), "out of the range"),
    # The server would take the null for "now" and for "the next number", without a word.
    ("timestamp NOT NULL", pa.array([10, None], pa.timestamp("s", "UTC")), "are null"),
    ("int NOT NULL AUTO_INCREMENT, KEY (x)", pa.array([10, None], pa.int32()), "are null"),
    ("varchar(2) NOT NULL", pa.array(["", None]), "are null"),
]
_NO_DOCUMENT = ("json", pa.array(["{}", "{nonsense"]))
_TOO_LARGE = ("int CHECK (x < 5)", pa.array([1, 5], pa.int32()))
MARIADB_BAD = [
    *_BOTH_BAD,
    (*_NO_DOCUMENT, "CONSTRAINT `t.x` failed"),
    (*_TOO_LARGE, "CONSTRAINT `t.x` failed"),
]
# Of these two it does not say in which row they are.
MYSQL_BAD = _BOTH_BAD
MYSQL_BAD_SOMEWHERE = [
    (*_NO_DOCUMENT, "Invalid JSON text"),
    (*_TOO_LARGE, "Check constraint 't_chk_1' is violated"),
]
