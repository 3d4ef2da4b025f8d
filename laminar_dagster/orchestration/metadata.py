"""Plans and manifests as Dagster's metadata: numbers, which Dagster plots, and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import dagster as dg

from laminar_dagster.core.errors import LaminarError
from laminar_dagster.core.ids import SinkId
from laminar_dagster.core.manifest import CheckpointManifest, FileEntry
from laminar_dagster.core.offsets import describe_position, lane_of
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.recovery import RecoveryResult
from laminar_dagster.core.reference import ReferencePin
from laminar_dagster.core.transactions import EpochTransactionRecord
from laminar_dagster.core.upkeep import describe_upkeep
from laminar_dagster.runtime.backlog import Backlog, distance
from laminar_dagster.runtime.epoch import StepTaken
from laminar_dagster.runtime.figures import figures_of
from laminar_dagster.runtime.rerun import Rerun

Metadata = dict[str, dg.MetadataValue]
Row = Mapping[str, str | int | float | bool]

# The most rows of a table that Dagster's pages show; `laminar epochs show` shows all.
_MOST_ROWS: Final = 200
_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def plan_metadata(plan: EpochPlan) -> Metadata:
    """What an epoch reads: the range of every partition, idle ones, losses that were accepted."""
    idle = {(source.source_id, lane_of(each)) for source in plan.sources for each in source.idle}
    rows: list[Row] = []
    for source in plan.sources:
        for part in source.ranges:
            lane, start = describe_position(part.start)
            _, end = describe_position(part.end)
            rows.append(
                {
                    "source": str(source.source_id),
                    "partition": lane,
                    "from": start,
                    "to": end,
                    "amount": distance(part),
                    "idle": (source.source_id, lane_of(part.start)) in idle,
                }
            )
    gaps: list[Row] = [
        {
            "source": str(source.source_id),
            "partition": describe_position(gap.lost.start)[0],
            "lost from": describe_position(gap.lost.start)[1],
            "up to": describe_position(gap.lost.end)[1],
            "reason": gap.reason,
        }
        for source in plan.sources
        for gap in source.gaps
    ]
    upkeep: Metadata = {}
    if plan.upkeep:
        upkeep["upkeep"] = dg.MetadataValue.text(describe_upkeep(plan.upkeep))
    return {
        "epoch": dg.MetadataValue.text(str(plan.epoch)),
        **upkeep,
        "clock": dg.MetadataValue.timestamp(plan.clock),
        "fingerprint": dg.MetadataValue.text(plan.fingerprint),
        "parent": dg.MetadataValue.text(plan.parent.checkpoint_id if plan.parent else "none"),
        "partitions_with_data": dg.MetadataValue.int(
            sum(not part.is_empty for source in plan.sources for part in source.ranges)
        ),
        "partitions_idle": dg.MetadataValue.int(len(idle)),
        **_age_metadata(plan),
        **_table("ranges", rows),
        **_table("references", _pinned(plan.references)),
        **_table("gaps", gaps),
    }


def manifest_metadata(manifest: CheckpointManifest) -> Metadata:
    """A checkpoint: its counts, watermark, state, positions, dead letters and origin."""
    counts = manifest.counts
    seconds = (manifest.completed_at - manifest.started_at).total_seconds()
    # What somebody looks for comes first, hashes come last: Dagster shows metadata in this order.
    found: Metadata = {
        "epoch": dg.MetadataValue.text(str(manifest.epoch)),
        "records_read": dg.MetadataValue.int(counts.read),
        "records_processed": dg.MetadataValue.int(counts.processed),
        "records_filtered": dg.MetadataValue.int(counts.filtered),
        "records_late": dg.MetadataValue.int(counts.late),
        "records_dead_lettered": dg.MetadataValue.int(counts.dead_lettered),
        "records_skipped": dg.MetadataValue.int(counts.skipped),
        "rows_added": dg.MetadataValue.int(counts.added),
        "rows_out": dg.MetadataValue.int(sum(rows_of(each.files) for each in manifest.sinks)),
    }
    if seconds > 0:
        found["records_per_second"] = dg.MetadataValue.float(round(counts.read / seconds, 3))
    if manifest.watermark is not None:
        found["watermark"] = dg.MetadataValue.timestamp(moment(manifest.watermark))
    found |= {
        "state_bytes": dg.MetadataValue.int(manifest.total_size_bytes),
        "state_files": dg.MetadataValue.int(
            sum(len(entry.partitions) for entry in manifest.operators)
        ),
        "prepared_at": dg.MetadataValue.timestamp(manifest.completed_at),
        **reading_metadata(manifest),
    }
    origin: Metadata = {
        "checkpoint": dg.MetadataValue.text(manifest.checkpoint_id),
        "previous_checkpoint": dg.MetadataValue.text(manifest.previous_checkpoint_id or "none"),
        "fingerprint": dg.MetadataValue.text(manifest.fingerprint),
        "plan_sha256": dg.MetadataValue.text(manifest.plan_checksum),
    }
    positions: list[Row] = [
        {
            "source": str(entry.source_id),
            "partition": describe_position(position)[0],
            "position": describe_position(position)[1],
            "watermark": _spelled(entry.watermarks[i] if i < len(entry.watermarks) else None),
        }
        for entry in manifest.sources
        for i, position in enumerate(entry.positions)
    ]
    letters: list[Row] = [
        {
            "source": str(entry.source_id),
            "dead": entry.dead_rows,
            "late": entry.late_rows,
            "files": len(entry.files),
        }
        for entry in manifest.dead_letters
    ]
    added: list[Row] = [
        {
            "operator": str(entry.operator_id),
            "partial": each.partial,
            "since epoch": int(each.epoch),
            "shows": each.meaning,
        }
        for entry in manifest.operators
        for each in entry.added
    ]
    tables = {
        **_table("positions", positions),
        **_table("references", _pinned(manifest.references)),
        **_table("dead_letters", letters),
        **_table("added_to_state", added),
    }
    return {**found, **tables, **origin}


def _age_metadata(plan: EpochPlan) -> Metadata:
    """The size of each reference table, and the time since it was checked: one plot for each."""
    found: Metadata = {}
    for pin in plan.references:
        name, age = pin.reference_id, (plan.clock - pin.checked_at).total_seconds()
        found |= {
            f"reference_rows_{name}": dg.MetadataValue.int(pin.rows),
            f"reference_bytes_{name}": dg.MetadataValue.int(pin.size_bytes),
            f"reference_age_seconds_{name}": dg.MetadataValue.float(round(age, 3)),
        }
    return found


def _pinned(pins: Iterable[ReferencePin]) -> list[Row]:
    return [
        {
            "reference": str(pin.reference_id),
            "copied for epoch": int(pin.epoch),
            "rows": pin.rows,
            "bytes": pin.size_bytes,
            "copied at": pin.copied_at.isoformat(),
            "looked at": pin.checked_at.isoformat(),
            "away since": pin.unavailable_since.isoformat() if pin.unavailable_since else "",
            "copy": pin.copy_id,
        }
        for pin in pins
    ]


def reading_metadata(manifest: CheckpointManifest) -> Metadata:
    """The metrics of reading each source: numbers, one plot for each."""
    found: Metadata = {}
    for each in figures_of(manifest):
        name, reading = each.source_id, each.reading
        if reading is not None:
            found |= {
                f"records_{name}": dg.MetadataValue.int(reading.records),
                f"bytes_{name}": dg.MetadataValue.int(reading.size_bytes),
                f"fetch_seconds_{name}": _seconds(reading.fetch_micros),
                f"decode_seconds_{name}": _seconds(reading.decode_micros),
                f"pauses_{name}": dg.MetadataValue.int(reading.pauses),
                f"errors_{name}": dg.MetadataValue.int(reading.errors),
                f"dead_letters_{name}": dg.MetadataValue.int(each.dead_letters),
                f"late_{name}": dg.MetadataValue.int(each.late),
                f"ahead_{name}": dg.MetadataValue.int(reading.ahead),
            }
        if each.schema_ids:
            ids = ", ".join(map(str, each.schema_ids))
            found[f"schema_ids_{name}"] = dg.MetadataValue.text(ids)
    return found


def state_metadata(manifest: CheckpointManifest) -> Metadata:
    """The state of every operator, and every file of it."""
    rows: list[Row] = [
        {
            "operator": str(entry.operator_id),
            "file": part.path,
            "bytes": part.size_bytes,
            "rows": part.rows if part.rows is not None else -1,
            "epoch": int(manifest.origin_of(part).epoch),
            "sha256": part.sha256,
        }
        for entry in manifest.operators
        for part in entry.partitions
    ]
    return {
        "state_bytes": dg.MetadataValue.int(manifest.total_size_bytes),
        "state_files": dg.MetadataValue.int(len(rows)),
        "state_bytes_written": dg.MetadataValue.int(
            sum(
                part.size_bytes
                for entry in manifest.operators
                for part in entry.partitions
                if part.origin is None
            )
        ),
        **_table("files", rows),
    }


def output_metadata(manifest: CheckpointManifest, sinks: Iterable[SinkId]) -> Metadata:
    """What was staged for sinks: rows, bytes, hashes."""
    wanted = set(sinks)
    entries = [entry for entry in manifest.sinks if entry.sink_id in wanted]
    files: list[Row] = [
        {
            "sink": str(entry.sink_id),
            "file": file.path,
            "bytes": file.size_bytes,
            "rows": file.rows,
            "sha256": file.sha256,
        }
        for entry in entries
        for file in entry.files
    ]
    found: Metadata = {}
    if entries:
        found["dagster/partition_row_count"] = dg.MetadataValue.int(rows_of(entries[0].files))
        found["output_sha256"] = dg.MetadataValue.text(entries[0].output_sha256)
    return {**found, **_table("files", files)}


def backlog_metadata(backlog: Backlog, manifest: CheckpointManifest) -> Metadata:
    """The backlog beyond a checkpoint, and how far event time is behind the clock."""
    found: Metadata = {}
    for source in backlog.sources:
        if source.amount is not None and source.unit:
            found[f"waiting_{source.unit}_{source.source_id}"] = dg.MetadataValue.int(source.amount)
    if manifest.watermark is not None:
        behind = (backlog.looked_at - moment(manifest.watermark)).total_seconds()
        found["event_time_lag_seconds"] = dg.MetadataValue.float(round(behind, 3))
    rows: list[Row] = [
        {
            "source": str(source.source_id),
            "partition": describe_position(part.start)[0],
            "lag": distance(part),
            "unit": source.unit or "",
        }
        for source in backlog.sources
        for part in source.waiting
    ]
    rows.sort(key=lambda row: -int(row["lag"]))
    return {**found, **_table("waiting", rows)}


def duration_metadata(steps: Sequence[StepTaken]) -> Metadata:
    """How long each step took."""
    return {
        f"seconds_{_spelled_small(step.name)}": dg.MetadataValue.float(round(step.seconds, 4))
        for step in steps
    }


def transaction_metadata(record: EpochTransactionRecord) -> Metadata:
    """How a sink's transaction went; numbers, so that Dagster plots them."""
    found: Metadata = {}
    if record.outcome is not None:
        found["transaction"] = dg.MetadataValue.text(str(record.outcome))
    for name, seconds in (
        ("begin_seconds", record.begin_seconds),
        ("commit_seconds", record.commit_seconds),
    ):
        if seconds is not None:
            found[name] = dg.MetadataValue.float(round(seconds, 6))
    return found


