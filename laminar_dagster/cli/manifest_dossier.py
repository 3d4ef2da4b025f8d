"""A checkpoint for people to read: every part of its manifest, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from laminar_dagster.cli import wording
from laminar_dagster.cli.pinned_tables import pinned_tables
from laminar_dagster.cli.tables import Block, Column, Fields, Line, Table
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.manifest import (
    CheckpointManifest,
    FileEntry,
    PartitionSnapshotEntry,
    RecordCounts,
    SourceOffsetEntry,
)
from laminar_dagster.core.offsets import Gap, describe_position

# As many files as fit on a screen or two.
ROWS_SHOWN: Final = 50


def dossier(
    manifest: CheckpointManifest, now: datetime, *, is_latest: bool, every_file: bool
) -> Iterator[Block]:
    """Everything the manifest says; of many files the first ones, unless every one is asked for."""
    yield Fields(
        [
            ("checkpoint", manifest.checkpoint_id),
            ("epoch", str(manifest.epoch)),
            ("latest", "yes" if is_latest else "no"),
            *head_fields(manifest, now),
        ]
    )
    yield from operators(manifest)
    yield from sources(manifest)
    yield from pinned_tables(manifest.references)
    yield from output(manifest)
    yield from files(manifest, every_file=every_file)
    if manifest.metadata:
        yield Table(
            (Column("name"), Column("value", folds=20)),
            sorted(manifest.metadata.items()),
            "Metadata",
        )


def head_fields(manifest: CheckpointManifest, now: datetime) -> list[tuple[str, str]]:
    """What a checkpoint is, but for its id and epoch."""
    committed = wording.timestamp(manifest.completed_at)
    took = wording.duration(manifest.completed_at - manifest.started_at)
    return [
        ("pipeline", manifest.pipeline),
        ("fingerprint", manifest.fingerprint),
        ("plan", manifest.plan_checksum),
        ("parent", manifest.previous_checkpoint_id or "none"),
        ("started", f"{wording.timestamp(manifest.started_at)} UTC"),
        ("committed", f"{committed} UTC, {wording.ago(manifest.completed_at, now)}, took {took}"),
        ("watermark", with_zone(manifest.watermark)),
        ("records", _balance(manifest.counts)),
        ("state", wording.size(manifest.total_size_bytes)),
        ("unaligned", "yes" if manifest.is_unaligned else "no"),
        ("format", f"version {manifest.version}"),
    ]


def _balance(counts: RecordCounts) -> str:
    """Where every record went. What only some formats have is told only where there is any."""
    added = f" + {counts.added:,} added" if counts.added else ""
    skipped = f" + {counts.skipped:,} skipped" if counts.skipped else ""
    return (
        f"{counts.read:,} read{added} = {counts.processed:,} processed"
        f" + {counts.filtered:,} filtered + {counts.dead_lettered:,} dead-lettered"
        f" + {counts.late:,} late{skipped}"
    )


def operators(manifest: CheckpointManifest) -> Iterator[Block]:
    """The state of each operator, in figures, and what has missed a part of it."""
    if manifest.operators:
        yield _operators(manifest)
    added = [
        (each.operator_id, addition.partial, str(addition.epoch), addition.meaning)
        for each in manifest.operators
        for addition in each.added
    ]
    if added:
        columns = (
            Column("operator"),
            Column("partial", folds=12),
            Column("since epoch", right=True),
            Column("shows", folds=12),
        )
        yield Table(columns, added, "Added to state that was there")


def sources(manifest: CheckpointManifest) -> Iterator[Block]:
    """Where each source stands, and what it took to read it."""
    if manifest.sources:
        yield _sources(manifest)
    read = [entry for entry in manifest.sources if entry.reading is not None]
    if read:
        yield _readings(read)


def output(manifest: CheckpointManifest) -> Iterator[Block]:
    """What was lost, what the sinks are to commit, and what was kept aside."""
    lost = [(entry.source_id, gap) for entry in manifest.sources for gap in entry.gaps]
    yield from gaps(lost)
    if manifest.sinks:
        yield _sinks(manifest)
    if manifest.dead_letters:
        yield _dead_letters(manifest)


def with_zone(micros: int | None) -> str:
    """A watermark, with the zone that it is written in."""
    return "none yet" if micros is None else f"{wording.microseconds(micros)} UTC"


def _operators(manifest: CheckpointManifest) -> Table:
    columns = (
        Column("operator"),
        Column("type"),
        Column("backend", optional=2),
        Column("partitions", right=True),
        Column("files", right=True),
        Column("deltas", right=True, optional=1),
        Column("size", right=True),
        Column("schema", optional=3),
    )
    rows = [
        (
            entry.operator_id,
            entry.operator_type,
            entry.state_backend,
            f"{len({part.partition_id for part in entry.partitions}):,}",
            f"{len(entry.partitions):,}",
            f"{sum(part.is_incremental for part in entry.partitions):,}",
            wording.size(sum(part.size_bytes for part in entry.partitions)),
            entry.schema_fingerprint or "",
        )
        for entry in manifest.operators
    ]
    return Table(columns, rows, "Operators")


def _sources(manifest: CheckpointManifest) -> Table:
    columns = (
        Column("source"),
        Column("partition", folds=12),
        Column("position", folds=12),
        Column("watermark (UTC)", optional=1),
        Column("schema", optional=2),
    )
    rows = []
    for entry in manifest.sources:
        schema = entry.schema_fingerprint or ""
        if not entry.positions:
            rows.append((entry.source_id, "", "none yet", "", schema))
        for index, position in enumerate(entry.positions):
            watermark = entry.watermarks[index] if index < len(entry.watermarks) else None
            lane, place = describe_position(position)
            shown = wording.microseconds(watermark)
            rows.append((entry.source_id, lane, place, shown, schema))
        if entry.watermark is not None:
            shown = wording.microseconds(entry.watermark)
            rows.append((entry.source_id, "all", "", shown, schema))
    return Table(columns, rows, "Sources")


def _readings(entries: Sequence[SourceOffsetEntry]) -> Table:
    columns = (
        Column("source"),
        Column("records", right=True),
        Column("bytes", right=True),
        Column("chunks", right=True, optional=2),
        Column("fetch s", right=True),
        Column("decode s", right=True),
        Column("p99 ms", right=True, optional=1),
        Column("pauses", right=True, optional=1),
        Column("errors", right=True, optional=1),
        Column("schema ids", optional=1),
    )
    rows = [
        (
            entry.source_id,
            f"{reading.records:,}",
            wording.size(reading.size_bytes),
            f"{reading.chunks:,}",
            f"{reading.fetch_micros / 1e6:.2f}",
            f"{reading.decode_micros / 1e6:.2f}",
            "" if (slowest := reading.chunk_millis(0.99)) is None else f"{slowest:,}",
            f"{reading.pauses:,}",
            f"{reading.errors:,}",
            ", ".join(map(str, entry.schema_ids)),
        )
        for entry in entries
        if (reading := entry.reading) is not None
    ]
    return Table(columns, rows, "Reading")


def gaps(lost: Sequence[tuple[SourceId, Gap]]) -> Iterator[Block]:
    """What was lost, by source."""
    if not lost:
        return
    columns = (
        Column("source"),
        Column("partition", folds=12),
        Column("lost from"),
        Column("up to"),
        Column("reason", folds=12),
    )
    rows = []
    for source_id, gap in lost:
        lane, start = describe_position(gap.lost.start)
        _, end = describe_position(gap.lost.end)
        rows.append((source_id, lane, start, end, gap.reason))
    yield Table(columns, rows, "Gaps: records that were lost before they were read")


def _sinks(manifest: CheckpointManifest) -> Table:
    columns = (
        Column("sink"),
        Column("joined at epoch", right=True),
        Column("rows", right=True),
        Column("files", right=True),
        Column("size", right=True),
        Column("output sha256", optional=1),
        Column("schema", optional=2),
    )
    rows = [
        (
            entry.sink_id,
            str(entry.joined_at),
            *_totals(entry.files),
            wording.short_hash(entry.output_sha256),
            entry.schema_fingerprint or "",
        )
        for entry in manifest.sinks
    ]
    return Table(columns, rows, "Sinks")


def _dead_letters(manifest: CheckpointManifest) -> Table:
    columns = (
        Column("source"),
        Column("dead", right=True),
        Column("late", right=True),
        Column("files", right=True),
        Column("size", right=True),
    )
    rows = []
    for entry in manifest.dead_letters:
        _, files_, size = _totals(entry.files)
        rows.append((entry.source_id, f"{entry.dead_rows:,}", f"{entry.late_rows:,}", files_, size))
    return Table(columns, rows, "Dead letters and late records")


def _totals(files: tuple[FileEntry, ...]) -> tuple[str, str, str]:
    return (
        f"{sum(file.rows for file in files):,}",
        f"{len(files):,}",
        wording.size(sum(file.size_bytes for file in files)),
    )


def files(manifest: CheckpointManifest, *, every_file: bool) -> Iterator[Block]:
    """Every file that the checkpoint consists of; of many the first ones, unless asked for."""
    limit = None if every_file else ROWS_SHOWN
    columns = (
        Column("file", folds=30),
        Column("size", right=True),
        Column("rows", right=True, optional=1),
        Column("epoch", right=True, optional=2),
        Column("event time (UTC)", optional=3),
        Column("sha256"),
    )
    rows = [_state_row(manifest, part) for entry in manifest.operators for part in entry.partitions]
    written = [entry.files for entry in manifest.sinks]
    written += [entry.files for entry in manifest.dead_letters]
    for group in written:
        for file in group:
            size, digest = wording.size(file.size_bytes), wording.short_hash(file.sha256)
            rows.append((file.path, size, f"{file.rows:,}", str(manifest.epoch), "", digest))
    for pin in manifest.references:
        for copied in pin.files:
            size, digest = wording.size(copied.size_bytes), wording.short_hash(copied.sha256)
            rows.append((pin.key_of(copied), size, f"{copied.rows:,}", str(pin.epoch), "", digest))
    if not rows:
        return
    yield Table(columns, rows[:limit], "Files, and the epoch that wrote them")
    if limit is not None and len(rows) > limit:
        yield Line(f"{len(rows) - limit:,} more; --files shows every one.")


def _state_row(manifest: CheckpointManifest, part: PartitionSnapshotEntry) -> tuple[str, ...]:
    between = ""
    if part.event_time:
        first, last = part.event_time
        between = f"{wording.microseconds(first)} to {wording.microseconds(last)}"
    return (
        part.path,
        wording.size(part.size_bytes),
        "" if part.rows is None else f"{part.rows:,}",
        str(manifest.origin_of(part).epoch),
        between,
        wording.short_hash(part.sha256),
    )
