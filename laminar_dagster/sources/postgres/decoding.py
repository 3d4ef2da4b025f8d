"""Decodes pgoutput messages into rows with a weight, all changes of a batch at once.

Changes to one version of a table are walked and converted together. At the end all rows are sorted
by the places of their messages; of an update, the retraction precedes the new row.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from laminar_dagster.core.errors import DecodeFailed, SchemaChanged
from laminar_dagster.core.ports import ReadingCost
from laminar_dagster.sources.changes import columns as added
from laminar_dagster.sources.changes.options import Before, OnSchemaChange, OnTruncate
from laminar_dagster.sources.decoded import BadRecord, PlacedChunk, chunk_of
from laminar_dagster.sources.formats.binary.assemble import spread
from laminar_dagster.sources.formats.binary.lanes import Int64s, Mask
from laminar_dagster.sources.formats.binary.texts import bytes_column
from laminar_dagster.sources.formats.columns import BadRows
from laminar_dagster.sources.postgres import messages as wire
from laminar_dagster.sources.postgres.messages import Cells, Messages, Relation
from laminar_dagster.sources.postgres.values import converted, suits, type_name

log = logging.getLogger(__name__)

# Microseconds from 1970 to 2000, the epoch of PostgreSQL's timestamps.
EPOCH_MICROS: Final = 946_684_800_000_000
WHOLE_ROWS: Final = "ALTER TABLE … REPLICA IDENTITY FULL sends whole rows"

_OP_NAMES: Final = ("c", "u", "d")
_ABSENT: Final = -1


@dataclass(frozen=True, slots=True)
class DecoderSettings:
    """The options of a source that concern the decoding of changes.

    Attributes:
        tables: The captured tables, with their schemas.
    """

    tables: tuple[str, ...]
    before: Before = "optional"
    on_truncate: OnTruncate = "fail"
    on_schema_change: OnSchemaChange = "fail"


@dataclass(frozen=True, slots=True)
class _Shape:
    """The places of the declared columns in one version of a table."""

    places: tuple[int, ...]
    is_keyed: bool


@dataclass(frozen=True, slots=True)
class _Images:
    """Rows of one table, before or after changes.

    Attributes:
        owners: The place of each row's message.
    """

    owners: Int64s
    columns: list[pa.Array]


@dataclass
class ChangeDecoder:
    """Decodes the stream of one slot, batch after batch, in order.

    A batch may end anywhere: the current transaction and the table descriptions are remembered
    for the next one.
    """

    source_id: str
    schema: pa.Schema
    settings: DecoderSettings
    _declared: list[pa.Field] = field(init=False)
    _relations: dict[int, Relation] = field(init=False, default_factory=dict)
    _shapes: dict[Relation, _Shape] = field(init=False, default_factory=dict)
    _transaction: tuple[int, int] = field(init=False, default=(0, 0))

    def __post_init__(self) -> None:
        """Find the columns that come from tables."""
        self._declared = added.declared(self.schema)

    def decode(
        self, found: Messages, start: int, end: int, fetch_seconds: float = 0.0
    ) -> PlacedChunk:
        """Decode the changes of transactions that were committed in [start, end).

        Args:
            found: The next messages.
            start: The start of the range.
            end: The end of the range.
            fetch_seconds: How long fetching the messages took.

        Raises:
            MalformedStream: The messages are malformed.
            SchemaChanged: A declared column is gone, or has another type.
            DecodeFailed: A table was truncated, and ``on_truncate`` is ``fail``.
        """
        began = time.perf_counter()
        lsns, times = self._transactions(found)
        is_inside = (lsns >= start) & (lsns < end)
        bad: BadRows = {}
        images: list[tuple[int, _Images]] = []
        tables = np.full(len(found), _ABSENT)
        names: list[str] = []
        for relation, places in self._groups(found):
            wanted = places[is_inside[places]]
            if relation.table not in self.settings.tables or not len(wanted):
                continue
            tables[wanted] = len(names)
            names.append(relation.table)
            shape = self._shape_of(relation)
            images += self._images(found, relation, shape, wanted, bad)
        truncated, skipped = self._truncations(found, is_inside, tables, names, bad)
        is_record = tables != _ABSENT
        records = int(is_record.sum()) + truncated
        size = int((found.ends - found.starts)[is_record].sum())
        rows, owners = self._rows(found, images, bad, tables, names, lsns, times)
        letters = [
            BadRecord(int(lsns[place]), found.bytes_of(place), reason)
            for place, reason in sorted(bad.items())
        ]
        return chunk_of(
            ", ".join(self.settings.tables),
            rows,
            pa.array(lsns[owners], pa.int64()),
            letters,
            size,
            records=records,
            added=rows.num_rows + len(letters) + skipped - records,
            skipped=skipped,
            cost=ReadingCost(fetch_seconds, time.perf_counter() - began),
        )

    def _transactions(self, found: Messages) -> tuple[Int64s, Int64s]:
        """The commit position and time of each message's transaction."""
        begins = found.starts[found.kinds == wire.BEGIN]
        lsns = np.concatenate([[self._transaction[0]], found.wire.int64(begins + 1)])
        times = np.concatenate([[self._transaction[1]], found.wire.int64(begins + 9)])
        if (np.diff(lsns) < 0).any():
            raise wire.MalformedStream("transactions are not in the order of their commits")
        if len(begins):
            self._transaction = int(lsns[-1]), int(times[-1])
        number = np.cumsum(found.kinds == wire.BEGIN)
        return lsns[number], times[number]

    def _groups(self, found: Messages) -> Iterator[tuple[Relation, Int64s]]:
        """The places of changes, grouped by version of a table."""
        versions = [(-1, each) for each in self._relations.values()]
        for place in np.flatnonzero(found.kinds == wire.RELATION).tolist():
            relation = wire.relation_of(found.bytes_of(place))
            versions.append((place, relation))
            self._relations[relation.oid] = relation
        kinds = found.kinds
        is_change = (kinds == wire.INSERT) | (kinds == wire.UPDATE) | (kinds == wire.DELETE)
        places = np.flatnonzero(is_change)
        oids = found.wire.int32(found.starts[places] + 1)
        for oid in np.unique(oids).tolist():
            # ``int32`` reads signed numbers, but object ids are unsigned.
            known = [(since, each) for since, each in versions if each.oid == oid % 2**32]
            mine = places[oids == oid]
            version = np.searchsorted([since for since, _ in known], mine, "right") - 1
            if (version < 0).any():
                raise wire.MalformedStream(f"a change of relation {oid} that was not described")
            for number in np.unique(version).tolist():
                yield known[number][1], mine[version == number]

    def _shape_of(self, relation: Relation) -> _Shape:
        known = self._shapes.get(relation)
        if known is None:
            known = shape_of(self.source_id, relation, self._declared, self.settings)
            self._shapes[relation] = known
        return known

    def _images(
        self, found: Messages, relation: Relation, shape: _Shape, places: Int64s, bad: BadRows
    ) -> Iterator[tuple[int, _Images]]:
        """The rows before and after changes to one version of a table."""
        tuples = wire.tuples_of(found, places, len(relation.columns))
        self._require_before(places, found.kinds[places], tuples.markers, shape, bad)
        befores, afters = places[tuples.has_before], places[tuples.has_after]
        is_whole = tuples.markers[tuples.has_before] == wire.OLD_ROW
        after = [
            _filled(now, was, afters, befores, is_whole)
            for now, was in zip(tuples.after, tuples.before, strict=True)
        ]
        yield 0, self._converted(found, shape, tuples.before, befores, "before", bad)
        yield 1, self._converted(found, shape, after, afters, "after", bad)

    def _require_before(
        self, places: Int64s, kinds: wire.Bytes, markers: wire.Bytes, shape: _Shape, bad: BadRows
    ) -> None:
        if self.settings.before != "required":
            return
        changed = (kinds == wire.UPDATE) | (kinds == wire.DELETE)
        lacking = changed & (markers != wire.OLD_ROW)
        if shape.is_keyed:
            # All declared columns are key columns: an update without old key has not changed it.
            lacking &= markers == wire.NEW_ROW
        for place in places[lacking].tolist():
            bad[place] = f"the whole row before the change is required: {WHOLE_ROWS}"

    def _converted(
        self,
        found: Messages,
        shape: _Shape,
        cells: list[Cells],
        owners: Int64s,
        name: str,
        bad: BadRows,
    ) -> _Images:
        columns: list[pa.Array] = []
        for each, place in zip(self._declared, shape.places, strict=True):
            if place == _ABSENT:
                columns.append(pa.nulls(len(owners), each.type))
                continue
            cell = cells[place]
            column, wrong = converted(_texts(found, cell), each.type)
            for row, reason in wrong.items():
                bad.setdefault(int(owners[row]), f"`{each.name}` of `{name}`: {reason}")
            for row in np.flatnonzero(cell.kinds == wire.UNCHANGED).tolist():
                reason = f"`{each.name}` was not sent, since the update left it as it was"
                bad.setdefault(int(owners[row]), f"{reason}: {WHOLE_ROWS}")
            if not each.nullable and column.null_count:
                why = f": {WHOLE_ROWS}" if name == "before" else ""
                for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
                    reason = f"`{each.name}` of `{name}` must not be null{why}"
                    bad.setdefault(int(owners[row]), reason)
            columns.append(column)
        return _Images(owners, columns)

    def _truncations(
        self, found: Messages, is_inside: Mask, tables: Int64s, names: list[str], bad: BadRows
    ) -> tuple[int, int]:
        """How many messages truncate a captured table, and how many of them are skipped."""
        count = skipped = 0
        for place in np.flatnonzero((found.kinds == wire.TRUNCATE) & is_inside).tolist():
            known = (self._relations.get(oid) for oid in wire.truncated_of(found.bytes_of(place)))
            emptied = [each.table for each in known if each and each.table in self.settings.tables]
            if not emptied:
                continue
            reason = f"{', '.join(emptied)} was emptied (truncate), which is no change of a row"
            if self.settings.on_truncate == "fail":
                hint = "set 'on_truncate' = 'dead_letter' or 'skip', or delete rows instead"
                raise DecodeFailed(self.source_id, emptied[0], f"{reason}; {hint}")
            count += 1
            if self.settings.on_truncate == "skip":
                skipped += 1
            else:
                bad[place] = reason
        return count, skipped

    def _rows(
        self,
        found: Messages,
        images: list[tuple[int, _Images]],
        bad: BadRows,
        tables: Int64s,
        names: list[str],
        lsns: Int64s,
        times: Int64s,
    ) -> tuple[pa.RecordBatch, Int64s]:
        """All rows in the order of their messages, without those of bad messages."""
        keys = [each.owners * 2 + after for after, each in images]
        order = np.concatenate([np.empty(0, np.int64), *keys])
        chosen = np.argsort(order, kind="stable")
        if bad:
            is_bad = np.zeros(len(found), np.bool_)
            is_bad[list(bad)] = True
            chosen = chosen[~is_bad[order[chosen] // 2]]
        owners = order[chosen] // 2
        indices = pa.array(chosen)
        columns: dict[str, pa.Array] = {}
        for number, each in enumerate(self._declared):
            parts = [image.columns[number] for _, image in images]
            whole = pa.concat_arrays(parts) if parts else pa.nulls(0, each.type)
            columns[each.name] = whole.take(indices)
        columns[added.WEIGHT] = pa.array((order[chosen] % 2 * 2 - 1).astype(np.int8))
        schema_names = set(self.schema.names)
        if added.OP in schema_names:
            kinds = found.kinds[owners]
            codes = np.select([kinds == wire.INSERT, kinds == wire.UPDATE], [0, 1], 2)
            columns[added.OP] = pa.array(_OP_NAMES).take(pa.array(codes))
        if added.TABLE in schema_names:
            columns[added.TABLE] = pa.array(names, pa.string()).take(pa.array(tables[owners]))
        if added.POSITION in schema_names:
            columns[added.POSITION] = lsn_texts(lsns[owners])
        if added.TIMESTAMP in schema_names:
            micros = times[owners] + EPOCH_MICROS
            columns[added.TIMESTAMP] = pa.array(micros, pa.timestamp("us", tz="UTC"))
        arrays = [columns[each.name].cast(each.type) for each in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema), owners


def shape_of(
    source_id: str, relation: Relation, declared: Sequence[pa.Field], settings: DecoderSettings
) -> _Shape:
    """Find the declared columns in a table.

    Raises:
        SchemaChanged: A column is missing, or has another type.
    """
    names = {each.name: place for place, each in enumerate(relation.columns)}
    # With several tables, one may never have had a column; planning detects a dropped one.
    may_lack = settings.on_schema_change == "ignore" or len(settings.tables) > 1
    places: list[int] = []
    for each in declared:
        place = names.get(each.name, _ABSENT)
        if place == _ABSENT and not (may_lack and each.nullable):
            what = f"it has no column `{each.name}`"
            raise SchemaChanged(source_id, relation.table, what)
        if place != _ABSENT:
            oid = relation.columns[place].type_oid
            if not suits(oid, each.type):
                what = f"column `{each.name}` is {type_name(oid)}, declared as {each.type}"
                raise SchemaChanged(source_id, relation.table, what)
        places.append(place)
    unknown = sorted(set(names) - {each.name for each in declared})
    if unknown:
        log.info("%s: columns of %s are not read: %s", source_id, relation.table, unknown)
    is_keyed = all(place != _ABSENT and relation.columns[place].is_key for place in places)
    return _Shape(tuple(places), is_keyed)


def lsn_texts(lsns: Int64s) -> pa.StringArray:
    """LSNs in PostgreSQL's format. Computed once for each distinct LSN."""
    known, places = np.unique(lsns, return_inverse=True)
    texts = pa.array([lsn_text(int(each)) for each in known], pa.string())
    return texts.take(pa.array(places))


def lsn_text(lsn: int) -> str:
    """An LSN in PostgreSQL's format."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def _texts(found: Messages, cell: Cells) -> pa.StringArray:
    """The texts of a column; null where a cell has no text."""
    places = np.flatnonzero(cell.is_text)
    values = bytes_column(found.wire, cell.starts[places], cell.lengths[places])
    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:
        # The session asked for UTF-8, so this is no bad record.
        raise wire.MalformedStream("a value is not UTF-8") from None
    return spread(texts, places, len(cell.kinds))


def _filled(now: Cells, was: Cells, afters: Int64s, befores: Int64s, is_whole: Mask) -> Cells:
    """A column after changes; unchanged values that were not sent are taken from the old row."""
    missing = np.flatnonzero(now.kinds == wire.UNCHANGED)
    if not len(missing) or not len(befores):
        return now
    rows = np.minimum(np.searchsorted(befores, afters[missing]), len(befores) - 1)
    known = (befores[rows] == afters[missing]) & is_whole[rows]
    missing, rows = missing[known], rows[known]
    kinds, starts, lengths = now.kinds.copy(), now.starts.copy(), now.lengths.copy()
    kinds[missing], starts[missing] = was.kinds[rows], was.starts[rows]
    lengths[missing] = was.lengths[rows]
    return Cells(kinds, starts, lengths)
