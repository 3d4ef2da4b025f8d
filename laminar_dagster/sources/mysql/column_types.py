"""The types of a table's columns, in the form that the log and the catalogue share.

| family | MySQL |
|---|---|
| integer | tinyint, smallint, mediumint, int, bigint; year |
| float, double, decimal, bit | the same |
| text | char, varchar, and the texts; ``charset`` says how their bytes are read |
| bytes | binary, varbinary, and the blobs; ``fixed`` is the length of a binary |
| enum, set | the same, with their labels |
| date, time, datetime, timestamp | the same, with the digits of a second |
| json | MySQL's; MariaDB's is a text |
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final, Literal

Family = Literal[
    "integer",
    "float",
    "double",
    "decimal",
    "bit",
    "text",
    "bytes",
    "enum",
    "set",
    "date",
    "time",
    "datetime",
    "timestamp",
    "json",
]
YEAR: Final = 1


@dataclass(frozen=True, slots=True)
class MysqlType:
    """The type of a column.

    Attributes:
        bits: The size of an integer or a bit field; ``YEAR`` for a year.
        is_unsigned: Whether an integer has no sign.
        precision: The digits of a decimal.
        scale: How many of them are after the decimal point.
        fraction: The digits of a second's fraction.
        charset: The character set of a text.
        fixed: The size of every value in bytes; 0 where sizes differ.
        labels: The labels of an enum or a set, in order.
    """

    family: Family
    bits: int = 0
    is_unsigned: bool = False
    precision: int = 0
    scale: int = 0
    fraction: int = 0
    charset: str = ""
    fixed: int = 0
    labels: tuple[str, ...] = ()

    def to_text(self) -> str:
        """The form that plans store: JSON without default values."""
        usual = asdict(MysqlType(self.family))
        told = {name: value for name, value in asdict(self).items() if value != usual[name]}
        return json.dumps({"family": self.family, **told}, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> MysqlType:
        """Parse the form of ``to_text``."""
        found = json.loads(text)
        return cls(**{**found, "labels": tuple(found.get("labels", ()))})

    def __str__(self) -> str:
        """A readable form, for errors."""
        match self.family:
            case "integer" if self.bits == YEAR:
                return "year"
            case "integer":
                return f"integer of {self.bits} bits" + (" unsigned" if self.is_unsigned else "")
            case "decimal":
                return f"decimal({self.precision},{self.scale})"
            case "bit":
                return f"bit({self.bits})"
            case "text":
                return f"text in {self.charset}"
            case "bytes" if self.fixed:
                return f"binary({self.fixed})"
            case "time" | "datetime" | "timestamp":
                return f"{self.family}({self.fraction})"
            case "enum" | "set":
                return f"{self.family} of {len(self.labels)} labels"
            case _:
                return self.family

    def holds(self, older: MysqlType) -> bool:
        """Whether every value of an older type is the same value in this one.

        When a column changes its type, the server converts the rows without logging changes. Where
        this is true, no row's value changed, so retractions of earlier rows still match.
        """
        if self.family != older.family:
            return False
        match self.family:
            case "integer":
                if YEAR in (self.bits, older.bits):
                    return self.bits == older.bits
                if self.is_unsigned == older.is_unsigned:
                    return self.bits >= older.bits
                return older.is_unsigned and self.bits > older.bits
            case "decimal":
                before = self.precision - self.scale >= older.precision - older.scale
                return before and self.scale >= older.scale
            case "bit":
                return self.bits >= older.bits
            case "bytes":
                return self.fixed == older.fixed
            case "enum" | "set":
                return self.labels[: len(older.labels)] == older.labels
            case "time" | "datetime" | "timestamp":
                return self.fraction >= older.fraction
            case _:
                return True
