"""Decodes newline-delimited JSON: one object a line.

Fields that are not declared are ignored; declared ones that are missing are null. A value of
another JSON type than the column's is a bad record, as is a declared field that occurs twice.
Numbers may be ``NaN`` and ``Infinity``, as in Spark. Timestamps and dates are ISO 8601 text,
binary is base64, a decimal is a number or text.

Whether a record is good, its values and why it is bad depend on its bytes alone. The fast paths,
the compiled library and Arrow's parser, only accept good records; ``json_spelling`` decides on all
records that these refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from laminar_dagster.sources.decoded import BadRecord
from laminar_dagster.sources.formats import decimals
from laminar_dagster.sources.formats.columns import BadRows, Unfit, convert, holds, wire_type
from laminar_dagster.sources.formats.json_columns import Flags, JsonColumns
from laminar_dagster.sources.formats.json_spelling import DEEPEST, is_too_deep, record_speller
from laminar_dagster.sources.formats.records import (
    Offsets,
    Outcome,
    Records,
    decode_records,
    merged,
    settle,
)
from laminar_dagster.sources.formats.text import not_utf8

_WHITE: Final = b" \t\r\n"
# At most this many lines that the parser refuses together are decoded one by one.
_LINE_BY_LINE: Final = 256
# After a batch that was mostly not plain, skip the fast path for this many batches.
_PASSED_BATCHES: Final = 15


@dataclass
class JsonDecoder:
    """Decodes lines into the declared columns."""

    schema: pa.Schema
    _times_as_text: bool = False
    _plain: pa.Schema = field(init=False)
    _lenient: pa.Schema = field(init=False)
    _has_maps: bool = field(init=False)
    _has_decimals: bool = field(init=False)
    _has_floats: tuple[str, ...] = field(init=False)
    _spell: Callable[[bytes], str] = field(init=False)
    _columns: JsonColumns | None = field(init=False)
    _batches_to_pass: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Work out the wire types once."""
        self._plain = _wire(self.schema, times_as_text=False)
        self._lenient = _wire(self.schema, times_as_text=True)
        kinds = {each.name: each.type for each in self.schema}
        self._spell = record_speller(kinds)
        self._has_maps = any(holds(each, pa.types.is_map) for each in kinds.values())
        self._has_decimals = any(holds(each, pa.types.is_decimal) for each in kinds.values())
        self._has_floats = tuple(
            name for name, each in kinds.items() if holds(each, pa.types.is_floating)
        )
        self._columns = JsonColumns.of(self.schema)

    def decode(self, records: Records) -> Outcome:
        """Decode the records, which are lines."""
        return self.decode_with(
            records, lambda places: self.decode_thoroughly(records.only(places))
        )

    def decode_with(self, records: Records, otherwise: Callable[[Offsets], Outcome]) -> Outcome:
        """Decode the records, which need not be lines, with the compiled library if there is one.

        Args:
            records: The records.
            otherwise: Decodes the records at some places without the compiled library.
        """
        found = self._first_look(records)
        if found is None:
            return otherwise(np.arange(len(records)))
        rows, unsure = found
        if not unsure.any():
            return settle(records, rows, {}, [], self.schema)
        sure = np.flatnonzero(~unsure)
        return merged(
            settle(records.only(sure), rows.take(pa.array(sure)), {}, [], self.schema),
            otherwise(np.flatnonzero(unsure)),
        )

    def _first_look(self, records: Records) -> tuple[pa.RecordBatch, Flags] | None:
        if self._columns is None or not len(records):
            return None
        if self._batches_to_pass:
            self._batches_to_pass -= 1
            return None
        found = self._columns.read(records)
        if found is None:
            # Records of one stream are alike: the next batches would most likely fail as well.
            self._batches_to_pass = _PASSED_BATCHES
        return found

    def decode_thoroughly(self, records: Records) -> Outcome:
        """Decode the records, which are lines, without the compiled library."""
        records, bad = screen(records)
        small = self._too_small(records)
        found = decode_records(records.without(small), bad, self.schema, self._decode)
        if not len(small):
            return found
        return merged(found, self.decode_one_by_one(records.only(small)))

    def decode_one_by_one(self, records: Records) -> Outcome:
        """Decode the records, which are lines, one by one with ``json_spelling``."""
        records, bad = screen(records)
        return decode_records(records, bad, self.schema, self._decode_each)

    def decode_together(self, records: Records) -> pa.RecordBatch | None:
        """Decode the records, which were screened, in one go; None if any of them is bad."""
        if len(self._too_small(records)):
            return None
        try:
            rows, bad = self._decode(records.stretch(0, len(records)), len(records))
        except (pa.ArrowException, ValueError):
            return None
        return rows if not bad else None

    def _too_small(self, records: Records) -> Offsets:
        """Records that may hold a decimal so small that Arrow 26 crashes the process."""
        if not self._has_decimals or not len(records):
            return np.empty(0, np.int64)
        places = decimals.may_be_too_small(records.data)
        owner = np.searchsorted(records.ends, places, side="right")
        places, owner = places[owner < len(records)], owner[owner < len(records)]
        return np.unique(owner[records.starts[owner] <= places])

    def _decode(self, text: bytes | memoryview, count: int) -> tuple[pa.RecordBatch, BadRows]:
        if self._has_maps:
            # The parser cannot read maps unless they are respelled.
            return self._decode_each(text, count)
        try:
            rows, bad = self._decode_all(text, count)
        except ValueError:
            if count > _LINE_BY_LINE:
                raise
            return self._decode_each(text, count)
        unsure = self._infinite(rows)
        unsure[list(bad)] = True
        if not unsure.any():
            return rows, {}
        places = np.flatnonzero(unsure)
        lines = _lines(text)
        lone, wrong = self._decode_lines([lines[place] for place in places])
        order = np.arange(count)
        order[places] = count + np.arange(len(places))
        rows = pa.concat_batches([rows, lone]).take(pa.array(order))
        return rows, {int(places[row]): reason for row, reason in wrong.items()}

    def _infinite(self, rows: pa.RecordBatch) -> Flags:
        """Which rows hold an infinity: the parser also reads numbers that are too large as one."""
        found = np.zeros(len(rows), np.bool_)
        for name in self._has_floats:
            found |= _are_infinite(rows.column(name))
        return found

    def _decode_each(self, text: bytes | memoryview, _count: int) -> tuple[pa.RecordBatch, BadRows]:
        return self._decode_lines(_lines(text))

    def _decode_lines(self, lines: list[bytes]) -> tuple[pa.RecordBatch, BadRows]:
        """Respell each line and parse them together; the parser accepts every respelled line."""
        spelt: list[str] = []
        bad: BadRows = {}
        for row, line in enumerate(lines):
            try:
                spelt.append(self._spell(line))
            except Unfit as error:
                spelt.append("{}")
                bad[row] = str(error)
        text = "\n".join([*spelt, ""]).encode()
        rows, wrong = self._parse(text, len(lines), self._lenient)
        return rows, wrong | bad

    def _decode_all(self, text: bytes | memoryview, count: int) -> tuple[pa.RecordBatch, BadRows]:
        # The lenient schema accepts all that the plain one does, with the same values, so the order
        # in which they are tried does not matter: start with what worked last time.
        if self._plain == self._lenient:
            return self._parse(text, count, self._plain)
        if not self._times_as_text:
            try:
                return self._parse(text, count, self._plain)
            except ValueError:
                pass
        batch, bad = self._parse(text, count, self._lenient)
        self._times_as_text = not bad
        return batch, bad

    def _parse(
        self, text: bytes | memoryview, count: int, wire: pa.Schema
    ) -> tuple[pa.RecordBatch, BadRows]:
        table = pyarrow.json.read_json(
            pa.BufferReader(text),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=wire, unexpected_field_behavior="ignore"
            ),
        )
        if table.num_rows != count:
            raise Unfit("more than one JSON value in a line")
        columns: list[pa.Array] = []
        bad: BadRows = {}
        for place, each in enumerate(self.schema):
            column, wrong = convert(table.column(place), each.type)
            columns.append(column)
            for row, reason in wrong.items():
                bad.setdefault(row, f"`{each.name}`: {reason}")
        return pa.RecordBatch.from_arrays(columns, names=self.schema.names), bad


