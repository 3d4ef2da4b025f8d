"""A keyed operator's bucket in an epoch: what it held of the keys that come, and what changes."""

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
    sorted; what is taken back stands before what takes its place.

    Attributes:
        emits: Every change of a row, or a row once, when it ends.
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
            # Many keys of a deduplication come again and change nothing.
            written = once(told.column(HASH).to_numpy())
        files = left.advance(_with_hashes(after, written), closing)
        return told, files

    def _ending(self, chain: KeyedChain, closing: Closing) -> tuple[Hashes, KeyedChain]:
        """What ends now and has to be told: a window that changed all along has been told."""
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
        # A group that has ended is gone; a window or session that has ended stays as it is.
        is_gone = shape.kind in ("group", "rank")
        return shape.changes(before, after.filter(pc.invert(ends)) if is_gone else after)


def _ends(rows: pa.Table, closing: Closing) -> pa.ChunkedArray:
    if closing.now is None:
        return pa.chunked_array([pa.array(np.zeros(rows.num_rows, np.bool_))])
    return pc.fill_null(pc.less_equal(rows.column(END), closing.now), False)


def _with_hashes(rows: pa.Table, hashes: Hashes) -> pa.Table:
    return rows.filter(pa.array(is_among(rows.column(HASH).to_numpy(), hashes)))


def _like(rows: pa.Table, wanted: pa.Schema) -> pa.Schema:
    """The schema of rows, with the types that are wanted where they have such a column."""
    known = {each.name: each.type for each in wanted}
    return pa.schema([pa.field(each.name, known.get(each.name, each.type)) for each in rows.schema])
