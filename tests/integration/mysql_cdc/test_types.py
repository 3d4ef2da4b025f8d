"""Values of every type: those of the log are those that a SELECT shows, and those that were put."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from laminar_dagster.core.errors import InvalidConfig
from tests.integration.mysql_cdc.conftest import ShopFactory

# The column's type, the declared one, a literal of SQL and what has to come out.
VALUES: list[tuple[str, pa.DataType, str, Any]] = [
    ("TINYINT", pa.int8(), "-128", -128),
    ("TINYINT UNSIGNED", pa.int16(), "255", 255),
    ("BOOLEAN", pa.bool_(), "TRUE", True),
    ("SMALLINT", pa.int16(), "-32768", -32768),
    ("MEDIUMINT", pa.int32(), "-8388608", -8388608),
    ("MEDIUMINT UNSIGNED", pa.int32(), "16777215", 16777215),
    ("INT UNSIGNED", pa.int64(), "4294967295", 4294967295),
    ("BIGINT", pa.int64(), "-9223372036854775808", -(2**63)),
    ("BIGINT UNSIGNED", pa.decimal128(20, 0), "18446744073709551615", Decimal(2**64 - 1)),
    ("YEAR", pa.int32(), "2155", 2155),
    ("FLOAT", pa.float32(), "16777217.0", 16777216.0),
    ("FLOAT", pa.float64(), "0.1", 0.10000000149011612),
    ("DOUBLE", pa.float64(), "0.1", 0.1),
    ("DECIMAL(10, 2)", pa.decimal128(12, 2), "-12345678.90", Decimal("-12345678.90")),
    ("DECIMAL(38, 10)", pa.decimal128(38, 10), "-1234567890123456789012345678.0000000001", None),
    ("DECIMAL(9, 9)", pa.decimal128(9, 9), "0.000000001", Decimal("0.000000001")),
    ("DECIMAL(30, 0)", pa.decimal128(30, 0), "999999999999999999999999999999", None),
    ("BIT(1)", pa.bool_(), "b'1'", True),
    ("BIT(12)", pa.int64(), "b'100000000001'", 2049),
    ("BIT(12)", pa.binary(), "b'100000000001'", b"\x08\x01"),
    ("CHAR(10)", pa.string(), "'añb '", "añb"),
    ("VARCHAR(300)", pa.string(), "REPEAT('é', 200)", "é" * 200),
    ("VARCHAR(20) CHARACTER SET latin1", pa.string(), "'naïve €'", "naïve €"),
    ("VARCHAR(20) CHARACTER SET cp1251", pa.string(), "'привет'", "привет"),
    ("VARCHAR(20) CHARACTER SET utf16", pa.string(), "'日本\U0001f600'", "日本\U0001f600"),
    ("TEXT CHARACTER SET sjis", pa.string(), "'日本'", "日本"),
    ("LONGTEXT", pa.string(), "REPEAT('x', 70000)", "x" * 70000),
    ("BINARY(4)", pa.binary(), "x'0100'", b"\x01\0\0\0"),
    ("VARBINARY(300)", pa.binary(), "x'00ff00'", b"\0\xff\0"),
    ("MEDIUMBLOB", pa.binary(), "x'00'", b"\0"),
    ("ENUM('a', 'b''c', 'ü')", pa.string(), "'b''c'", "b'c"),
    ("SET('x', 'y', 'z')", pa.string(), "'z,x'", "x,z"),
    ("DATE", pa.date32(), "'1000-02-28'", date(1000, 2, 28)),
    ("DATE", pa.date32(), "'2024-02-29'", date(2024, 2, 29)),
    (
        "DATETIME",
        pa.timestamp("us", "UTC"),
        "'9999-12-31 23:59:59'",
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    ),
    ("DATETIME(3)", pa.timestamp("us"), "'1969-12-31 23:59:59.125'", None),
    ("DATETIME(6)", pa.timestamp("us", "UTC"), "'2024-05-06 07:08:09.000001'", None),
    (
        "TIMESTAMP(6) NULL",
        pa.timestamp("us", "UTC"),
        "'2038-01-19 03:14:07.999999'",
        datetime(2038, 1, 19, 3, 14, 7, 999999, UTC),
    ),
    ("TIME", pa.int64(), "'-838:59:59'", -(838 * 3600 + 59 * 60 + 59) * 1_000_000),
    ("TIME(6)", pa.int64(), "'-00:00:00.000001'", -1),
    ("TIME(3)", pa.int64(), "'12:34:56.789'", 45_296_789_000),
    ("JSON", pa.string(), """'{"a": [1, "é"]}'""", '{"a": [1, "é"]}'),
]


def test_the_log_gives_what_a_select_shows(shop_with: ShopFactory) -> None:
    columns = ", ".join(f"c{at} {kind}" for at, (kind, *_) in enumerate(VALUES))
    fields = [pa.field(f"c{at}", kind) for at, (_, kind, *_) in enumerate(VALUES)]
    schema = pa.schema([pa.field("id", pa.int64()), *fields, pa.field("_weight", pa.int8())])
    shop = shop_with(f"id BIGINT PRIMARY KEY, {columns}", schema=schema)
    assert shop.epoch() == []
    literals = ", ".join(literal for _, _, literal, _ in VALUES)
    shop.run("SET time_zone = '+00:00'", "SET NAMES utf8mb4")
    shop.run(f"INSERT INTO orders VALUES (1, {literals})", "INSERT INTO orders (id) VALUES (2)")
    logged = shop.epoch()
    for at, (kind, _, _, wanted) in enumerate(VALUES):
        if wanted is not None:
            assert logged[0][f"c{at}"] == wanted, kind
    assert set(logged[1].values()) == {2, None, 1}
    # Another pipeline begins with a copy, in which the server spells the values.
    copied = type(shop)(shop.endpoint, shop.database, schema)
    assert copied.epoch() == logged
    copied.close()


def test_dates_that_are_none_are_null(shop_with: ShopFactory) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("d", pa.date32()),
            pa.field("t", pa.timestamp("us")),
            pa.field("s", pa.timestamp("us", "UTC")),
            pa.field("_weight", pa.int8()),
        ]
    )
    shop = shop_with("id INT PRIMARY KEY, d DATE, t DATETIME, s TIMESTAMP NULL", schema=schema)
    shop.plan()
    shop.run("SET sql_mode = ''", "INSERT INTO orders VALUES (1, 0, 0, 0)")
    nothing = {"id": 1, "d": None, "t": None, "s": None, "_weight": 1}
    assert shop.epoch() == [nothing]
    copied = type(shop)(shop.endpoint, shop.database, schema)
    assert copied.epoch() == [nothing]
    copied.close()


@pytest.mark.parametrize(
    ("column", "declared", "problem"),
    [
        ("v GEOMETRY", pa.binary(), "geometry"),
        ("v UUID", pa.binary(), "uuid"),
        ("v VECTOR(3)", pa.binary(), "vector"),
        ("v INT", pa.string(), "integer of 32 bits"),
        ("v DOUBLE", pa.float32(), "double"),
        ("v DECIMAL(65, 0)", pa.decimal128(38, 0), "38 digits"),
        ("w INT", pa.int64(), "does not have it"),
    ],
)
def test_a_column_that_cannot_be_read_is_refused_before_anything_is_copied(
    shop_with: ShopFactory, column: str, declared: pa.DataType, problem: str
) -> None:
    fields = [pa.field("id", pa.int64()), pa.field("v", declared), pa.field("_weight", pa.int8())]
    try:
        shop = shop_with(f"id INT PRIMARY KEY, {column}", schema=pa.schema(fields))
    except pymysql.Error as error:
        # One has UUID, the other VECTOR.
        assert problem in ("uuid", "vector") and error.args[0] in (1064, 4161)
        return
    with pytest.raises(InvalidConfig, match=problem):
        shop.plan()
    assert shop.keeper.newest() is None
    assert problem in shop.source().health(()).message


def test_values_that_do_not_fit_are_bad_records(shop_with: ShopFactory) -> None:
    fields = [
        pa.field("id", pa.int8()),
        pa.field("v", pa.int8(), nullable=False),
        pa.field("_weight", pa.int8()),
    ]
    shop = shop_with("id INT PRIMARY KEY, v INT", schema=pa.schema(fields))
    shop.plan()
    shop.run("INSERT INTO orders VALUES (1, 1), (2, 300), (3, NULL), (4, 4)")
    shop.run("UPDATE orders SET v = 5 WHERE id = 1", "UPDATE orders SET v = 900 WHERE id = 4")
    plan = shop.plan()
    (chunk,) = shop.source().reader().read(plan.ranges[0])
    assert chunk.rows.to_pylist() == [
        {"id": 1, "v": 1, "_weight": 1},
        {"id": 4, "v": 4, "_weight": 1},
        {"id": 1, "v": 1, "_weight": -1},
        {"id": 1, "v": 5, "_weight": 1},
    ]
    reasons = chunk.bad.column("reason").to_pylist()
    assert len(reasons) == 3
    assert "does not fit" in reasons[0]
    assert "must not be null" in reasons[1]
    assert "does not fit" in reasons[2]
    assert (chunk.records, chunk.added) == (6, 1)


DOCUMENTS = [
    "null",
    "true",
    "-1",
    "65536",
    "-2147483649",
    "18446744073709551615",
    "1.5",
    '"é\\u0001\\\\"',
    "[]",
    "{}",
    '[1, [2, {"b": null, "a": [true, false]}], "x", -32769, 3000000000]',
    '{"long": "' + "y" * 70_000 + '"}',
    "[" + ", ".join(["12345"] * 30_000) + "]",
]


def test_documents_are_spelled_as_a_select_does(shop_with: ShopFactory) -> None:
    """In the log of MySQL they are in a binary form, small ones and large ones."""
    schema = pa.schema(
        [pa.field("id", pa.int64()), pa.field("j", pa.string()), pa.field("_weight", pa.int8())]
    )
    shop = shop_with("id INT PRIMARY KEY, j JSON", schema=schema)
    shop.plan()
    shop.insert([*enumerate(DOCUMENTS)])
    logged = shop.epoch()
    assert [json.loads(row["j"]) for row in logged] == [json.loads(each) for each in DOCUMENTS]
    copied = type(shop)(shop.endpoint, shop.database, schema)
    assert copied.epoch() == logged
    copied.close()
