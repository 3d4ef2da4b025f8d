"""The asset checks of a pipeline: what blocks an epoch, and what only warns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import dagster as dg

from laminar_dagster.config.model import Place
from laminar_dagster.config.redaction import redact
from laminar_dagster.core import gate
from laminar_dagster.core.errors import GateFailed, LaminarError
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.orchestration.asset_specs import PLAN, STATE
from laminar_dagster.orchestration.stream import Stream
from laminar_dagster.runtime.backlog import Backlog, SourceBacklog
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.figures import watermarks_ahead
from laminar_dagster.runtime.health import ask_health

CONTRACT: Final = "contract"
ACCOUNTING: Final = "record_accounting"
CONTIGUITY: Final = "offset_contiguity"
SINK_FIT: Final = "sink_fit"
SINK_KEYS: Final = "sink_keys"
LAG: Final = "lag"
STATE_GROWTH: Final = "state_growth"
RETENTION: Final = "retention"
HEADROOM: Final = "retention_headroom"
REFERENCES: Final = "reference_tables"
WATERMARK_AHEAD: Final = "watermark_ahead"

# The check of state growth compares with the state so many checkpoints back.
_LOOK_BACK: Final = 10
# Growth is measured from this size at least: smaller state varies with every window.
_SMALL_STATE: Final = 16 * 1024 * 1024
# A description lists so many problems at most: a source may have thousands of partitions.
_MOST_TOLD: Final = 10


def epoch_checks(stream: Stream) -> list[dg.AssetCheckSpec]:
    """What is checked whenever an epoch is computed."""
    plan, state = stream.names.asset(PLAN), stream.names.asset(STATE)
    contracts = [
        dg.AssetCheckSpec(
            CONTRACT,
            asset=stream.view_key(each.view),
            description=f"Every row is as the contract says: {_shown(stream, each.place)}",
            blocking=True,
        )
        for each in stream.model.contracts
    ]
    references = [
        dg.AssetCheckSpec(
            REFERENCES,
            asset=plan,
            description="Every reference table answered when it was due, and no older copy had to "
            "do. Warns only.",
        )
    ]
    keys = [
        dg.AssetCheckSpec(
            SINK_KEYS,
            asset=state,
            description="No two rows have one key of a sink whose view does not say so: they are "
            "counted, with those that the sink holds.",
            blocking=True,
        )
    ]
    watermarks = [
        dg.AssetCheckSpec(
            WATERMARK_AHEAD,
            asset=state,
            description="No watermark is ahead of the clock: everything until then would be late. "
            "Warns only.",
        )
    ]
    return [
        *contracts,
        *(watermarks if _has_watermarks(stream) else ()),
        *(references if stream.model.references else ()),
        *(keys if _counts_rows(stream) else ()),
        dg.AssetCheckSpec(
            ACCOUNTING,
            asset=state,
            description="read = processed + filtered + dead-lettered + late, in every view.",
            blocking=True,
        ),
        dg.AssetCheckSpec(
            CONTIGUITY,
            asset=plan,
            description="Every range begins where the last epoch ended, and was read to its end.",
            blocking=True,
        ),
        dg.AssetCheckSpec(
            SINK_FIT,
            asset=state,
            description="Every sink that answers can take what is staged: tables, columns, types, "
            "rights, and the size of a transaction.",
            blocking=True,
        ),
        dg.AssetCheckSpec(
            LAG, asset=plan, description="Not more waits than a few epochs take. Warns only."
        ),
        dg.AssetCheckSpec(
            RETENTION,
            asset=plan,
            description="The sources still hold what the oldest checkpoint kept has read, so that "
            "every epoch since can be run again. Warns only.",
        ),
        dg.AssetCheckSpec(
            HEADROOM,
            asset=plan,
            description="No source is about to delete records before they are read. Warns only.",
        ),
        dg.AssetCheckSpec(
            STATE_GROWTH,
            asset=state,
            description="The state does not grow without end. Warns only.",
        ),
    ]


def refused(stream: Stream, error: GateFailed) -> dg.AssetCheckResult:
    """The check that an epoch did not pass."""
    names = {
        gate.CONTRACT: (
            stream.view_key(error.subject) if error.subject else stream.names.asset(STATE),
            CONTRACT,
        ),
        gate.RECORD_ACCOUNTING: (stream.names.asset(STATE), ACCOUNTING),
        gate.OFFSET_CONTIGUITY: (stream.names.asset(PLAN), CONTIGUITY),
        gate.SINK_FIT: (stream.names.asset(STATE), SINK_FIT),
        gate.KEY_NOT_UNIQUE: (stream.names.asset(STATE), SINK_KEYS),
    }
    asset, name = names[error.check]
    return dg.AssetCheckResult(
        passed=False,
        asset_key=asset,
        check_name=name,
        severity=dg.AssetCheckSeverity.ERROR,
        description=redact(error.reason),
        metadata={"epoch": str(error.epoch)},
    )


def results(
    stream: Stream,
    plan: EpochPlan,
    manifest: CheckpointManifest,
    backlog: Backlog,
    checkpoints: CheckpointStore,
) -> Iterator[dg.AssetCheckResult]:
    """The checks of an epoch that passed its gate."""
    epoch = str(plan.epoch)
    state, plan_key = stream.names.asset(STATE), stream.names.asset(PLAN)
    for contract in stream.model.contracts:
        asset = stream.view_key(contract.view)
        yield _result(asset, CONTRACT, True, "every row is as the contract says", epoch=epoch)
    counts = manifest.counts
    yield _result(
        state,
        ACCOUNTING,
        counts.is_balanced,
        "every record ended in one place",
        epoch=epoch,
        **{name: getattr(counts, name) for name in counts.__struct_fields__},
    )
    ranges = sum(len(source.ranges) for source in plan.sources)
    yield _result(plan_key, CONTIGUITY, True, "no gap, no overlap", epoch=epoch, ranges=ranges)
    sinks = len(manifest.sinks)
    yield _result(state, SINK_FIT, True, "nothing against it", epoch=epoch, sinks=sinks)
    if _counts_rows(stream):
        yield _result(state, SINK_KEYS, True, "every key has one row", epoch=epoch)
    if stream.model.references:
        yield _references(stream, plan)
    if _has_watermarks(stream):
        yield _watermarks(stream, manifest, backlog)
    yield _lag(stream, backlog, epoch)
    yield _retention(stream, manifest, checkpoints)
    yield _headroom(stream, manifest, backlog)
    yield _growth(stream, manifest, checkpoints)


def _counts_rows(stream: Stream) -> bool:
    return any(each.counts_rows for each in stream.model.sinks)


def _has_watermarks(stream: Stream) -> bool:
    return any(each.watermark for each in stream.model.sources)


def _watermarks(
    stream: Stream, manifest: CheckpointManifest, backlog: Backlog
) -> dg.AssetCheckResult:
    """Whether no watermark is ahead of the clock, which one wrong record is enough to cause."""
    ahead = watermarks_ahead(manifest, backlog.looked_at)
    told = _first_of([str(each) for each in ahead]) or "none is ahead of the clock"
    most = max((each.ahead.total_seconds() for each in ahead), default=0.0)
    return _result(
        stream.names.asset(STATE),
        WATERMARK_AHEAD,
        not ahead,
        told,
        epoch=str(manifest.epoch),
        seconds_ahead=most,
    )


def _first_of(problems: list[str]) -> str:
    told = "; ".join(problems[:_MOST_TOLD])
    more = len(problems) - _MOST_TOLD
    return f"{told}; and {more} more" if more > 0 else told


def _references(stream: Stream, plan: EpochPlan) -> dg.AssetCheckResult:
    """Whether a reference table was unavailable, so that the epoch used an older copy."""
    away = [
        f"{pin.reference_id} has been away since {pin.unavailable_since.isoformat()}; the copy of "
        f"epoch {pin.epoch} is used, last found right at {pin.checked_at.isoformat()}"
        for pin in plan.references
        if pin.unavailable_since
    ]
    told = "; ".join(away) or "every table answered when it was due"
    key, kept = stream.names.asset(PLAN), sum(pin.is_kept for pin in plan.references)
    return _result(key, REFERENCES, not away, told, epoch=str(plan.epoch), tables_away=kept)


def _lag(stream: Stream, backlog: Backlog, epoch: str) -> dg.AssetCheckResult:
    limit = stream.model.config.checks.max_epochs_behind
    behind = {each.source_id: _epochs_behind(stream, each) for each in backlog.sources}
    unknown = [str(each.source_id) for each in backlog.sources if each.error]
    most = max(behind.values(), default=0)
    told = f"{most} epochs would take what waits; {limit} are allowed"
    if unknown:
        told += f"; not known of {', '.join(unknown)}"
    metadata = {f"epochs_behind/{name}": count for name, count in behind.items()}
    return _result(
        stream.names.asset(PLAN), LAG, most <= limit and not unknown, told, epoch=epoch, **metadata
    )


def _epochs_behind(stream: Stream, source: SourceBacklog) -> int:
    if not source.amount:
        return 0
    epoch = stream.model.config.epoch
    limit = epoch.max_records if source.unit == "records" else epoch.byte_limit
    return max(math.ceil(source.amount / limit), 2 if source.exceeds_epoch else 1)


def _retention(
    stream: Stream, manifest: CheckpointManifest, checkpoints: CheckpointStore
) -> dg.AssetCheckResult:
    """Whether the sources still hold what the oldest retained epoch has read."""
    kept = _look_back(manifest, checkpoints, stream.model.config.retention.checkpoints)
    oldest = checkpoints.plan(kept[-1].epoch)
    problems = []
    sources = {source.source_id: source for source in stream.adapters.sources}
    for part in oldest.sources if oldest else ():
        try:
            if part.source_id in sources:
                sources[part.source_id].verify(part)
        except LaminarError as error:
            problems.append(redact(str(error)))
    told = "; ".join(problems) or f"the sources hold all that was read since epoch {kept[-1].epoch}"
    key = stream.names.asset(PLAN)
    return _result(key, RETENTION, not problems, told, oldest_epoch=int(kept[-1].epoch))


def _headroom(
    stream: Stream, manifest: CheckpointManifest, backlog: Backlog
) -> dg.AssetCheckResult:
    """Whether no source is about to delete records that wait to be read."""
    least = stream.model.config.checks.min_retention_headroom
    problems: list[str] = []
    metadata: dict[str, float | int] = {}
    for name, report in ask_health(stream.adapters.sources, manifest, backlog).items():
        if report.error is not None:
            problems.append(redact(f"not known of {name}: {report.message}"))
        for each in report.scarce(least):
            share = f"{each.headroom or 0:.1%} of what it holds has been read, {each.lag:,} wait"
            problems.append(f"{name}, {each.partition}: {share}")
        if report.headroom is not None:
            metadata[f"headroom/{name}"] = round(report.headroom, 4)
        if "retained_bytes" in report.details:
            metadata[f"retained_bytes/{name}"] = int(report.details["retained_bytes"])
        if report.partitions:
            metadata[f"lag/{name}"] = sum(each.lag for each in report.partitions)
    told = _first_of(problems) or "nothing that waits is about to be deleted"
    key = stream.names.asset(PLAN)
    return _result(key, HEADROOM, not problems, told, epoch=str(manifest.epoch), **metadata)


def _growth(
    stream: Stream, manifest: CheckpointManifest, checkpoints: CheckpointStore
) -> dg.AssetCheckResult:
    before = _look_back(manifest, checkpoints, _LOOK_BACK)[-1]
    then, now = before.total_size_bytes, manifest.total_size_bytes
    allowed = stream.model.config.checks.max_state_growth
    growth = now / max(then, _SMALL_STATE)
    return _result(
        stream.names.asset(STATE),
        STATE_GROWTH,
        growth <= allowed,
        f"{now:,} bytes; {then:,} at epoch {before.epoch}",
        state_bytes=now,
        growth=round(growth, 3),
    )


def _look_back(
    manifest: CheckpointManifest, checkpoints: CheckpointStore, count: int
) -> list[CheckpointManifest]:
    """A checkpoint and those before it, as far as they are kept, the newest first."""
    found = [manifest]
    while len(found) < count and (above := found[-1].previous_checkpoint_id):
        before = checkpoints.manifest(above)
        if before is None:
            break
        found.append(before)
    return found


def _shown(stream: Stream, place: Place) -> str:
    """A file and line, relative to the project's folder."""
    file, project = Path(place.file).absolute(), stream.project.absolute()
    return f"{file.relative_to(project) if file.is_relative_to(project) else file}:{place.line}"


def _result(
    asset: dg.AssetKey, name: str, passed: bool, description: str, **metadata: str | int | float
) -> dg.AssetCheckResult:
    blocking = name in (CONTRACT, ACCOUNTING, CONTIGUITY, SINK_FIT, SINK_KEYS)
    severity = dg.AssetCheckSeverity.ERROR if blocking else dg.AssetCheckSeverity.WARN
    return dg.AssetCheckResult(
        passed=passed,
        asset_key=asset,
        check_name=name,
        severity=severity,
        description=description,
        metadata=metadata,
    )
