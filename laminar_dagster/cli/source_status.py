"""How each source does, for ``laminar status``: lag, health, and what the last epoch read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from laminar_dagster.cli import wording
from laminar_dagster.cli.connections import amount_waiting
from laminar_dagster.cli.failures import failure_of
from laminar_dagster.cli.plain_documents import plain_moment
from laminar_dagster.cli.tables import Block, Column, Line, Table
from laminar_dagster.config.redaction import redact
from laminar_dagster.core.health import HealthReport
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.offsets import describe_position
from laminar_dagster.runtime.backlog import Backlog, SourceBacklog, distance
from laminar_dagster.runtime.figures import SourceFigures, figures_of, watermarks_ahead
from laminar_dagster.runtime.health import ANSWERS

# The others are in the JSON document.
_PARTITIONS_SHOWN: Final = 20
_NEVER: Final = SourceFigures(SourceId("never"), None)


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """All that is shown of the sources.

    Attributes:
        manifest: The newest checkpoint; None before the first epoch.
        least_headroom: Below this, it is told that records may expire unread.
    """

    backlog: Backlog
    health: Mapping[SourceId, HealthReport]
    manifest: CheckpointManifest | None
    least_headroom: float

    def documents(self) -> list[dict[str, Any]]:
        """For programs."""
        figures = (
            {each.source_id: each for each in figures_of(self.manifest)} if self.manifest else {}
        )
        return [
            self._document(each, figures.get(each.source_id, _NEVER))
            for each in self.backlog.sources
        ]

    def blocks(self) -> Iterator[Block]:
        """For people."""
        yield self._waiting()
        told = {name: each for name, each in self.health.items() if each is not ANSWERS}
        answered = {name: each for name, each in told.items() if not each.error}
        if answered:
            rows = [(str(name), each.message) for name, each in answered.items()]
            yield Table((Column("source"), Column("health", folds=24)), rows, "Health")
        yield from self._partitions(told)
        yield from self._reading()

    def warnings(self) -> list[str]:
        """What somebody should do something about."""
        expiring = [
            f"source {name}: {each.partition} may soon delete records that were not read: "
            f"{each.lag:,} wait, and only {each.headroom or 0:.1%} of what it holds has been read"
            for name, report in self.health.items()
            for each in report.scarce(self.least_headroom)
        ]
        ahead = watermarks_ahead(self.manifest, self.backlog.looked_at)
        told = [*map(str, ahead[:_PARTITIONS_SHOWN])]
        if len(ahead) > _PARTITIONS_SHOWN:
            more = len(ahead) - _PARTITIONS_SHOWN
            told.append(f"{wording.count(more, 'partition')} more with a watermark ahead of now")
        return [*expiring, *told]

    def _document(self, source: SourceBacklog, figures: SourceFigures) -> dict[str, Any]:
        return {
            "source": source.source_id,
            "partitions": len(source.ranges),
            "partitions_waiting": len(source.waiting),
            "waiting": source.amount,
            "unit": source.unit,
            "is_empty": None if source.error else source.is_empty,
            "error": failure_of(source.error).as_document() if source.error else None,
            "lag": self._lag(source),
            "health": self._health(self.health[source.source_id]),
            "reading": _reading(figures),
        }

    def _lag(self, source: SourceBacklog) -> list[dict[str, Any]]:
        """What waits in each partition, counted in the source's unit."""
        headroom = {
            each.partition: each.headroom for each in self.health[source.source_id].partitions
        }
        found = []
        for part in source.ranges if source.unit else ():
            name = describe_position(part.start)[0]
            found.append({"partition": name, "lag": distance(part), "headroom": headroom.get(name)})
        return found

    def _health(self, report: HealthReport) -> dict[str, Any]:
        success = self.manifest.completed_at if self.manifest else None
        return {
            "healthy": report.healthy,
            "message": redact(report.message),
            "total_lag": report.total_lag if report is not ANSWERS else None,
            "headroom": report.headroom,
            "last_success": success and plain_moment(success),
            "details": dict(report.details),
        }

    def _waiting(self) -> Table:
        manifest = self.manifest
        marks = {each.source_id: each.watermark for each in manifest.sources} if manifest else {}
        return Table(
            (Column("source"), Column("waiting", folds=24), Column("watermark (UTC)", optional=1)),
            [
                (
                    str(each.source_id),
                    f"cannot be asked: {each.error}" if each.error else amount_waiting(each),
                    wording.microseconds(marks.get(each.source_id)),
                )
                for each in self.backlog.sources
            ],
            "Sources",
        )

    def _partitions(self, told: Mapping[SourceId, HealthReport]) -> Iterator[Block]:
        found = [(str(name), each) for name, report in told.items() for each in report.partitions]
        found.sort(key=lambda each: (-each[1].lag, each[0], each[1].partition))
        if not found:
            return
        yield Table(
            (
                Column("source"),
                Column("partition", folds=16),
                Column("lag", right=True),
                Column("headroom", right=True, optional=1),
            ),
            [
                (
                    name,
                    each.partition,
                    f"{each.lag:,}",
                    "" if each.headroom is None else f"{each.headroom:.1%}",
                )
                for name, each in found[:_PARTITIONS_SHOWN]
            ],
            "Partitions",
        )
        if len(found) > _PARTITIONS_SHOWN:
            more = wording.count(len(found) - _PARTITIONS_SHOWN, "partition")
            yield Line(f"{more} with less; `--json` lists them all.")

    def _reading(self) -> Iterator[Block]:
        figures = figures_of(self.manifest) if self.manifest else ()
        known = [(each, each.reading) for each in figures if each.reading]
        if not known or self.manifest is None:
            return
        yield Table(
            (
                Column("source"),
                Column("records", right=True),
                Column("size", right=True),
                Column("fetched/s", right=True, optional=2),
                Column("decoded/s", right=True, optional=2),
                Column("pauses", right=True, optional=1),
                Column("errors", right=True, optional=1),
                Column("dead", right=True),
                Column("late", right=True),
                Column("ahead", right=True, optional=1),
            ),
            [
                (
                    str(each.source_id),
                    f"{reading.records:,}",
                    wording.size(reading.size_bytes),
                    _rounded(each.fetched_per_second),
                    _rounded(each.decoded_per_second),
                    f"{reading.pauses:,}",
                    f"{reading.errors:,}",
                    f"{each.dead_letters:,}",
                    f"{each.late:,}",
                    f"{reading.ahead:,}",
                )
                for each, reading in known
            ],
            f"Read in epoch {self.manifest.epoch}",
        )


def _reading(figures: SourceFigures) -> dict[str, Any] | None:
    reading = figures.reading
    if reading is None:
        return None
    return {
        "records": reading.records,
        "size_bytes": reading.size_bytes,
        "chunks": reading.chunks,
        "fetch_seconds": reading.fetch_micros / 1_000_000,
        "decode_seconds": reading.decode_micros / 1_000_000,
        "fetched_per_second": _whole(figures.fetched_per_second),
        "decoded_per_second": _whole(figures.decoded_per_second),
        "pauses": reading.pauses,
        "errors": reading.errors,
        "chunk_p99_milliseconds": reading.chunk_millis(0.99),
        "dead_letters": figures.dead_letters,
        "late": figures.late,
        "ahead": reading.ahead,
        "schema_ids": list(figures.schema_ids),
    }


def _whole(rate: float | None) -> int | None:
    return None if rate is None else round(rate)


def _rounded(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.0f}"
