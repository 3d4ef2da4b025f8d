"""Values in the server's own formats, against the numbers that went in."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.sources.formats.binary.lanes import PADDING, Body
from laminar_dagster.sources.mysql import moments
from laminar_dagster.sources.mysql.charsets import decoded, is_known, utf8_column
from laminar_dagster.sources.mysql.column_types import MysqlType
from laminar_dagster.sources.mysql.gtids import (
    MariadbGtids,
    MysqlGtids,
    mariadb_gtid,
    mysql_gtid,
    mysql_tagged_gtid,
)
from laminar_dagster.sources.mysql.json_values import json_text
from laminar_dagster.sources.mysql.table_map import decimal_size
from laminar_dagster.sources.mysql.values import Unfit, reader_for, unpacked_decimals


def places(values: list[bytes]) -> tuple[Body, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    starts = np.cumsum([0, *(len(each) for each in values)])[:-1] + PADDING
    return Body(b"".join(values)), starts.astype(np.int64)


def packed(value: Decimal, precision: int, scale: int) -> bytes:
    """As the server packs a decimal: written from its description, digit by digit."""
    digits = f"{value.copy_abs():.{scale}f}".replace(".", "").rjust(precision, "0")[-precision:]
    whole, part = digits[: precision - scale], digits[precision - scale :]
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    groups = [whole[: len(whole) % 9], *_nines(whole[len(whole) % 9 :])]
    groups += [*_nines(part[: len(part) // 9 * 9]), part[len(part) // 9 * 9 :]]
    data = bytearray(b"".join(int(g).to_bytes(sizes[len(g)], "big") for g in groups if g))
    if value < 0:
        data = bytearray(byte ^ 0xFF for byte in data)
    data[0] ^= 0x80
    return bytes(data)


def _nines(digits: str) -> list[str]:
    return [digits[at : at + 9] for at in range(0, len(digits), 9)]


@given(st.data())
def test_decimals(data: st.DataObject) -> None:
    precision = data.draw(st.integers(1, 38))
    scale = data.draw(st.integers(0, min(30, precision)))
    largest = 10**precision - 1
    numbers = data.draw(st.lists(st.integers(-largest, largest), min_size=1, max_size=5))
    values = [Decimal(number).scaleb(-scale, Context(prec=60)) for number in numbers]
    raw = [packed(value, precision, scale) for value in values]
    assert {len(each) for each in raw} == {decimal_size(precision, scale)}
    assert unpacked_decimals(*places(raw), precision, scale).to_pylist() == values


@given(
    st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)),  # noqa: DTZ001
    st.sampled_from([0, 2, 4, 6]),
)
def test_datetimes(moment: datetime, fraction: int) -> None:
    moment = moment.replace(tzinfo=UTC)
    unit = 10 ** (6 - fraction)
    moment = moment.replace(microsecond=moment.microsecond // unit * unit)
    months = moment.year * 13 + moment.month
    clock = moment.hour << 12 | moment.minute << 6 | moment.second
    number = (1 << 39) + ((months << 5 | moment.day) << 17 | clock)
    raw = number.to_bytes(5, "big") + (moment.microsecond // unit).to_bytes(fraction // 2, "big")
    micros, is_none = moments.micros_of_datetime(*places([raw]), fraction)
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(micros[0])) == moment
    assert not is_none[0]
    day = moment.day | moment.month << 5 | moment.year << 9
    days, _ = moments.days_of(*places([day.to_bytes(3, "little")]))
    assert int(days[0]) == (moment - datetime(1970, 1, 1, tzinfo=UTC)).days


@given(
    st.integers(-838 * 3600 * 10**6, 838 * 3600 * 10**6),
    st.sampled_from([0, 2, 4, 6]),
)
def test_times(micros: int, fraction: int) -> None:
    unit = 10 ** (6 - fraction)
    micros = int(micros / unit) * unit
    seconds, part = divmod(abs(micros), 10**6)
    whole = seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60
    size = (whole << 4 * fraction) + part // unit
    number = (0x800000 << 4 * fraction) + (size if micros >= 0 else -size)
    raw = number.to_bytes(3 + fraction // 2, "big")
    assert moments.micros_of_time(*places([raw]), fraction).tolist() == [micros]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "null"),
        (b"\x04\x01", "true"),
        (b"\x05\xfe\xff", "-2"),
        (b"\x0a" + struct.pack("<Q", 2**64 - 1), str(2**64 - 1)),
        (b"\x0b" + struct.pack("<d", 1.5), "1.5"),
        (b"\x0b" + struct.pack("<d", 1e300), "1e300"),
        (b'\x0c\x03a"b', '"a\\"b"'),
        # {"a": 1, "b": [null, "x"]}, small, with its values behind the keys.
        (
            b"\x00\x02\x00\x20\x00\x12\x00\x01\x00\x13\x00\x01\x00\x05\x01\x00\x02\x14\x00ab"
            b"\x02\x00\x0c\x00\x04\x00\x00\x0c\x0a\x00\x01x",
            '{"a": 1, "b": [null, "x"]}',
        ),
    ],
)
def test_json(data: bytes, text: str) -> None:
    assert json_text(data) == text


@pytest.mark.parametrize("data", [b"\x00\x02\x00", b"\x0f\x0a\x01a", b"\x0c\x05a", b"\x63"])
def test_json_that_is_none(data: bytes) -> None:
    with pytest.raises(ValueError, match="JSON"):
        json_text(data)


@pytest.mark.parametrize("charset", ["latin1", "cp1251", "koi8r", "sjis", "gbk", "utf16", "ujis"])
def test_character_sets(charset: str) -> None:
    texts = ["", "plain", "naïve", "привет", "日本"]
    codec = {"latin1": "cp1252", "koi8r": "koi8_r", "sjis": "shift_jis", "utf16": "utf-16-be"}
    codec["ujis"] = "euc_jp"
    fitting = []
    for text in texts:
        try:
            text.encode(codec.get(charset, charset))
        except UnicodeEncodeError:
            continue
        fitting.append(text)
    assert len(fitting) >= 3
    raw = [text.encode(codec.get(charset, charset)) for text in fitting]
    column = utf8_column(pa.array(raw, pa.binary()), charset)
    column.validate(full=True)
    assert column.to_pylist() == fitting


def test_bytes_that_mean_nothing_in_latin1_are_kept() -> None:
    assert decoded(b"\x81\x80", "latin1") == "\x81€"
    assert not is_known("")
    assert not is_known("klingon")


def _decimal(precision: int, scale: int) -> MysqlType:
    return MysqlType("decimal", precision=precision, scale=scale)


@pytest.mark.parametrize(
    ("new", "old", "holds"),
    [
        (MysqlType("integer", bits=64), MysqlType("integer", bits=32), True),
        (MysqlType("integer", bits=32), MysqlType("integer", bits=64), False),
        (MysqlType("integer", bits=64), MysqlType("integer", bits=32, is_unsigned=True), True),
        (MysqlType("integer", bits=32), MysqlType("integer", bits=32, is_unsigned=True), False),
        (MysqlType("integer", bits=32, is_unsigned=True), MysqlType("integer", bits=8), False),
        (
            MysqlType("decimal", precision=12, scale=2),
            MysqlType("decimal", precision=10, scale=2),
            True,
        ),
        (
            MysqlType("decimal", precision=12, scale=4),
            MysqlType("decimal", precision=12, scale=2),
            False,
        ),
        (MysqlType("datetime", fraction=6), MysqlType("datetime"), True),
        (MysqlType("datetime"), MysqlType("datetime", fraction=3), False),
        (MysqlType("enum", labels=("a", "b")), MysqlType("enum", labels=("a",)), True),
        (MysqlType("enum", labels=("b", "a")), MysqlType("enum", labels=("a",)), False),
        (MysqlType("text", charset="utf8mb4"), MysqlType("text", charset="latin1"), True),
        (MysqlType("bytes"), MysqlType("text", charset="latin1"), False),
    ],
)
def test_a_wider_type_holds_a_narrower_one(new: MysqlType, old: MysqlType, holds: bool) -> None:
    assert new.holds(old) is holds
    assert MysqlType.from_text(new.to_text()) == new


def test_a_type_that_does_not_fit_says_so() -> None:
    with pytest.raises(Unfit, match="decimal\\(10,2\\), which cannot be declared as string"):
        reader_for("column `c`", pa.string(), MysqlType("decimal", precision=10, scale=2))


def test_ids_of_transactions() -> None:
    mariadb = MariadbGtids("0-1-5,2-1-7")
    mariadb.add("0-3-6")
    assert str(mariadb) == "0-3-6,2-1-7"
    assert mariadb_gtid(struct.pack("<QIB", 9, 4, 0), 77) == "4-77-9"
    server = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    mysql = MysqlGtids(f"{server}:1-3:5")
    for number in (6, 4, 9, 2):
        mysql.add(f"{server}:{number}")
    assert str(mysql) == f"{server}:1-6:9"
    body = b"\0" + bytes.fromhex(server.replace("-", "")) + struct.pack("<Q", 12)
    assert mysql_gtid(body) == f"{server}:12"


def test_ids_with_a_tag() -> None:
    server = "23c13aba-e329-11f1-88ab-02fc00000001"
    text = f"{server}:1-6:my_tag:1-3:other:1-2"
    ids = MysqlGtids(text)
    assert str(ids) == text
    # As MySQL 9.7 wrote it.
    body = bytes.fromhex(
        "02760000000246050374e9028d035222c5032102ad0204f1030000000204"
        "08060c6d795f74616708040a080c7f8ed90bb5886006"
    )
    assert mysql_tagged_gtid(body) == f"{server}:my_tag:2"
    ids.add(f"{server}:my_tag:4")
    ids.add(f"{server}:other:7")
    ids.add(f"{server}:7")
    assert str(ids) == f"{server}:1-7:my_tag:1-4:other:1-2:7"
