"""Newline-delimited JSON: one object a line.

Fields that are not declared are ignored; declared ones that are missing are null. A value of
another JSON type than the column's is a bad record, as is a declared field that stands twice.
Numbers may be ``NaN`` and ``Infinity``, as in Spark. Timestamps and dates are ISO 8601 text,
binary is base64, a decimal is a number or text.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.json

from laminar_dagster.sources.decoded import BadRecord
from laminar_dagster.sources.formats import decimals
from laminar_dagster.sources.formats.columns import BadRows, Unfit, convert, holds, wire_type
from laminar_dagster.sources.formats.json_columns import Flags, JsonColumns
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
# Up to so many lines of which some are bad are looked at one by one.
_LINE_BY_LINE: Final = 256
# After a batch that was mostly not plain, so many are not looked at before they are parsed.
_PASSED_BATCHES: Final = 15


@dataclass
class JsonDecoder:
    """Decodes lines into the declared columns."""

    schema: pa.Schema
    _times_as_text: bool = False
    _plain: pa.Schema = field(init=False)
    _lenient: pa.Schema = field(init=False)
    _maps: tuple[str, ...] = field(init=False)
    _decimals: dict[str, pa.DataType] = field(init=False)
    _kinds: dict[str, pa.DataType] = field(init=False)
    _columns: JsonColumns | None = field(init=False)
    _batches_to_pass: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Work out the wire types once."""
        self._plain = _wire(self.schema, times_as_text=False)
        self._lenient = _wire(self.schema, times_as_text=True)
        self._kinds = {each.name: each.type for each in self.schema}
        self._maps = tuple(each.name for each in self.schema if holds(each.type, pa.types.is_map))
        self._decimals = {
            each.name: each.type for each in self.schema if holds(each.type, pa.types.is_decimal)
        }
        self._columns = JsonColumns.of(self.schema)

    def decode(self, records: Records) -> Outcome:
        """All of the records, which are lines."""
        return self.decode_with(
            records, lambda places: self.decode_thoroughly(records.only(places))
        )

    def decode_with(self, records: Records, otherwise: Callable[[Offsets], Outcome]) -> Outcome:
        """All of the records, which need not be lines, with the compiled library if there is one.

        Args:
            records: What to decode.
            otherwise: Decodes those at some places thoroughly.
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
            # Records of one stream are alike: a look at each batch would be as much in vain.
            self._batches_to_pass = _PASSED_BATCHES
        return found

    def decode_thoroughly(self, records: Records) -> Outcome:
        """All of the records, which are lines, with the parser that has the last word."""
        records, bad = screen(records)
        if too_small := self._too_small(records):
            bad += [records.bad(place, reason) for place, reason in too_small.items()]
            records = records.without(np.array(list(too_small), np.int64))
        return decode_records(records, bad, self.schema, self._decode)

    def decode_together(self, records: Records) -> pa.RecordBatch | None:
        """All of the records, which were screened; None if there is a bad one."""
        if self._too_small(records):
            return None
        try:
            rows, bad = self._decode_all(records.stretch(0, len(records)), len(records))
        except (pa.ArrowException, ValueError):
            return None
        return rows if not bad else None

    def _too_small(self, records: Records) -> BadRows:
        """Records with a decimal so small that the parser of Arrow 26 crashes the process."""
        if not self._decimals or not decimals.may_be_too_small(records.data):
            return {}
        found = (
            (place, decimals.too_small(records.text(place), self._decimals))
            for place in range(len(records))
        )
        return {place: reason for place, reason in found if reason}

    def _decode(self, text: bytes | memoryview, count: int) -> tuple[pa.RecordBatch, BadRows]:
        try:
            return self._decode_all(text, count)
        except ValueError as error:
            if count > _LINE_BY_LINE:
                raise
            lines = _lines(text)
            problems = [problem_with_line(line, self._kinds) for line in lines]
            bad = {row: problem for row, problem in enumerate(problems) if problem}
            if not bad:
                raise Unfit(str(error)) from None
        # Taking out what cannot be good is faster than trying the parser on each line.
        rest = [line for line, problem in zip(lines, problems, strict=True) if not problem]
        places = iter(range(len(rest)))
        spread = [None if problem else next(places) for problem in problems]
        batch, others = self._decode_all(b"\n".join(rest), len(rest)) if rest else (None, {})
        if batch is None:
            batch = pa.RecordBatch.from_arrays(
                [pa.nulls(0, each.type) for each in self.schema], names=self.schema.names
            )
        for row, place in enumerate(spread):
            if place in others:
                bad[row] = others[place]
        return batch.take(pa.array(spread, pa.int64())), bad

    def _decode_all(self, text: bytes | memoryview, count: int) -> tuple[pa.RecordBatch, BadRows]:
        # The lenient way takes all that the plain way takes, and gives the same values, so it
        # does not matter which is tried first: what worked last time.
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
        if self._maps:
            text = b"".join(self._rewrite(line) for line in _lines(text))
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

    def _rewrite(self, line: bytes) -> bytes:
        """Spell maps as lists of pairs, which Arrow's parser can read."""
        try:
            value = json.loads(
                line.decode(),
                object_pairs_hook=_Pairs,
                parse_float=_Number,
                parse_int=_Number,
                parse_constant=_Number,
            )
            if not isinstance(value, _Pairs):
                raise Unfit("not a JSON object")
            out = io.StringIO()
            _write_object(value, self._kinds, out)
        except RecursionError:
            raise Unfit("nested too deeply") from None
        return out.getvalue().encode() + b"\n"


