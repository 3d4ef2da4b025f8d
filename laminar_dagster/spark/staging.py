"""Writes a view's output to the attempt's folder, on the executors: for ``DataFrame.mapInArrow``.

One file for each partition of a source or bucket of a state, named after it, so that the files do
not depend on how many tasks Spark used. The step yields only short reports for the driver.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.config.contract_rules import ContractRules
from laminar_dagster.core import layout
from laminar_dagster.core.errors import LaminarError
from laminar_dagster.core.ids import CheckpointId, FileName, SinkId
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.spark.arrow_files import file_bytes, schema_fingerprint, sha256
from laminar_dagster.spark.columns import CONTROL, KEEP, PART
from laminar_dagster.spark.contracts import broken_rules, key_reports
from laminar_dagster.spark.keyed_rows import WEIGHT
from laminar_dagster.spark.partial_step import count_records

REPORT: Final = "_report"
# What the rows of a view have besides its columns.
OWN: Final = (PART, CONTROL, KEEP)


@dataclass(frozen=True)
class StageStep:
    """Stages the rows of a view for its sinks.

    Attributes:
        counts_records: Whether the rows are records of a source, not results of a window.
        takes_back_first: Whether the rows are net differences, which sinks apply in two turns: all
            retractions, then all insertions.
        contract: The contract's rules, checked on every file.
    """

    view: str
    sinks: tuple[SinkId, ...]
    counts_records: bool
    takes_back_first: bool
    contract: ContractRules
    attempt: CheckpointId
    store: ObjectStore = field(repr=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write files; yield reports."""
        kept: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
        for sequence, batch in enumerate(batches):
            reports = batch.column(CONTROL).drop_null().to_pylist()
            records = batch.filter(pc.is_null(batch.column(CONTROL)))
            keep = pc.fill_null(records.column(KEEP), False)
            if self.counts_records and records.num_rows:
                part = records.column(PART)[0].as_py()
                reports.append(count_records(self.view, part, sequence, keep))
            rows = records.filter(keep)
            for part in pc.unique(rows.column(PART)).to_pylist():
                mine = rows.filter(pc.equal(rows.column(PART), part))
                kept[part].append(mine.drop_columns(list(OWN)))
            if reports:
                yield _reported(*reports)
        for part in sorted(kept):
            for place, rows in self._in_turn(part, pa.Table.from_batches(kept[part])):
                try:
                    report = self._write(place, rows)
                except LaminarError as error:
                    report = json.dumps(error.to_record())
                yield _reported(report)
                for keys in key_reports(self.contract, self.view, place, rows):
                    yield _reported(keys)

    def _in_turn(self, part: int, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """Split rows into files whose names sort retractions of all buckets before insertions.

        Sinks take files in the order of their names; a row may be retracted in one bucket while
        its replacement is in another.
        """
        place = f"{part:08d}"
        if not self.takes_back_first or WEIGHT not in rows.column_names:
            yield place, rows
            return
        is_taken_back = pc.less(rows.column(WEIGHT), 0)
        for turn, mask in enumerate((is_taken_back, pc.invert(is_taken_back))):
            some = rows.filter(mask)
            if some.num_rows:
                yield f"{turn}-{place}", some

    def _write(self, place: str, rows: pa.Table) -> str:
        broken = broken_rules(self.contract, rows)
        data = file_bytes(rows)
        name = FileName(f"{self.view}-{place}.arrow")
        files = []
        for sink in self.sinks:
            path = layout.staged_path(sink, name)
            self.store.put(layout.checkpoint_key(self.attempt, path), data)
            files.append((sink, path))
        return json.dumps(
            {
                "staged": self.view,
                "files": files,
                "size_bytes": len(data),
                "sha256": sha256(data),
                "rows": rows.num_rows,
                "schema": schema_fingerprint(rows.schema),
                "broken": broken,
            }
        )


def _reported(*reports: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(reports)], names=[REPORT])
