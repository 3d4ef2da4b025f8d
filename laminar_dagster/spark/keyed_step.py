"""Advances one bucket of a keyed operator: reads the state of touched keys, emits their changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.spark.bucket_step import BucketStep, Files
from laminar_dagster.spark.columns import CONTROL, END, HASH, PART
from laminar_dagster.spark.keyed_chain import Hashes, KeyedChain
from laminar_dagster.spark.keyed_rows import WEIGHT, is_among, once
from laminar_dagster.spark.keyed_shape import KeyedShape, hash_of_unit
from laminar_dagster.spark.row_order import sorted_by
from laminar_dagster.spark.state_chain import Closing


@dataclass(frozen=True, kw_only=True)
class KeyedStep(BucketStep):
    """Keyed state, read for the keys that an epoch touches, and for those that end in it.

    Output: ``_part`` (the bucket), ``_control``, ``_weight``, ``_end``, keys, times, partials,
    sorted; a retraction stands before the row that replaces it.

    Attributes:
        emits: ``changes``: every change of a row; ``close``: each row once, when it ends.
    """

    shape: KeyedShape
    emits: Literal["changes", "close"] = "changes"

    @property
    def schema(self) -> pa.Schema:
        """See ``BucketStep.schema``."""
        own = [pa.field(PART, pa.int64()), pa.field(CONTROL, pa.string())]
        own.append(pa.field(WEIGHT, pa.int8()))
        return pa.schema([*own, *self.shape.output])

    @property
    def operator_type(self) -> str:
        """See ``BucketStep.operator_type``."""
        return f"keyed_{self.shape.kind}"

    def chain_of(self, bucket: int) -> KeyedChain:
        """See ``BucketStep.chain_of``."""
        home, files = self.files_of(bucket)
        return KeyedChain(home, self.shape, files)

    def advance(self, bucket: int, new: pa.Table, closing: Closing) -> tuple[pa.Table, Files]:
        """See ``BucketStep.advance``."""
        added = hash_of_unit(self.shape, new)
        written = once(added.column(HASH).to_numpy())
        chain = self.chain_of(bucket)
        ending, left = self._ending(chain, closing)
        touched = once(np.concatenate([written, ending])) if len(ending) else written
        before = chain.rows_of(touched, closing)
        after = self.shape.combine([before, added.cast(_like(added, self.shape.schema))])
        told = self._output(before, after, closing)
        if self.shape.tells_all:
            # Write changed keys only: in a deduplication many keys come again without a change.
            written = once(told.column(HASH).to_numpy())
        files = left.advance(_with_hashes(after, written), closing)
        return told, files

    def _ending(self, chain: KeyedChain, closing: Closing) -> tuple[Hashes, KeyedChain]:
        """The hashes whose end has to be emitted or retracted now, and the chain after that.

        None for windows and sessions that emit changes: their last state is already emitted.
        """
        if self.emits == "close" or self.shape.kind in ("group", "rank"):
            return chain.ending(closing)
        return np.empty(0, np.int64), chain.without_ended(closing)

    def _output(self, before: pa.Table, after: pa.Table, closing: Closing) -> pa.Table:
        ends = _ends(after, closing)
        shape = self.shape
        if self.emits == "close":
            closed = shape.shown(after.filter(ends))
            closed = sorted_by(closed, shape.group)
            ones = pa.array(np.ones(closed.num_rows, np.int8))
            return closed.append_column(WEIGHT, ones)
        # A group that ends is retracted; the final row of a window or session stays emitted.
        is_gone = shape.kind in ("group", "rank")
        return shape.changes(before, after.filter(pc.invert(ends)) if is_gone else after)


def _ends(rows: pa.Table, closing: Closing) -> pa.ChunkedArray:
    if closing.now is None:
        return pa.chunked_array([pa.array(np.zeros(rows.num_rows, np.bool_))])
    return pc.fill_null(pc.less_equal(rows.column(END), closing.now), False)


def _with_hashes(rows: pa.Table, hashes: Hashes) -> pa.Table:
    return rows.filter(pa.array(is_among(rows.column(HASH).to_numpy(), hashes)))


def _like(rows: pa.Table, wanted: pa.Schema) -> pa.Schema:
    """The schema of rows, with the wanted type for each column that ``wanted`` has too."""
    known = {each.name: each.type for each in wanted}
    return pa.schema([pa.field(each.name, known.get(each.name, each.type)) for each in rows.schema])
