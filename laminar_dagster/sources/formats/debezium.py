"""Decodes Debezium envelopes in JSON: each describes a change to a row of a table.

    c, r  one row, ``after``, of ``_weight`` +1
    d     one row, ``before``, of ``_weight`` -1
    u     ``before`` with -1, then ``after`` with +1; without ``before`` (a Postgres table of
          REPLICA IDENTITY DEFAULT) only the latter, which is enough for a sink that upserts
    m     a logical message, about no row: skipped, as are transaction markers
    t     the table was truncated: a bad record, because no rows can be retracted

An envelope may stand alone, or as ``payload`` beside the ``schema`` that describes it. The schema
states the unit of a timestamp, and whether a decimal's text is a number or base64.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sources.changes.columns import OP, WEIGHT
from laminar_dagster.sources.decoded import BadRecord
from laminar_dagster.sources.formats.columns import BadRows, Unfit
from laminar_dagster.sources.formats.debezium_types import (
    SCHEMA_TYPE,
    DecimalMode,
    TimeUnit,
    Told,
    finished,
    is_flexible,
    told_by,
    wire_type,
)
from laminar_dagster.sources.formats.debezium_unsent import are_unsent, may_be_unsent
from laminar_dagster.sources.formats.json_spelling import Members, Number, members_of
from laminar_dagster.sources.formats.ndjson import JsonDecoder, screen
from laminar_dagster.sources.formats.records import Offsets, Outcome, Records

_OPS: Final = ("c", "r", "u", "d", "t", "m")
_C, _R, _U, _D, _T, _M = range(len(_OPS))
_SAMPLE: Final = 8
_PAYLOAD: Final = b'"payload"'
_WHOLE_ROWS: Final = "let the source send whole rows (Postgres: REPLICA IDENTITY FULL)"

# For each column whose values may be text or numbers: whether they are numbers.
Shape = tuple[bool, ...]


@dataclass
class DebeziumDecoder:
    """Decodes lines of JSON into rows with a weight.

    Attributes:
        schema: The declared columns, ``_op`` if it is wanted, and ``_weight``.
        time_unit: The unit of numeric timestamps, where the message does not state it.
        decimal_mode: How text in a decimal column is encoded, where the message does not state it.
        requires_before: Whether an update without ``before`` is bad.
    """

    schema: pa.Schema
    time_unit: TimeUnit = "ms"
    decimal_mode: DecimalMode | None = None
    requires_before: bool = False
    _columns: list[pa.Field] = field(init=False)
    _flexible: list[str] = field(init=False)
    _shape: Shape | None = field(init=False, default=None)
    _decoders: dict[tuple[Shape, bool], JsonDecoder] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Find the columns whose values may be text or numbers."""
        self._columns = [each for each in self.schema if each.name not in (OP, WEIGHT)]
        self._flexible = [each.name for each in self._columns if is_flexible(each.type)]

    def decode(self, records: Records) -> Outcome:
        """Decode the records, which are lines."""
        records, bad = screen(records)
        if not len(records):
            return Outcome(_empty(self.schema), np.empty(0, np.int64), bad)
        wrapped = _are_wrapped(records)
        if self._shape is None:
            self._shape = self._sampled(records)
        if wrapped.all() or not wrapped.any():
            decoder = self._decoder(self._shape, bool(wrapped[0]))
            together = decoder.decode_together(records)
            if together is not None:
                return _merged([self._changes(together, records)], bad, self.schema)
        return self._decode_by_shape(records, bad, wrapped)

    def _decode_by_shape(
        self, records: Records, bad: list[BadRecord], wrapped: npt.NDArray[np.bool_]
    ) -> Outcome:
        """Group records by shape, and decode each group as if its records were alone."""
        groups: dict[tuple[Shape, bool], list[int]] = {}
        for place, is_wrapped in enumerate(wrapped.tolist()):
            key = self._shape_of(records.text(place)), is_wrapped
            groups.setdefault(key, []).append(place)
        outcomes: list[Outcome] = []
        for (shape, is_wrapped), places in groups.items():
            group = _at(records, np.array(places, np.int64))
            found = self._decoder(shape, is_wrapped).decode(group)
            bad.extend(found.bad)
            good = _at(group, np.searchsorted(group.positions, found.positions))
            outcomes.append(self._changes(found.rows, good))
        self._shape = self._together(max(groups, key=lambda key: len(groups[key]))[0])
        return _merged(outcomes, bad, self.schema)

    def _decoder(self, shape: Shape, is_wrapped: bool) -> JsonDecoder:
        known = self._decoders.get((shape, is_wrapped))
        if known is not None:
            return known
        numbers = dict(zip(self._flexible, shape, strict=True))
        image = pa.struct(
            [
                pa.field(each.name, wire_type(each.type, is_number=numbers[each.name]))
                if each.name in numbers
                else pa.field(each.name, each.type)
                for each in self._columns
            ]
        )
        envelope = [
            pa.field("before", image),
            pa.field("after", image),
            pa.field("op", pa.string()),
            pa.field("status", pa.string()),
        ]
        wrapper = [pa.field("payload", pa.struct(envelope)), pa.field("schema", SCHEMA_TYPE)]
        decoder = JsonDecoder(pa.schema([*envelope, *(wrapper if is_wrapped else [])]))
        self._decoders[shape, is_wrapped] = decoder
        return decoder

    def _sampled(self, records: Records) -> Shape:
        shapes = [
            self._shape_of(records.text(place)) for place in range(min(_SAMPLE, len(records)))
        ]
        return self._together(tuple(any(each) for each in zip(*shapes, strict=True)))

    def _together(self, shape: Shape) -> Shape:
        """The shape with which to try to decode all records at once.

        The parser also reads text as a decimal number, so decimals are read as numbers only in
        records whose shape was found one by one.
        """
        kinds = [self.schema.field(name).type for name in self._flexible]
        return tuple(
            number and not pa.types.is_decimal(kind)
            for number, kind in zip(shape, kinds, strict=True)
        )

    def _shape_of(self, line: bytes) -> Shape:
        if not self._flexible:
            return ()
        images = [dict(each) for each in _images(line)]
        return tuple(_are_numbers([image.get(name) for image in images]) for name in self._flexible)

    def _changes(self, envelopes: pa.RecordBatch, records: Records) -> Outcome:
        """The rows of envelopes that were parsed."""
        parts = {name: envelopes.column(name) for name in ("before", "after", "op", "status")}
        told: Told | None = None
        is_tombstone = np.zeros(len(records), np.bool_)
        if "payload" in envelopes.schema.names:
            payload, schema = envelopes.column("payload"), envelopes.column("schema")
            is_inside = pc.and_(payload.is_valid(), parts["op"].is_null())
            is_tombstone = _flags(
                pc.and_(pc.and_(payload.is_null(), parts["op"].is_null()), schema.is_valid())
            )
            parts = {
                name: pc.if_else(is_inside, pc.struct_field(payload, name), column)
                for name, column in parts.items()
            }
            told = told_by(schema, self._flexible)
        op = _codes(parts["op"])
        is_mark = (op == -1) & _flags(pc.is_in(parts["status"], pa.array(["BEGIN", "END"])))
        is_skipped = (op == _M) | is_mark | (is_tombstone & ~is_mark)
        has = {name: _flags(parts[name].is_valid()) for name in ("before", "after")}
        reasons = self._refused(op, is_skipped, parts["op"], has)
        is_good = ~is_skipped
        is_good[list(reasons)] = False
        befores = np.flatnonzero(is_good & has["before"] & ((op == _U) | (op == _D)))
        afters = np.flatnonzero(is_good & ((op == _C) | (op == _R) | (op == _U)))
        unsent = may_be_unsent(records.data)
        columns: list[list[pa.Array]] = []
        for name, places in (("before", befores), ("after", afters)):
            found, wrong = self._image(parts[name], places, told, name, unsent)
            columns.append(found)
            for row, reason in wrong.items():
                reasons.setdefault(int(places[row]), reason)
        # The retraction stands before the new row.
        order = np.concatenate([befores * 2, afters * 2 + 1])
        is_good[list(reasons)] = False
        chosen = np.argsort(order)
        chosen = chosen[is_good[order[chosen] // 2]]
        whole = [*map(pa.concat_arrays, zip(*columns, strict=True))]
        rows = self._rows(whole, op, order, chosen)
        bad = [records.bad(place, reason) for place, reason in reasons.items()]
        positions = records.positions[order[chosen] // 2]
        return Outcome(rows, positions, bad, skipped=int(is_skipped.sum()))

    def _rows(
        self,
        columns: list[pa.Array],
        op: npt.NDArray[np.int64],
        order: Offsets,
        chosen: Offsets,
    ) -> pa.RecordBatch:
        indices = pa.array(chosen)
        found = {
            each.name: column.take(indices)
            for each, column in zip(self._columns, columns, strict=True)
        }
        found[WEIGHT] = pa.array(order[chosen] % 2 * 2 - 1)
        if OP in self.schema.names:
            found[OP] = pa.array(_OPS).take(pa.array(op[order[chosen] // 2]))
        return pa.RecordBatch.from_arrays(
            [found[each.name].cast(each.type) for each in self.schema], schema=self.schema
        )

    def _refused(
        self,
        op: npt.NDArray[np.int64],
        is_skipped: npt.NDArray[np.bool_],
        spelled: pa.Array,
        has: dict[str, npt.NDArray[np.bool_]],
    ) -> BadRows:
        """The reasons of bad records: no row for their ``op``, a truncate, or no envelope."""
        no_before = f"a delete without `before`: {_WHOLE_ROWS}"
        no_image = f"an update without `before`, which is required: {_WHOLE_ROWS}"
        truncated = "the table was emptied (truncate), which cannot be said of single rows"
        odd = (op == -1) & ~is_skipped
        named = _flags(spelled.is_valid())
        after_missing = ~has["after"] & ((op == _C) | (op == _R) | (op == _U))
        update = (op == _U) & ~has["before"] & self.requires_before
        found = (
            (odd & ~named, "no `op`: not an envelope of Debezium; rows alone are format json"),
            (op == _T, truncated),
            (after_missing, "`after` is missing"),
            ((op == _D) & ~has["before"], no_before),
            (update, no_image),
        )
        reasons: BadRows = {}
        for flags, reason in found:
            for place in np.flatnonzero(flags).tolist():
                reasons.setdefault(place, reason)
        for place in np.flatnonzero(odd & named).tolist():
            reasons[place] = f"unknown `op` {spelled[place].as_py()[:80]!r}"
        return reasons

    def _image(
        self, images: pa.Array, places: Offsets, told: Told | None, name: str, unsent: bool
    ) -> tuple[list[pa.Array], BadRows]:
        """The columns of the ``before`` or ``after`` rows at some places, and the bad rows."""
        images = images.take(pa.array(places))
        columns: list[pa.Array] = []
        bad: BadRows = {}
        for each in self._columns:
            column = pc.struct_field(images, each.name)
            if each.name in self._flexible:
                about = told.of(each.name, places) if told is not None else None
                column, wrong = finished(
                    column, each.type, about, self.time_unit, self.decimal_mode
                )
                for row, reason in wrong.items():
                    bad.setdefault(row, f"`{each.name}`: {reason}")
            elif unsent:
                for row in np.flatnonzero(are_unsent(column)).tolist():
                    bad.setdefault(row, f"`{each.name}` was not sent: {_WHOLE_ROWS}")
            if not each.nullable and column.null_count:
                why = f": {_WHOLE_ROWS}" if name == "before" else ""
                for row in np.flatnonzero(_flags(column.is_null())).tolist():
                    bad.setdefault(row, f"`{each.name}` of `{name}` must not be null{why}")
            columns.append(column)
        return columns, bad


def _merged(outcomes: list[Outcome], bad: list[BadRecord], schema: pa.Schema) -> Outcome:
    """Join the outcomes of groups of records, in the order of the records."""
    bad = sorted([*bad, *chain(*(each.bad for each in outcomes))], key=lambda each: each.position)
    skipped = sum(each.skipped for each in outcomes)
    if len(outcomes) == 1:
        return replace(outcomes[0], bad=bad)
    positions = np.concatenate([each.positions for each in outcomes])
    order = np.argsort(positions, kind="stable")
    rows = pa.concat_batches([each.rows for each in outcomes]).take(pa.array(order))
    rows = pa.RecordBatch.from_arrays(rows.columns, schema=schema)
    return Outcome(rows, positions[order], bad, skipped=skipped)


def _are_wrapped(records: Records) -> npt.NDArray[np.bool_]:
    """Which envelopes may be a ``payload`` beside a ``schema``: those are read differently."""
    count = len(records)
    if _PAYLOAD not in records.data:
        return np.zeros(count, np.bool_)
    return np.fromiter((_PAYLOAD in records.text(each) for each in range(count)), np.bool_, count)


def _at(records: Records, places: Offsets) -> Records:
    return replace(
        records,
        starts=records.starts[places],
        ends=records.ends[places],
        positions=records.positions[places],
    )


def _images(line: bytes) -> list[Members]:
    """The ``before`` and ``after`` objects of an envelope, if it can be parsed."""
    try:
        envelope = dict(members_of(line))
    except Unfit:
        return []
    payload = envelope.get("payload")
    if envelope.get("op") is None and isinstance(payload, Members):
        envelope = dict(payload)
    images = (envelope.get("before"), envelope.get("after"))
    return [each for each in images if isinstance(each, Members)]


def _are_numbers(values: list[Any]) -> bool:
    """Whether some values are numbers, apart from nulls."""
    kinds = {type(each) for each in values if each is not None}
    return kinds == {Number}


def _codes(op: pa.Array) -> npt.NDArray[np.int64]:
    """The index of each op in ``_OPS``; -1 for unknown ones."""
    found = pc.index_in(op, value_set=pa.array(_OPS)).cast(pa.int64())
    codes: npt.NDArray[np.int64] = found.fill_null(-1).to_numpy(zero_copy_only=False)
    return codes


def _flags(values: pa.Array) -> npt.NDArray[np.bool_]:
    flags: npt.NDArray[np.bool_] = values.fill_null(False).to_numpy(zero_copy_only=False)
    return flags


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)
