"""A pipeline in memory that has something to show: readings, health, a source that is not told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from msgspec import structs

from laminar_dagster.core import layout
from laminar_dagster.core.errors import AcknowledgeFailed
from laminar_dagster.core.health import HealthReport, PartitionHealth
from laminar_dagster.core.ids import CheckpointId, FileName
from laminar_dagster.core.manifest import (
    CheckpointManifest,
    DeadLetterEntry,
    FileEntry,
    RecordCounts,
    SourceReading,
)
from laminar_dagster.core.offsets import KafkaPosition, SourcePosition
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import EpochOutput
from laminar_dagster.testing.memory_pipeline import MemoryEngine, MemoryLog, MemorySource

READING = SourceReading(
    records=0,
    size_bytes=1000,
    chunks=2,
    fetch_micros=500_000,
    decode_micros=250_000,
    pauses=3,
    errors=4,
    ahead=5,
    chunk_times=(0, 1, 0, 1),
)
# Of the first partition, in microseconds: the minute at which the clocks of tests stand.
NEWEST = 1_767_225_600_000_000


class ReadingEngine(MemoryEngine):
    """Tells of every epoch that reading took half a second, and that a record was bad, two late."""

    def compute(
        self, plan: EpochPlan, parent: CheckpointManifest | None, attempt: CheckpointId
    ) -> EpochOutput:
        output = super().compute(plan, parent, attempt)
        reading = structs.replace(READING, records=output.counts.read)
        name = output.sources[0].source_id
        files = []
        for rows, file in enumerate(("bad-0.arrow", "late-0.arrow"), 1):
            path = layout.dead_letter_path(name, FileName(file))
            self.store.put(layout.checkpoint_key(attempt, path), b"x")
            # The hash of the one byte.
            digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
            files.append(FileEntry(path=path, size_bytes=1, sha256=digest, rows=rows))
        counts = output.counts
        return replace(
            output,
            sources=(
                structs.replace(
                    output.sources[0],
                    reading=reading,
                    schema_ids=(7, 9),
                    watermarks=tuple(NEWEST - n for n in range(len(output.sources[0].positions))),
                ),
            ),
            dead_letters=(DeadLetterEntry(source_id=name, files=tuple(files)),),
            counts=RecordCounts(
                read=counts.read + 3, processed=counts.processed, dead_lettered=1, late=2
            ),
        )


@dataclass
class ObservedSource(MemorySource):
    """Tells how it does, and may be impossible to tell anything.

    Attributes:
        headroom: Of partition 0.
        asked: The positions with which it was asked.
    """

    log: MemoryLog
    headroom: float | None = None
    refuses: bool = False
    asked: list[tuple[SourcePosition, ...]] = field(default_factory=list)

    def health(self, positions: tuple[SourcePosition, ...]) -> HealthReport:
        self.asked.append(positions)
        stood = {
            each.partition: each.offset for each in positions if isinstance(each, KafkaPosition)
        }
        lags = [len(each) - stood.get(n, 0) for n, each in enumerate(self.log.partitions)]
        return HealthReport(
            True,
            f"connected to 1 broker(s), lag {sum(lags):,}",
            {"brokers": "1", "group_id": "readers"},
            tuple(
                PartitionHealth(f"numbers/{n}", lag, None if n else self.headroom)
                for n, lag in enumerate(lags)
            ),
        )

    def acknowledge(self, positions: tuple[SourcePosition, ...]) -> None:
        if self.refuses:
            raise AcknowledgeFailed(str(self.source_id), "the group is in use")
        super().acknowledge(positions)
