"""Metrics of each source from a checkpoint: amounts, times, dead letters, watermarks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from laminar_dagster.core.document import spell_microseconds, to_utc_microseconds
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.manifest import CheckpointManifest, SourceReading
from laminar_dagster.core.offsets import describe_position

# How far the clocks of a source's producers and of this process may differ without a warning.
_TOLERANCE: Final = timedelta(minutes=1) // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class SourceFigures:
    """The metrics of one source in one epoch.

    Attributes:
        reading: None in a checkpoint without such measurements.
        dead_letters: Bad records that were set aside.
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
    """The metrics of every source of an epoch."""
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


@dataclass(frozen=True, slots=True)
class WatermarkAhead:
    """A watermark that is ahead of the clock: records with an earlier event time are late.

    Attributes:
        partition: Empty for the watermark of the source, if no partition's explains it.
        watermark: In microseconds since 1970.
        ahead: How far it is ahead of the clock.
    """

    source_id: SourceId
    partition: str
    watermark: int
    ahead: timedelta

    def __str__(self) -> str:
        """The text of a warning."""
        where = f"source {self.source_id}" + (f", {self.partition}" if self.partition else "")
        span = timedelta(seconds=int(self.ahead.total_seconds()))
        return (
            f"{where}: the watermark, {spell_microseconds(self.watermark)}, is {span} ahead of the "
            "clock, so what comes for the time until then is late; a branch from an epoch before "
            "puts it right (`laminar fork`)"
        )


def watermarks_ahead(
    manifest: CheckpointManifest | None, now: datetime
) -> tuple[WatermarkAhead, ...]:
    """The watermarks of a checkpoint that are ahead of a clock by more than clocks differ."""
    latest = to_utc_microseconds(now) + _TOLERANCE
    found: list[WatermarkAhead] = []
    for entry in manifest.sources if manifest else ():
        lanes = [
            (describe_position(position)[0], mark)
            for position, mark in zip(entry.positions, entry.watermarks, strict=False)
            if mark is not None and mark > latest
        ]
        if not lanes and entry.watermark is not None and entry.watermark > latest:
            lanes = [("", entry.watermark)]
        found += [
            WatermarkAhead(
                entry.source_id,
                partition,
                mark,
                timedelta(microseconds=mark - to_utc_microseconds(now)),
            )
            for partition, mark in lanes
        ]
    return tuple(found)


def newest_watermarks(manifest: CheckpointManifest) -> dict[SourceId, int]:
    """How far the furthest partition of each source has come, in microseconds since 1970."""
    found = {
        entry.source_id: [each for each in entry.watermarks if each is not None]
        for entry in manifest.sources
    }
    return {source: max(marks) for source, marks in found.items() if marks}


def _rate(records: int, micros: int) -> float | None:
    return records * 1_000_000 / micros if micros else None
