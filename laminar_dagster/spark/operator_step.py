"""Advances a Python operator: stores pending rows, calls it for those the watermark has passed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.errors import ComputeFailed
from laminar_dagster.models.calls import NEVER, Caller
from laminar_dagster.models.code import ModelCode, declared
from laminar_dagster.models.columns import TIMESTAMP
from laminar_dagster.models.declarations import KeyedOperator
from laminar_dagster.models.folding import BEFORE_ALL, KeyedState, fold
from laminar_dagster.models.ordering import Whole, key_numbers
from laminar_dagster.spark.bucket_step import BucketStep, Files
from laminar_dagster.spark.columns import CONTROL, END, HASH, PART, SEQUENCE, TIME
from laminar_dagster.spark.keyed_chain import KeyedChain
from laminar_dagster.spark.keyed_rows import is_among
from laminar_dagster.spark.operator_shape import OperatorShape
from laminar_dagster.spark.state_chain import Closing


@dataclass(frozen=True)
class OperatorRows:
    """Converts records to pending rows of the operator's state: for ``PartialStep``."""

    shape: OperatorShape

    @property
    def schema(self) -> pa.Schema:
        """Output schema of a step: part, sequence and reports, then state columns without hash."""
        own = [(PART, pa.int64()), (SEQUENCE, pa.int64()), (CONTROL, pa.string())]
        return pa.schema([*own, *(each for each in self.shape.schema if each.name != HASH)])

    def aggregate(self, records: pa.Table, part: int, sequence: int) -> pa.Table:
        """Convert records with ``_time``, keys and other columns to rows of ``schema``.

        Raises:
            ComputeFailed: A record has no event time.
        """
        times = records.column(TIME)
        if times.null_count:
            raise ComputeFailed(self.shape.operator, f"a row has no `{self.shape.time}`")
        count = records.num_rows
        given = {
            **{name: records.column(name) for name in records.column_names},
            PART: pa.array(np.full(count, part, np.int64)),
            SEQUENCE: pa.array(np.full(count, sequence, np.int64)),
            CONTROL: pa.nulls(count, pa.string()),
            END: pc.add(times, 1),
        }
        columns = [
            given[each.name] if each.name in given else pa.nulls(count, each.type)
            for each in self.schema
        ]
        return pa.table(columns, names=self.schema.names).cast(self.schema)


@dataclass(frozen=True, kw_only=True)
class OperatorStep(BucketStep):
    """Reads the keys that have new rows, due rows or due timers, and writes them again.

    Output: ``_part`` (the bucket), ``_control``, keys, event time, the operator's columns; by key.

    When a row ends in the newest file with its hash, its key is written again in that epoch, at
    least as a tombstone. So that file never leaves the chain while an older one holds the hash.
    """

    shape: OperatorShape
    code: ModelCode

    @property
    def operator(self) -> KeyedOperator:
        """The operator that the file declares."""
        found = declared(self.code)
        assert isinstance(found, KeyedOperator)
        return found

    @property
    def schema(self) -> pa.Schema:
        """See ``BucketStep.schema``."""
        own = [(PART, pa.int64()), (CONTROL, pa.string())]
        keys = [(key.sql, key.arrow_type) for key in self.shape.keys]
        return pa.schema([*own, *keys, (self.shape.time, TIMESTAMP), *self.operator.columns])

    @property
    def operator_type(self) -> str:
        """See ``BucketStep.operator_type``."""
        return "python_operator"

    def chain_of(self, bucket: int) -> KeyedChain:
        """See ``BucketStep.chain_of``."""
        home, files = self.files_of(bucket)
        return KeyedChain(home, self.shape, files)

    def advance(self, bucket: int, new: pa.Table, closing: Closing) -> tuple[pa.Table, Files]:
        """See ``BucketStep.advance``."""
        shape = self.shape
        chain = self.chain_of(bucket)
        ending, left = chain.ending(closing)
        arrived = np.unique(new.column(HASH).to_numpy())
        before = chain.rows_of(np.union1d(arrived, ending), closing)
        touched = np.union1d(arrived, _ended(before, closing))
        known = before.filter(pa.array(is_among(before.column(HASH).to_numpy(), touched)))
        rows = pa.concat_tables([known, new.select(shape.schema.names).cast(shape.schema)])
        is_state = rows.column(TIME).is_null()
        stored, waiting = rows.filter(is_state), rows.filter(pc.invert(is_state))
        folded = fold(
            self.operator,
            Caller(shape.operator, self.code.file),
            shape.state_of(stored),
            shape.waiting_of(waiting),
            closing.now,
        )
        state, ends = self._kept(folded.state, closing)
        hashes = _hashes(shape.keys_of(rows), rows.column(HASH).to_numpy(), state.keys)
        # Tombstones only for keys in the stored state.
        is_told = ~state.is_blank | is_among(hashes, np.unique(known.column(HASH).to_numpy()))
        told, written = state.chosen(is_told), hashes[is_told]
        waits = _hashes(
            shape.keys_of(rows), rows.column(HASH).to_numpy(), _keys_in(folded.waiting, shape)
        )
        after = pa.concat_tables(
            [
                shape.state_rows(told, pa.array(ends[is_told]), pa.array(written)),
                shape.waiting_rows(folded.waiting, pa.array(waits)),
            ]
        )
        return folded.rows, left.advance(after, closing)

    def _kept(self, state: KeyedState, closing: Closing) -> tuple[KeyedState, Whole]:
        """State without keys past their time to live, and when each key is next due."""
        ends = state.ends(self.operator.ttl_micros)
        if closing.now is not None:
            state = state.forgotten(ends <= closing.now)
        blank = state.is_blank
        clock = np.where(blank, BEFORE_ALL, state.clock)
        kept = KeyedState(state.keys, clock, state.timer, state.values)
        return kept, np.where(blank, NEVER, ends)


def _ended(rows: pa.Table, closing: Closing) -> Whole:
    """The hashes with a row that is due in this epoch."""
    hashes = rows.column(HASH).to_numpy()
    if closing.now is None:
        return np.empty(0, np.int64)
    return np.unique(hashes[rows.column(END).to_numpy() <= closing.now])


def _keys_in(waiting: pa.Table, shape: OperatorShape) -> pa.Table:
    return waiting.select([key.sql for key in shape.keys])


def _hashes(known: pa.Table, hashes: Whole, wanted: pa.Table) -> Whole:
    """The hashes of the wanted keys, looked up among known keys, which include all of them."""
    numbers = key_numbers(pa.concat_tables([known, wanted.cast(known.schema)]))
    by_number = np.zeros(int(numbers.max(initial=-1)) + 1, np.int64)
    by_number[numbers[: len(hashes)]] = hashes
    found: Whole = by_number[numbers[len(hashes) :]]
    return found