def _are_infinite(column: pa.Array) -> Flags:
    if pa.types.is_floating(column.type):
        found: Flags = np.zeros(len(column), np.bool_)
        infinite = pc.is_inf(column)
        if pc.any(infinite).as_py():
            found = infinite.fill_null(False).to_numpy(zero_copy_only=False)
        return found
    found = np.zeros(len(column), np.bool_)
    if pa.types.is_struct(column.type):
        for place, each in enumerate(column.type):
            if holds(each.type, pa.types.is_floating):
                found |= _are_infinite(column.field(place))
    elif pa.types.is_list(column.type):
        before = np.concatenate([[0], np.cumsum(_are_infinite(column.values))])
        edges = column.offsets.to_numpy()
        found = before[edges[1:]] > before[edges[:-1]]
    return found


def _lines(text: bytes | memoryview) -> list[bytes]:
    return bytes(text).removesuffix(b"\n").split(b"\n")


def screen(records: Records) -> tuple[Records, list[BadRecord]]:
    """Set aside records that the parser must not get.

    A line that does not begin with ``{`` and end with ``}`` could be joined with its neighbour, a
    NUL byte could end the input, and a lone ``null`` makes the parser of Arrow 26 crash the whole
    process.
    """
    if not len(records):
        return records, []
    raw = np.frombuffer(records.data, np.uint8)
    last = records.ends - 1
    last = last - (raw[last] == ord("\n"))
    last = last - (raw[last] == ord("\r"))
    odd = np.flatnonzero((raw[records.starts] != ord("{")) | (raw[last] != ord("}")))
    reasons = dict.fromkeys(not_utf8(records).tolist(), "not UTF-8")
    for place in np.flatnonzero(records.ends - records.starts > 2 * DEEPEST).tolist():
        if is_too_deep(records.text(place)):
            reasons.setdefault(place, f"nested more than {DEEPEST} deep")
    if b"\0" in records.data:
        for place in range(len(records)):
            if b"\0" in records.text(place):
                reasons.setdefault(place, "it holds a NUL byte")
    for place in odd.tolist():
        text = records.text(place).strip(_WHITE)
        if not (text.startswith(b"{") and text.endswith(b"}")):
            reasons.setdefault(place, "not a JSON object")
    bad = [records.bad(place, reason) for place, reason in reasons.items()]
    return (records.without(np.array(list(reasons), np.int64)) if bad else records), bad


def _wire(schema: pa.Schema, *, times_as_text: bool) -> pa.Schema:
    return pa.schema(
        [pa.field(each.name, wire_type(each.type, times_as_text=times_as_text)) for each in schema]
    )
