"""Decodes CSV as in RFC 4180: fields may be quoted, a quote within quotes is doubled.

With a header, columns are matched by name: others are ignored, missing ones are null. Without, the
columns have the declared order. An empty field is null, and a quoted empty field is an empty
text. Timestamps and dates are ISO 8601, binary is base64.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from laminar_dagster.sources.decoded import BadRecord
from laminar_dagster.sources.formats.columns import BadRows, Unfit, convert
from laminar_dagster.sources.formats.records import Outcome, Records, decode_records
from laminar_dagster.sources.formats.text import BYTE_ORDER_MARK, not_utf8

QUOTE: Final = ord('"')
_LINE_ENDS: Final = (ord("\n"), ord("\r"))


@dataclass
class CsvDecoder:
    """Decodes lines of CSV into the declared columns.

    Attributes:
        header: The first record of the file, or None where files have no header.
        header_end: Where it ends in the file.
    """

    schema: pa.Schema
    delimiter: str
    null: str
    header: bytes | None = None
    header_end: int = 0
    _problem: str = field(init=False, default="")
    _width: int = field(init=False)
    _places: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        """Find the declared columns in the header."""
        names = list(self.schema.names)
        if self.header is not None:
            try:
                names = header_names(self.header, self.delimiter)
            except ValueError as error:
                self._problem = f"the file's header cannot be read: {error}"
        self._width = len(names)
        self._places = {name: names.index(name) for name in self.schema.names if name in names}
        twice = [name for name in self._places if names.count(name) > 1]
        if twice:
            self._problem = f"the file's header has column `{twice[0]}` twice"
        elif not self._places and not self._problem:
            self._problem = "the file's header has none of the declared columns"

    def decode(self, records: Records) -> Outcome:
        """Decode the records, which are lines; the header is skipped."""
        if len(records) and records.positions[0] < self.header_end:
            records = records.without(np.flatnonzero(records.positions < self.header_end))
        records, bad = self._screen(records)
        return decode_records(records, bad, self.schema, self._decode)

    def _decode(self, text: bytes | memoryview, count: int) -> tuple[pa.RecordBatch, BadRows]:
        # The parser drops a byte order mark at the start of its input: double it to keep one.
        if bytes(text[:3]) == BYTE_ORDER_MARK:
            text = BYTE_ORDER_MARK + bytes(text)
        # All columns as text: the parser's own conversion would not say which record is bad.
        wire = {str(place): pa.string() for place in self._places.values()}
        table = pyarrow.csv.read_csv(
            pa.BufferReader(text),
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False,
                block_size=len(text) + 1,
                column_names=[str(place) for place in range(self._width)],
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self.delimiter, newlines_in_values=True
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=wire,
                include_columns=list(wire),
                null_values=[self.null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                check_utf8=False,
            ),
        )
        if table.num_rows != count:
            raise Unfit("a carriage return in the middle of a record")
        columns: list[pa.Array] = []
        bad: BadRows = {}
        for each in self.schema:
            if each.name not in self._places:
                columns.append(pa.nulls(count, each.type))
                continue
            column, wrong = convert(table.column(str(self._places[each.name])), each.type)
            columns.append(column)
            for row, reason in wrong.items():
                bad.setdefault(row, f"`{each.name}`: {reason}")
        return pa.RecordBatch.from_arrays(columns, names=self.schema.names), bad

    def _screen(self, records: Records) -> tuple[Records, list[BadRecord]]:
        """Set aside records that the parser would not read as exactly one record."""
        if not len(records):
            return records, []
        if self._problem:
            bad = [records.bad(place, self._problem) for place in range(len(records))]
            return records.without(np.arange(len(records))), bad
        reasons = dict.fromkeys(not_utf8(records).tolist(), "not UTF-8")
        raw = np.frombuffer(records.data, np.uint8)
        quotes = np.flatnonzero(raw == QUOTE)
        for place in _misquoted(records, raw, quotes, ord(self.delimiter)).tolist():
            reasons.setdefault(place, "a quote that RFC 4180 does not allow, or that never ends")
        fields = _count_fields(records, raw, quotes, ord(self.delimiter))
        for place in np.flatnonzero(fields != self._width).tolist():
            found = f"{fields[place]} field{'s' if fields[place] != 1 else ''}"
            reasons.setdefault(place, f"{found}, {self._width} expected")
        bad = [records.bad(place, reason) for place, reason in reasons.items()]
        return (records.without(np.array(list(reasons), np.int64)) if bad else records), bad


def header_names(header: bytes, delimiter: str) -> list[str]:
    """The names of the columns.

    Raises:
        ValueError: It is not a record of CSV.
    """
    text = header.removeprefix(BYTE_ORDER_MARK).decode().rstrip("\r\n")
    try:
        rows = list(csv.reader([text], delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise ValueError(str(error)) from None
    return [name.strip() for name in rows[0]] if rows else []


def _misquoted(
    records: Records,
    raw: npt.NDArray[np.uint8],
    quotes: npt.NDArray[np.int64],
    delimiter: int,
) -> npt.NDArray[np.int64]:
    """Which records have a quote elsewhere than around a whole field.

    The parser and the search for record ends might read those differently.
    """
    if not len(quotes):
        return np.empty(0, np.int64)
    owner = np.searchsorted(records.ends, quotes, side="right")
    inside = owner < len(records)
    inside[inside] = quotes[inside] >= records.starts[owner[inside]]
    quotes, owner = quotes[inside], owner[inside]
    # The number of each quote within its record: even numbers open, odd ones close.
    first = np.searchsorted(quotes, records.starts)
    closes = (np.arange(len(quotes)) - first[owner]) % 2 == 1
    count = np.bincount(owner, minlength=len(records))
    before = np.where(quotes > 0, raw[quotes - 1], delimiter)
    at_start = quotes == records.starts[owner]
    after = raw[np.minimum(quotes + 1, len(raw) - 1)]
    at_end = quotes + 1 == records.ends[owner]
    opens_well = at_start | (before == delimiter) | (before == QUOTE)
    closes_well = at_end | (after == delimiter) | (after == QUOTE) | np.isin(after, _LINE_ENDS)
    # A doubled quote closes and reopens: the quote before an opening one must be its partner.
    wrong = np.where(closes, ~closes_well, ~opens_well)
    return np.flatnonzero(
        (count % 2 == 1) | (np.bincount(owner, weights=wrong, minlength=len(records)) > 0)
    )


def _count_fields(
    records: Records,
    raw: npt.NDArray[np.uint8],
    quotes: npt.NDArray[np.int64],
    delimiter: int,
) -> npt.NDArray[np.int64]:
    """How many fields each record has: its delimiters outside of quotes, and one."""
    delimiters = np.flatnonzero(raw == delimiter)
    if len(quotes):
        owner = np.minimum(
            np.searchsorted(records.ends, delimiters, side="right"), len(records) - 1
        )
        first = np.searchsorted(quotes, records.starts)
        before = np.searchsorted(quotes, delimiters) - first[owner]
        delimiters = delimiters[before % 2 == 0]
    count: npt.NDArray[np.int64] = (
        np.searchsorted(delimiters, records.ends) - np.searchsorted(delimiters, records.starts) + 1
    )
    return count
