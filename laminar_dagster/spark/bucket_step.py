"""Advances one bucket of an operator's state by an epoch: new partials in, output and files out."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.document import decode_part, encode_part
from laminar_dagster.core.errors import LaminarError
from laminar_dagster.core.ids import CheckpointId, PartitionId
from laminar_dagster.core.manifest import PartitionSnapshotEntry
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.spark.columns import BUCKET, CONTROL, END, PART, SEQUENCE
from laminar_dagster.spark.join_shape import JoinShape
from laminar_dagster.spark.keyed_chain import KeyedChain
from laminar_dagster.spark.keyed_shape import KeyedShape
from laminar_dagster.spark.partial_step import control_rows
from laminar_dagster.spark.row_order import by_numbers
from laminar_dagster.spark.state_chain import Closing, StateChain
from laminar_dagster.spark.state_files import StateFiles
from laminar_dagster.spark.state_shape import StateShape
from laminar_dagster.spark.watermarks import SourceClock, earliest

# The bucket that collects reports on their way to the driver.
CONTROL_BUCKET: Final = -1

Files = tuple[PartitionSnapshotEntry, ...]


@dataclass(frozen=True)
class BucketStep(ABC):
    """Merges partials into state and emits output: for ``GroupedData.applyInArrow`` by ``_bucket``.

    Attributes:
        lateness: How far the watermark must have passed an end before it closes, in microseconds.
    """

    shape: StateShape | KeyedShape | JoinShape
    clocks: tuple[SourceClock, ...]
    chains: Mapping[int, tuple[bytes, ...]]
    attempt: CheckpointId
    store: ObjectStore = field(repr=False)
    lateness: int = 0

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The output schema: ``_part`` (the bucket), ``_control``, and the operator's columns."""

    @property
    @abstractmethod
    def operator_type(self) -> str:
        """The operator's type in the manifest."""

    @abstractmethod
    def chain_of(self, bucket: int) -> StateChain | KeyedChain:
        """The state of a bucket before the epoch."""

    @abstractmethod
    def advance(self, bucket: int, new: pa.Table, closing: Closing) -> tuple[pa.Table, Files]:
        """Merge partials into a bucket.

        Args:
            bucket: The bucket's number.
            new: Partials in the order of parts and sequences.
            closing: The watermark before and after this epoch.

        Returns:
            The output rows, and the bucket's files.
        """

    @property
    def closed_before(self) -> Closing:
        """The watermark at the start of the epoch, as a ``Closing`` in which nothing closes."""
        mark = self._held_back(earliest(clock.watermark for clock in self.clocks))
        return Closing(mark, mark)

    def spreading(self) -> Self:
        """The step for a rescale: without state files, and with watermarks that do not advance."""
        clocks = tuple(replace(clock, lanes=()) for clock in self.clocks)
        return replace(self, chains={}, clocks=clocks)

    def files_of(self, bucket: int) -> tuple[StateFiles, Files]:
        """The store location of a bucket's state, and its files."""
        home = StateFiles(self.store, self.attempt, self.shape.operator, PartitionId(bucket))
        return home, tuple(_entry(data) for data in self.chains.get(bucket, ()))

    def __call__(self, table: pa.Table) -> pa.Table:
        """Advance the bucket of these rows by the epoch; an error becomes a report."""
        bucket = table.column(BUCKET)[0].as_py()
        if bucket == CONTROL_BUCKET:
            return self._controls(table.column(CONTROL).drop_null().to_pylist())
        try:
            return self._advance(bucket, table)
        except LaminarError as error:
            return self._controls([json.dumps(error.to_record())])

    def _advance(self, bucket: int, table: pa.Table) -> pa.Table:
        closing = self._closing(table.column(CONTROL).drop_null().to_pylist())
        found, files = self.advance(bucket, _in_order_of_parts(table), closing)
        states = [
            json.dumps({"operator": self.shape.operator, "state": json.loads(encode_part(entry))})
            for entry in files
        ]
        out = {
            **{name: found.column(name) for name in found.column_names},
            PART: pa.array(np.full(found.num_rows, bucket, np.int64)),
            CONTROL: pa.nulls(found.num_rows, pa.string()),
        }
        rows = pa.table(out).select(self.schema.names).cast(self.schema)
        return pa.concat_tables([self._controls(states, bucket), rows])

    def _closing(self, controls: list[str]) -> Closing:
        seen: dict[str, dict[int, int | None]] = defaultdict(dict)
        for report in map(json.loads, controls):
            if "source" in report:
                seen[report["source"]][report["part"]] = report["watermark"]
        return Closing(
            self.closed_before.now,
            self._held_back(
                earliest(clock.advance(seen[clock.source_id]) for clock in self.clocks)
            ),
        )

    def _held_back(self, mark: int | None) -> int | None:
        return None if mark is None else mark - self.lateness

    def _controls(self, texts: list[str], bucket: int = CONTROL_BUCKET) -> pa.Table:
        return pa.Table.from_batches([control_rows(texts, bucket, self.schema)])


@dataclass(frozen=True)
class WindowStep(BucketStep):
    """Windows that are emitted once, when they close: state is read for those alone.

    Output: ``_part`` (the bucket), ``_control``, ``_end``, keys, partials, answers, sorted.
    """

    shape: StateShape

    @property
    def schema(self) -> pa.Schema:
        """See ``BucketStep.schema``."""
        own = [(PART, pa.int64()), (CONTROL, pa.string())]
        return pa.schema([*own, *self.shape.output])

    @property
    def operator_type(self) -> str:
        """See ``BucketStep.operator_type``."""
        return "window_aggregate"

    def chain_of(self, bucket: int) -> StateChain:
        """See ``BucketStep.chain_of``."""
        home, files = self.files_of(bucket)
        return StateChain(home, self.shape, files)

    def advance(self, bucket: int, new: pa.Table, closing: Closing) -> tuple[pa.Table, Files]:
        """See ``BucketStep.advance``."""
        merged = self.shape.merge([new])
        closes = _closes(merged, closing)
        stored, chain = self.chain_of(bucket).close(closing)
        files = chain.advance(merged.filter(pc.invert(closes)), closing)
        closed = self.shape.merge([*stored, merged.filter(closes)])
        return self.shape.shown(closed), files


def _in_order_of_parts(table: pa.Table) -> pa.Table:
    """The partials among the rows of a bucket, in the order of parts and sequences."""
    # Markers, which make Spark call the step for every bucket, have no part: leave them out.
    is_partial = pc.and_(pc.is_valid(table.column(PART)), pc.is_null(table.column(CONTROL)))
    places = np.flatnonzero(is_partial.to_numpy())
    part, sequence = (
        pc.fill_null(table.column(name), 0).to_numpy()[places] for name in (PART, SEQUENCE)
    )
    return table.take(pa.array(places[by_numbers((part, sequence))]))


def _closes(rows: pa.Table, closing: Closing) -> Any:
    if closing.now is None:
        return pa.array(np.zeros(rows.num_rows, np.bool_))
    return pc.less_equal(rows.column(END), closing.now)


def _entry(data: bytes) -> PartitionSnapshotEntry:
    return decode_part(data, PartitionSnapshotEntry, "state entry")
