"""The figures of an epoch that was run: small enough to keep for every epoch of a long run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from laminar_dagster.cli import wording
from laminar_dagster.cli.tables import Column
from laminar_dagster.core.ids import CheckpointId, EpochNumber
from laminar_dagster.core.manifest import RecordCounts
from laminar_dagster.runtime.loop import EpochDone

COLUMNS: Final = (
    Column("epoch", right=True),
    Column("read", right=True),
    Column("processed", right=True),
    Column("filtered", right=True, optional=2),
    Column("late", right=True),
    Column("dead", right=True),
    Column("rows out", right=True),
    Column("watermark (UTC)", optional=3),
    Column("plan s", right=True, optional=6),
    Column("compute s", right=True, optional=4),
    Column("commit s", right=True, optional=5),
    Column("seconds", right=True),
    Column("records/s", right=True, optional=1),
)
_PARTS: Final = {
    "plan": ("Plan",),
    "compute": ("Compute", "Gate"),
    "commit": ("Prepare", "WriteManifest", "CommitSinks", "MoveLatest"),
}


@dataclass(frozen=True, slots=True)
class EpochSummary:
    """What an epoch did, and how long each step took this run.

    Attributes:
        rows: Put out, over all sinks.
        steps: Seconds by step, without the start of Spark.
    """

    epoch: EpochNumber
    checkpoint_id: CheckpointId
    counts: RecordCounts
    rows: int
    watermark: int | None
    steps: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, done: EpochDone, starting: float) -> EpochSummary:
        """Of a finished epoch; ``starting`` is how long its Compute waited for Spark."""
        manifest = done.manifest
        return cls(
            epoch=manifest.epoch,
            checkpoint_id=manifest.checkpoint_id,
            counts=manifest.counts,
            rows=sum(file.rows for sink in manifest.sinks for file in sink.files),
            watermark=manifest.watermark,
            steps=tuple(
                (step.name, max(0.0, step.seconds - starting * (step.name == "Compute")))
                for step in done.report.steps
            ),
        )

    @property
    def seconds(self) -> float:
        """All steps together."""
        return sum(seconds for _, seconds in self.steps)

    @property
    def records_per_second(self) -> float | None:
        """Read and carried through; None when this run did not compute the epoch."""
        if not self.seconds or "Compute" not in dict(self.steps):
            return None
        return self.counts.read / self.seconds

    def line(self) -> str:
        """In one line, for a log."""
        return (
            f"epoch {self.epoch}: {self.counts.read:,} read, {self.counts.late:,} late, "
            f"{self.counts.dead_lettered:,} dead, {self.rows:,} rows out, {self.seconds:.1f} s"
        )

    def cells(self) -> tuple[str, ...]:
        """For a table with ``COLUMNS``."""
        counts, speed = self.counts, self.records_per_second
        return (
            str(self.epoch),
            f"{counts.read:,}",
            f"{counts.processed:,}",
            f"{counts.filtered:,}",
            f"{counts.late:,}",
            f"{counts.dead_lettered:,}",
            f"{self.rows:,}",
            wording.microseconds(self.watermark),
            *(f"{self._took(names):.2f}" for names in _PARTS.values()),
            f"{self.seconds:.2f}",
            "" if speed is None else f"{speed:,.0f}",
        )

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        speed = self.records_per_second
        counts = self.counts
        return {
            "epoch": self.epoch,
            "checkpoint_id": self.checkpoint_id,
            "counts": {name: getattr(counts, name) for name in counts.__struct_fields__},
            "rows_out": self.rows,
            "watermark": self.watermark,
            "steps": [{"step": name, "seconds": round(seconds, 6)} for name, seconds in self.steps],
            "seconds": round(self.seconds, 6),
            "records_per_second": None if speed is None else round(speed, 3),
        }

    def _took(self, names: tuple[str, ...]) -> float:
        return sum(seconds for name, seconds in self.steps if name in names)