def problem_with_line(line: bytes, kinds: dict[str, pa.DataType]) -> str:
    """Why a line cannot be a good record; empty when it may be one.

    It must never refuse what the parser takes: that would make a record's fate depend on whether
    there is a bad one near it.
    """
    try:
        value = json.loads(line.decode())
    except json.JSONDecodeError as error:
        # The parser knows the spelling ``Inf``.
        return "" if b"Inf" in line else f"not JSON: {error.msg} at character {error.pos}"
    except (ValueError, RecursionError):
        return ""
    if not isinstance(value, dict):
        return "not a JSON object"
    for name, kind in kinds.items():
        found = value.get(name)
        if found is not None and not isinstance(found, _json_types(kind)):
            return f"`{name}`: {_JSON_NAMES[type(found)]} where {kind} is declared"
        if pa.types.is_integer(kind) and found is not None:
            if isinstance(found, bool):
                return f"`{name}`: a boolean where {kind} is declared"
            if not -(2 ** (kind.bit_width - 1)) <= found < 2 ** (kind.bit_width - 1):
                return f"`{name}`: the number is out of the range of {kind}"
    return ""


_JSON_NAMES: Final[dict[type, str]] = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "text",
    list: "an array",
    dict: "an object",
}


def _json_types(kind: pa.DataType) -> tuple[type, ...]:
    if pa.types.is_boolean(kind):
        return (bool,)
    if pa.types.is_integer(kind):
        return (int,)
    if pa.types.is_floating(kind):
        return (int, float)
    if pa.types.is_decimal(kind):
        return (int, float, str)
    if pa.types.is_map(kind) or pa.types.is_struct(kind):
        return (dict,)
    return (list,) if pa.types.is_list(kind) else (str,)


def _lines(text: bytes | memoryview) -> list[bytes]:
    return bytes(text).removesuffix(b"\n").split(b"\n")


class _Pairs(list[tuple[str, Any]]):
    """The members of an object, in order, repeated ones included."""


class _Number(str):
    """A number as it was spelt, so that no digit of a decimal is lost."""

    __slots__ = ()


def _write_object(pairs: _Pairs, kinds: dict[str, pa.DataType], out: io.StringIO) -> None:
    out.write("{")
    separator = ""
    for name, value in pairs:
        if name in kinds:
            out.write(f"{separator}{json.dumps(name)}:")
            _write(value, kinds[name], out)
            separator = ","
    out.write("}")


def _write(value: Any, kind: pa.DataType | None, out: io.StringIO) -> None:
    if isinstance(value, _Pairs):
        if kind is not None and pa.types.is_map(kind):
            _write_map(value, kind, out)
        elif kind is not None and pa.types.is_struct(kind):
            _write_object(value, {each.name: each.type for each in kind}, out)
        else:
            # An object where none is declared: the parser shall refuse it.
            out.write("{}")
    elif isinstance(value, list):
        if kind is not None and pa.types.is_map(kind):
            raise Unfit("a map must be a JSON object, not an array")
        element = kind.value_type if kind is not None and pa.types.is_list(kind) else None
        out.write("[")
        for place, each in enumerate(value):
            out.write("," if place else "")
            _write(each, element, out)
        out.write("]")
    elif isinstance(value, _Number):
        out.write(value)
    else:
        out.write(json.dumps(value))


def _write_map(pairs: _Pairs, kind: pa.DataType, out: io.StringIO) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise Unfit("a map's key stands twice")
    out.write("[")
    for place, (name, value) in enumerate(pairs):
        out.write(("," if place else "") + '{"key":' + json.dumps(name) + ',"value":')
        _write(value, kind.item_type, out)
        out.write("}")
    out.write("]")


def screen(records: Records) -> tuple[Records, list[BadRecord]]:
    """Set aside what the parser must not see.

    A line that does not begin with ``{`` and end with ``}`` could be taken for a part of its
    neighbour, a NUL byte for the end of everything, and a lone ``null`` makes the parser of
    Arrow 26 crash the whole process.
    """
    if not len(records):
        return records, []
    raw = np.frombuffer(records.data, np.uint8)
    last = records.ends - 1
    last = last - (raw[last] == ord("\n"))
    last = last - (raw[last] == ord("\r"))
    odd = np.flatnonzero((raw[records.starts] != ord("{")) | (raw[last] != ord("}")))
    reasons = dict.fromkeys(not_utf8(records).tolist(), "not UTF-8")
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
