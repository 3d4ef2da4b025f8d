"""The runs of an epoch in Dagster's history: which are under way, which failed, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import dagster as dg

from laminar_dagster.core.errors import (
    AuthFailed,
    DecodeFailed,
    GateFailed,
    IntegrityError,
    LaminarError,
    RefusedError,
    UsageError,
)
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.orchestration.names import (
    ERROR_TAG,
    PIPELINE_TAG,
    REVISION_TAG,
    Names,
    partition_key,
)

_UNDER_WAY: Final = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_PARTITION_TAG: Final = "dagster/partition"
_FIRST_PAUSE: Final = timedelta(seconds=5)
_LONGEST_PAUSE: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Attempts:
    """The runs of one job for one epoch.

    Attributes:
        records: The newest first; at most 100 of them.
        count: The number of all runs.
    """

    records: tuple[dg.RunRecord, ...]
    count: int

    @property
    def under_way(self) -> dg.DagsterRun | None:
        """The run that is not over yet."""
        for record in self.records:
            if record.dagster_run.status in _UNDER_WAY:
                return record.dagster_run
        return None

    @property
    def failure(self) -> str | None:
        """The kind of the error that the newest run ended with; None when it did not fail."""
        if not self.records or self.records[0].dagster_run.status != dg.DagsterRunStatus.FAILURE:
            return None
        return self.records[0].dagster_run.tags.get(ERROR_TAG, "unknown")

    @property
    def revision(self) -> str | None:
        """The revision of the pipeline that the newest run executed."""
        return self.records[0].dagster_run.tags.get(REVISION_TAG) if self.records else None

    def rests_until(self) -> datetime | None:
        """When to retry after failures, with exponential backoff."""
        if not self.records:
            return None
        factor: int = 2 ** min(self.count - 1, 10)
        pause = min(_FIRST_PAUSE * factor, _LONGEST_PAUSE)
        newest = self.records[0]
        ended: float = newest.end_time or newest.update_timestamp.timestamp()
        return datetime.fromtimestamp(ended, UTC) + pause


def attempts_at(instance: dg.DagsterInstance, job: str, epoch: EpochNumber) -> Attempts:
    """The runs of a job for an epoch."""
    wanted = dg.RunsFilter(job_name=job, tags={_PARTITION_TAG: partition_key(epoch)})
    found = instance.get_run_records(wanted, limit=100)
    # An exact count: run keys contain it, and Dagster ignores a request with a used key.
    return Attempts(tuple(found), instance.get_runs_count(wanted))


def under_way(instance: dg.DagsterInstance, names: Names) -> Iterator[dg.DagsterRun]:
    """Every unfinished run of a pipeline, of any of its jobs."""
    wanted = dg.RunsFilter(statuses=_UNDER_WAY, tags={PIPELINE_TAG: str(names.pipeline)})
    return iter(instance.get_runs(wanted, limit=100))


def may_pass_by_itself(kind: str) -> bool:
    """Whether a retry may succeed after an error of this kind, without any change."""
    return kind not in _LASTING


def _kinds(base: type[LaminarError]) -> Iterator[str]:
    yield base.kind
    for child in base.__subclasses__():
        yield from _kinds(child)


# Without ``AuthFailed``: a new secret in the environment does not change the pipeline's revision,
# so refused credentials are retried with backoff, like an unavailable service.
_LASTING: Final = frozenset(
    {
        *_kinds(UsageError),
        *_kinds(RefusedError),
        *_kinds(IntegrityError),
        GateFailed.kind,
        DecodeFailed.kind,
    }
) - {AuthFailed.kind}
