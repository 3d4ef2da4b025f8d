"""Records of JSON by chance, from a grammar: right ones, and some that are wrong in many ways.

Every draw comes from one ``random.Random``, so a seed is always the same records.
"""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

KINDS: Final[tuple[pa.DataType, ...]] = (
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(5, 5),
    pa.decimal128(10, 2),
    pa.decimal128(18, 0),
    pa.decimal128(18, 18),
    pa.decimal128(38, 0),
    pa.decimal128(38, 18),
    pa.decimal128(38, 38),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", tz="UTC"),
    pa.timestamp("us"),
    pa.list_(pa.field("element", pa.float64())),
    pa.list_(pa.field("element", pa.list_(pa.field("element", pa.string())))),
    pa.list_(pa.field("element", pa.decimal128(20, 2))),
    pa.struct([("a", pa.int32()), ("b", pa.float32()), ("c", pa.timestamp("us", tz="UTC"))]),
    pa.struct([("a", pa.list_(pa.field("element", pa.struct([("b", pa.float64())]))))]),
    pa.map_(pa.string(), pa.float32()),
    pa.map_(pa.int16(), pa.string()),
    pa.map_(pa.date32(), pa.list_(pa.field("element", pa.decimal128(12, 3)))),
)

# Numbers at which a type ends, or half way between two neighbours; each may get digits behind it.
_WHOLE_EDGES: Final = tuple(
    str(edge + step)
    for bits in (7, 8, 15, 16, 24, 31, 32, 53, 63, 64, 127)
    for edge in (2**bits, -(2**bits))
    for step in (-1, 0, 1)
)
_FLOAT_EDGES: Final = (
    *("1.7976931348623157e308", "1.7976931348623158e308", "1.7976931348623159e308", "1.8e308"),
    *(str(2**1024 - 2**970), str(2**1024 - 2**970 - 1), str(2**128 - 2**103), "16777217"),
    *(str(2**128 - 2**103 - 1), "340282356779733661637539395458142568447.9999", "3.5e38"),
    *("3.4028234663852886e38", "3.4028235677973366e38", "2.2250738585072011e-308", "5e-324"),
    *("2.4703282292062327e-324", "2.47032822920623272e-324", "1.1754943508222875e-38", "1e-45"),
    *("7.006492321624085e-46", "7.006492321624086e-46", "9007199254740993", "0.1", "-0.0", "0e400"),
    *("0." + "0" * 330 + "1e331", "1" + "0" * 310 + "e-310", "0." + "0" * 400 + "1e400"),
)
_LITERALS: Final = (
    *("NaN", "-NaN", "Infinity", "-Infinity", "Inf", "-Inf", "+Infinity", "Infi", "Infinit", "nan"),
    *("inf", "true", "false", "null", "True", "nul", "nulll", "undefined", "-", "", "0x1F", "1_0"),
)
_PIECES: Final = (
    *(b"a", b"key", b"12", b"1e5", b"e-99", b" ", b"/", b"'", b"{", b"]", b",", b":", b"\x7f"),
    *(
        rb"\n",
        rb"\"",
        rb"\\",
        rb"\/",
        rb"\t",
        rb"\b",
        rb"\u0041",
        rb"\u0031",
        rb"\u0065",
        rb"\u002d",
    ),
    *(
        rb"\u0000",
        rb"\u2028",
        rb"\ud83d\ude00",
        rb"\uD83D\uDE00",
        rb"\u00e4",
        rb"\uffff",
        rb"\ufeff",
    ),
    *(
        "ä".encode(),
        "水".encode(),
        "😀".encode(),
        "\u2028".encode(),
        "\ufeff".encode(),
        b"NaN",
        b"Inf",
    ),
)
_WRONG_PIECES: Final = (
    *(rb"\ud800", rb"\udc00", rb"\ud83dx", rb"\udc00\ud800", rb"\ud800\u0041", rb"\x41", rb"\u12"),
    *(rb"\u+041", rb"\U0041", rb"\a", b"\\", b'"', b"\t", b"\x00", b"\x01", b"\x1f", b"\x80"),
    *(b"\xff", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"),
    *(b"\xf0\x80\x80\x80", b"\xe6\xb0", b"\xf8\x88\x80\x80\x80", b"\xef\xbf"),
)
_SPACES: Final = (b"", b"", b"", b"", b" ", b"\t", b"\r", b"  ")
_WRONG_SPACES: Final = (
    b"\x0b",
    b"\x0c",
    b"\xc2\xa0",
    b"\x00",
    b"\xef\xbb\xbf",
    b"//",
    b"/**/",
    b",",
)
_BYTES: Final = tuple(b"%c" % each for each in b'0123456789eE+-.,:"\\/{}[] \t\x00nutf_a\x80\xe2')
_DIGIT: Final = re.compile(rb"\d")
_ODD: Final = (
    b"99",
    b"10",
    b"00",
    b".5",
    b"5.0",
    b"1e2",
    b"1e-3",
    b"3E+30",
    b"2e-30",
    b"9e307",
    b"e",
)
_MOMENTS: Final = (
    "2026-01-01",
    "1969-12-31",
    "2024-02-29",
    "1900-02-28",
    "9999-12-31",
    "0001-01-01",
)
_WRONG_MOMENTS: Final = (
    "2026-02-29",
    "2026-13-01",
    "10000-01-01",
    "2026-1-1",
    "20260101",
    "0000-01-01",
)


@dataclass(slots=True)
class Grammar:
    """Draws records.

    Attributes:
        oddity: How often something is drawn that is wrong, or rare; of 1.
        newline: White space that only a message may have within it.
    """

    chance: random.Random
    oddity: float
    newline: bytes = b""

    def record(self, columns: dict[str, pa.DataType]) -> bytes:
        """A record with values for columns, mostly for each, and for others."""
        members = [(_quoted(name), self.value(kind)) for name, kind in columns.items()]
        if self.odd():
            members = self._other_members(members, columns)
        space = self._space if self.odd() else bytes
        parts = [
            space() + name + space() + b":" + space() + value + space() for name, value in members
        ]
        record = space() + b"{" + b",".join(parts) + space() + b"}" + space()
        return self._damaged(record) if self.odd(0.5) else record

    def near(self, record: bytes) -> bytes:
        """A record with one byte more, less, or another; a digit mostly stays one."""
        chance = self.chance
        numbers = [found.start() for found in _DIGIT.finditer(record)]
        if chance.random() < 0.9:
            place = chance.choice(numbers or [0])
            spelt = b"%d" % chance.randrange(10) if chance.random() < 0.8 else chance.choice(_ODD)
            return record[:place] + spelt + record[place + 1 :] if numbers else record + b" "
        place = chance.randrange(len(record) + 1)
        match chance.randrange(4):
            case 0:
                return record[:place] + record[place + 1 :]
            case 1:
                return record[:place] + chance.choice(_BYTES) + record[place:]
            case 2:
                return record[:place] + chance.choice(_BYTES) + record[place + 1 :]
            case _:
                more = record[place : place + 1] * chance.choice((2, 3, 20))
                return record[:place] + more + record[place:]

    def value(self, kind: pa.DataType, depth: int = 0) -> bytes:
        """A value for a column, or of another type."""
        if self.odd(0.3):
            kind = self.chance.choice(KINDS)
        if self.odd(0.4):
            return self.chance.choice(_LITERALS).encode()
        if self.odd(0.3) or depth > 4:
            return b"null"
        return self._of(kind)(kind, depth)

    def odd(self, part: float = 1.0) -> bool:
        """Whether something odd is to be drawn."""
        return self.chance.random() < self.oddity * part

    def _of(self, kind: pa.DataType) -> Callable[[pa.DataType, int], bytes]:
        types = pa.types
        if types.is_boolean(kind):
            return lambda _kind, _depth: self.chance.choice((b"true", b"false"))
        if types.is_integer(kind):
            return lambda kind, _depth: self._whole(kind)
        if types.is_floating(kind):
            return lambda _kind, _depth: self.number().encode()
        if types.is_decimal(kind):
            return self._decimal
        if types.is_date(kind) or types.is_timestamp(kind):
            return lambda kind, _depth: _quoted(self.moment(types.is_timestamp(kind)))
        if types.is_binary(kind):
            return self._binary
        if types.is_map(kind):
            return self._map
        if types.is_list(kind):
            return self._list
        if types.is_struct(kind):
            return self._struct
        return lambda _kind, _depth: self.text()

    def number(self) -> str:
        """A number for a column of DOUBLE, as JSON has them or nearly."""
        chance = self.chance
        if not self.odd():
            return repr(
                chance.choice((chance.random(), chance.gauss(0, 1e9), chance.randrange(99)))
            )
        if chance.random() < 0.25:
            return self._beside(chance.choice(_FLOAT_EDGES + _WHOLE_EDGES))
        sign = chance.choice(("", "", "", "-", "-", "+", "--")) if self.odd() else ""
        fraction = f".{self._digits()}" if chance.random() < 0.5 else ""
        return f"{sign}{self._digits() or '0'}{fraction}{self._exponent()}"

    def moment(self, has_time: bool) -> str:
        """A date, or a moment, in ISO 8601 or nearly."""
        chance = self.chance
        text = chance.choice(_WRONG_MOMENTS if self.odd() else _MOMENTS)
        if not has_time and not self.odd():
            return text
        text += chance.choice("T ") if not self.odd(0.3) else chance.choice(("t", "", "  ", "_"))
        hour, minute, second = chance.randrange(24), chance.randrange(60), chance.randrange(60)
        if self.odd(0.5):
            hour, second = chance.choice((24, 23, 99)), chance.choice((59, 60, 61))
        text += f"{hour:02}:{minute:02}:{second:02}"
        if self.odd():
            text = text[: -chance.choice((1, 3, 6))]
        if chance.random() < 0.5:
            text += (
                f".{self._digits()[:12] if self.odd() else str(chance.randrange(10**6)).zfill(6)}"
            )
        zones = ("", "Z", "+00:00", "-11:45", "+05:30")
        odd_zones = ("z", "+0530", "+05", "-24:00", "+99:99", " Z", "UTC", "+5:30")
        text += chance.choice(odd_zones if self.odd() else zones)
        return f" {text}" if self.odd(0.1) else text

    def text(self) -> bytes:
        """A string between its quotes."""
        if not self.odd():
            return _quoted(str(self.chance.random()))
        pieces = self.chance.choices(_PIECES, k=self.chance.choice((0, 1, 2, 3, 9)))
        if self.odd(0.3):
            pieces.insert(self.chance.randrange(len(pieces) + 1), self.chance.choice(_WRONG_PIECES))
        return b'"' + b"".join(pieces) + b'"'

    def anything(self, depth: int = 0) -> bytes:
        """A value of JSON for a field that is not declared."""
        chance = self.chance
        match chance.randrange(8 if depth < 4 else 5):
            case 0:
                return self.number().encode()
            case 1:
                return self.text()
            case 2:
                return chance.choice(_LITERALS).encode()
            case 3:
                return f"{self._digits() or '0'}{self._exponent()}".encode()
            case 4:
                return chance.choice(
                    (b"[]", b"{}", b"null", b"[1,]", b'{"a":1,}', b"[1 2]", b"[,]")
                )
            case 5:
                return b"[" + b",".join(self.anything(depth + 1) for _ in range(2)) + b"]"
            case 6:
                inner = [self.text() + b":" + self.anything(depth + 1) for _ in range(2)]
                return b"{" + b",".join(inner) + b"}"
            case _:
                deep = chance.choice((1, 60, 64, 66, 254, 255, 256, 300))
                return b"[" * deep + b"]" * (deep - self.odd(0.2))

    def _whole(self, kind: pa.DataType) -> bytes:
        chance = self.chance
        if not self.odd():
            return b"%d" % chance.randrange(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1))
        if chance.random() < 0.7:
            return self._beside(chance.choice(_WHOLE_EDGES)).encode()
        return self.number().encode()

    def _decimal(self, kind: pa.DataType, _depth: int) -> bytes:
        chance = self.chance
        if not self.odd():
            digits = str(chance.randrange(10 ** chance.randint(1, kind.precision)))
            digits = digits.zfill(kind.scale + 1)
            whole, fraction = digits[: len(digits) - kind.scale], digits[len(digits) - kind.scale :]
            spelt = whole + (f".{fraction}" if fraction else "")
        else:
            spelt = self.number()
            if self.odd(0.3):
                spelt = chance.choice((" {}", "{} ", "+{}", ".{}", "{}.", "\t{}", "{}e-2")).format(
                    spelt
                )
        if chance.random() < 0.3:
            quoted = _quoted(spelt)
            return quoted.replace(b"e", rb"\u0065") if self.odd(0.3) else quoted
        return spelt.encode()

    def _binary(self, _kind: pa.DataType, _depth: int) -> bytes:
        encoded = base64.b64encode(self.chance.randbytes(self.chance.randrange(9))).decode()
        if self.odd():
            encoded = self.chance.choice(("{}=", "{}\n", " {}", "{}!", "-_{}", "{}A")).format(
                encoded
            )
        return _quoted(encoded)

    def _list(self, kind: pa.DataType, depth: int) -> bytes:
        count = self.chance.randrange(4)
        return b"[" + b",".join(self.value(kind.value_type, depth + 1) for _ in range(count)) + b"]"

    def _struct(self, kind: pa.DataType, depth: int) -> bytes:
        members = [(_quoted(each.name), self.value(each.type, depth + 1)) for each in kind]
        if self.odd():
            members = self._other_members(members, {each.name: each.type for each in kind})
        return b"{" + b",".join(name + b":" + value for name, value in members) + b"}"

    def _map(self, kind: pa.DataType, depth: int) -> bytes:
        members: list[bytes] = []
        for place in range(self.chance.randrange(4)):
            name = _quoted(f"k{place}")
            if pa.types.is_integer(kind.key_type):
                name = b'"%d"' % self.chance.randrange(-(2**15), 2**15)
            elif pa.types.is_date(kind.key_type):
                name = _quoted(self.moment(False))
            if self.odd(0.3):
                name = self.chance.choice((self.text(), b'"k0"', b'"\\u006b0"'))
            members.append(name + b":" + self.value(kind.item_type, depth + 1))
        return b"{" + b",".join(members) + b"}"

    def _other_members(
        self, members: list[tuple[bytes, bytes]], columns: dict[str, pa.DataType]
    ) -> list[tuple[bytes, bytes]]:
        """Some left out, some twice, some of names that are spelt otherwise, some not declared."""
        chance = self.chance
        members = [each for each in members if chance.random() < 0.8]
        for _ in range(chance.randrange(3)):
            name, kind = chance.choice(list(columns.items()))
            members.append(
                chance.choice(
                    (
                        (b'"other"', self.anything()),
                        (self.text(), self.anything()),
                        (_quoted(name), self.value(kind)),
                        (b'"\\u%04x%s"' % (ord(name[0]), name[1:].encode()), self.value(kind)),
                        (_quoted(name.upper()), self.value(kind)),
                        (_quoted(name), b"null"),
                    )
                )
            )
        chance.shuffle(members)
        return members

    def _damaged(self, record: bytes) -> bytes:
        chance = self.chance
        place = chance.randrange(len(record) + 1)
        match chance.randrange(12):
            case 0:
                return record[:place]
            case 1:
                return record[:place] + bytes([chance.randrange(256)]) + record[place + 1 :]
            case 2:
                return record[:place] + record[place + 1 :]
            case 3:
                return record[:place] + chance.choice(_WRONG_PIECES) + record[place:]
            case 4:
                return record[:place] + chance.choice(_WRONG_SPACES) + record[place:]
            case 5:
                return record + chance.choice(
                    (b"}", b"x", b",", b"{}", b" {}", record, b"\x00", b"]")
                )
            case 6:
                return chance.choice((b"\xef\xbb\xbf", b"[", b"x", b",", b"\x00")) + record
            case 7:
                return record.replace(b'"', b"'")
            case 8:
                return record.replace(b":", chance.choice((b"", b"::", b"=", b",")), 1)
            case 9:
                return record[:-1] + b',"long":"' + b"x" * chance.choice((10, 600, 5000)) + b'"}'
            case 10:
                return chance.choice((b"", b"null", b"{}", b"[]", b"{", b"}", b"7", b'""', b"{}{}"))
            case _:
                return record[:-1] + b"," + record[1:]

    def _space(self) -> bytes:
        if self.newline and self.chance.random() < 0.3:
            return self.newline
        return self.chance.choice(_SPACES)

    def _beside(self, number: str) -> str:
        """The number itself, or with a few digits more or less."""
        chance = self.chance
        match chance.randrange(6):
            case 0:
                return number + str(chance.randrange(100))
            case 1:
                return number[:-1] or "0"
            case 2:
                return number if "e" in number or "." in number else f"{number}.{self._digits()}"
            case 3:
                return f"-{number}"
            case _:
                return number

    def _digits(self) -> str:
        chance = self.chance
        match chance.randrange(10):
            case 0:
                return ""
            case 1:
                return "0" * chance.choice((1, 2, 30, 320)) + str(chance.randrange(1000))
            case 2:
                return str(chance.randrange(1, 10)) + "0" * chance.choice(
                    (1, 20, 37, 38, 39, 308, 309)
                )
            case 3:
                return "9" * chance.choice((15, 17, 18, 19, 20, 38, 39, 76, 77, 309))
            case 4:
                return str(chance.getrandbits(chance.choice((64, 128, 1030))))
            case _:
                return str(chance.randrange(10 ** chance.randint(1, 19)))

    def _exponent(self) -> str:
        chance = self.chance
        if chance.random() < 0.5:
            return ""
        sign = chance.choice(("", "+", "-", "-"))
        sizes = (
            chance.randrange(20),
            chance.randrange(420),
            38,
            39,
            308,
            309,
            323,
            324,
            10**9,
            10**25,
        )
        size = "" if self.odd(0.2) else str(chance.choice(sizes))
        return chance.choice("eE") + sign + ("00" + size if chance.random() < 0.1 else size)


def _quoted(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False).encode()