def _spelled_small(name: str) -> str:
    """``CommitSinks`` as ``commit_sinks``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def recovery_metadata(done: RecoveryResult) -> Metadata:
    """What a recovery found and did."""
    found: Metadata = {
        "epoch": dg.MetadataValue.text(str(done.epoch)),
        "recovery": dg.MetadataValue.text("dry run" if done.is_dry_run else "done"),
        "objects_mended": dg.MetadataValue.int(0 if done.is_dry_run else len(done.repairs)),
        "objects_damaged": dg.MetadataValue.int(len(done.repairs) + len(done.not_repaired)),
        "fallback_attempts": dg.MetadataValue.int(done.fallback_attempts),
        "bytes_read": dg.MetadataValue.int(done.bytes_downloaded),
        "seconds_recovery": dg.MetadataValue.float(round(done.recovery_duration, 3)),
    }
    return found


def rerun_metadata(done: Rerun) -> Metadata:
    """The outcome of running a committed epoch again."""
    rows: list[Row] = [
        {
            "kind": each.kind,
            "name": each.name,
            "committed": each.committed,
            "again": each.again,
        }
        for each in done.differences
    ]
    absent: Metadata = {}
    if done.absent:
        absent["sinks_not_compared"] = dg.MetadataValue.text(", ".join(done.absent))
    return {
        "rerun": dg.MetadataValue.text("identical" if done.is_identical else "different"),
        "hashes_compared": dg.MetadataValue.int(done.compared),
        **absent,
        **_table("differences", rows),
    }


def error_metadata(error: LaminarError, shown: Mapping[str, str]) -> Metadata:
    """An error's fields, each as text."""
    return {
        "kind": dg.MetadataValue.text(error.kind),
        **{name: dg.MetadataValue.text(value) for name, value in shown.items() if value},
    }


def rows_of(files: Iterable[FileEntry]) -> int:
    """How many rows files hold."""
    return sum(file.rows for file in files)


def moment(micros: int) -> datetime:
    """Microseconds since 1970 as a time, clamped to the range of ``datetime``."""
    try:
        return _UNIX_EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        last = datetime.max.replace(tzinfo=UTC)
        return last if micros > 0 else datetime.min.replace(tzinfo=UTC)


def _seconds(micros: int) -> dg.MetadataValue:
    return dg.MetadataValue.float(round(micros / 1_000_000, 4))


def _spelled(micros: int | None) -> str:
    return "none yet" if micros is None else moment(micros).isoformat()


def _table(name: str, rows: Sequence[Row]) -> Metadata:
    """Rows as a table; nothing when there are none."""
    if not rows:
        return {}
    found: Metadata = {
        name: dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in rows[:_MOST_ROWS]])
    }
    if len(rows) > _MOST_ROWS:
        found[f"{name}_not_shown"] = dg.MetadataValue.int(len(rows) - _MOST_ROWS)
    return found
