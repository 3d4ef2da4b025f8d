"""What a checkpoint tells of the reading of each source: amounts, times, records set aside."""

from __future__ import annotations

from dataclasses import dataclass

from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.manifest import CheckpointManifest, SourceReading


@dataclass(frozen=True, slots=True)
class SourceFigures:
    """Of one source in one epoch.

    Attributes:
        reading: None in a checkpoint that does not say.
        dead_letters: Records that could not be decoded.
        late: Records that came too late for their windows.
    """

    source_id: SourceId
    reading: SourceReading | None
    schema_ids: tuple[int, ...] = ()
    dead_letters: int = 0
    late: int = 0

    @property
    def fetched_per_second(self) -> float | None:
        """Records for each second that a task waited for the source."""
        return _rate(self.reading.records, self.reading.fetch_micros) if self.reading else None

    @property
    def decoded_per_second(self) -> float | None:
        """Records for each second that a task spent on decoding."""
        return _rate(self.reading.records, self.reading.decode_micros) if self.reading else None


def figures_of(manifest: CheckpointManifest) -> tuple[SourceFigures, ...]:
    """Of every source of an epoch."""
    dead = {entry.source_id: entry.dead_rows for entry in manifest.dead_letters}
    late = {entry.source_id: entry.late_rows for entry in manifest.dead_letters}
    return tuple(
        SourceFigures(
            source_id=entry.source_id,
            reading=entry.reading,
            schema_ids=entry.schema_ids,
            dead_letters=dead.get(entry.source_id, 0),
            late=late.get(entry.source_id, 0),
        )
        for entry in manifest.sources
    )


def _rate(records: int, micros: int) -> float | None:
    return records * 1_000_000 / micros if micros else None
