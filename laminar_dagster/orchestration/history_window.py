"""Selects the partitions and runs of a pipeline that are too old for Dagster's history.

A run is removed with the newest epoch that it dealt with. A run that dealt with no epoch (verify,
replay, prune) is removed when it is older than every run of an epoch that stays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import dagster as dg

from laminar_dagster.core.errors import InvalidName
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.orchestration.asset_specs import MANIFEST, PLAN, STATE
from laminar_dagster.orchestration.names import EPOCH_TAG, PIPELINE_TAG, epoch_of
from laminar_dagster.orchestration.private_api import IMPLICIT_ASSET_JOB_NAME
from laminar_dagster.orchestration.stream import Stream

_OVER: Final = [
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.CANCELED,
]
# Dagster's tags of a run for one partition, or for a range.
_PARTITION_TAGS: Final = ("dagster/partition", "dagster/asset_partition_range_end")


@dataclass(frozen=True, slots=True)
class HistoryWindow:
    """The epochs of a pipeline that stay in Dagster's history.

    Attributes:
        pipeline: The pipeline's name.
        definition: The name of its partitions definition.
        assets: The assets that only this pipeline writes.
        oldest: The first epoch that stays.
        length: How many epochs stay; and at most as many runs that dealt with no epoch.
    """

    pipeline: str
    definition: str
    assets: frozenset[dg.AssetKey]
    oldest: EpochNumber
    length: int

    @classmethod
    def of(cls, stream: Stream, newest: EpochNumber) -> HistoryWindow:
        """The window that ends with an epoch."""
        names, model = stream.names, stream.model
        own = [*map(names.asset, (PLAN, STATE, MANIFEST))]
        own += [stream.view_key(view.name) for view in model.views]
        length = model.config.retention.history
        return cls(
            str(names.pipeline),
            names.partitions,
            frozenset([*own, *map(stream.sink_key, model.sinks)]),
            EpochNumber(max(1, newest - length + 1)),
            length,
        )

    def is_old(self, key: str) -> bool:
        """Whether a partition is an epoch older than the window. Other keys are left alone."""
        epoch = _epoch(key)
        return epoch is not None and epoch < self.oldest

    def old_partitions(self, instance: dg.DagsterInstance) -> list[str]:
        """The partitions that are older than the window, the oldest first."""
        return sorted(filter(self.is_old, instance.get_dynamic_partitions(self.definition)))

    def old_runs(self, instance: dg.DagsterInstance, at_once: int) -> Iterator[list[str]]:
        """The runs that are over and out of the window, in batches that may be deleted at once."""
        tagged = dg.RunsFilter(tags={PIPELINE_TAG: self.pipeline}, statuses=_OVER)
        since = self._first_epoch_run(instance, at_once)
        without_epoch = 0

        def is_out(record: dg.RunRecord) -> bool:
            nonlocal without_epoch
            epoch = newest_epoch(record.dagster_run)
            if epoch is not None:
                return epoch < self.oldest
            without_epoch += 1
            is_older = since is not None and record.create_timestamp < since
            return is_older or without_epoch > self.length

        def is_stray(record: dg.RunRecord) -> bool:
            """Whether an untagged run is out: one of our assets, ended before its step began."""
            run = record.dagster_run
            picked = run.asset_selection
            is_ours = bool(picked) and self.assets.issuperset(picked or ())
            return is_ours and PIPELINE_TAG not in run.tags and is_out(record)

        yield from _select(instance, tagged, is_out, at_once)
        untagged = dg.RunsFilter(job_name=IMPLICIT_ASSET_JOB_NAME, statuses=_OVER)
        yield from _select(instance, untagged, is_stray, at_once)

    def _first_epoch_run(self, instance: dg.DagsterInstance, at_once: int) -> datetime | None:
        """When the first run of an epoch that stays was created; None while every epoch stays."""
        if self.oldest == 1:
            return None
        wanted = dg.RunsFilter(tags={PIPELINE_TAG: self.pipeline})
        for page in _pages(instance, wanted, at_once, ascending=True):
            for record in page:
                epoch = newest_epoch(record.dagster_run)
                if epoch is not None and epoch >= self.oldest:
                    return record.create_timestamp
        return None


def newest_epoch(run: dg.DagsterRun) -> EpochNumber | None:
    """The newest epoch that a run dealt with, or was to deal with."""
    found = [_epoch(run.tags.get(tag, "")) for tag in _PARTITION_TAGS]
    tagged = run.tags.get(EPOCH_TAG, "")
    if tagged.isdecimal() and int(tagged) > 0:
        found.append(EpochNumber(int(tagged)))
    return max((epoch for epoch in found if epoch is not None), default=None)


def _select(
    instance: dg.DagsterInstance,
    wanted: dg.RunsFilter,
    is_wanted: Callable[[dg.RunRecord], bool],
    at_once: int,
) -> Iterator[list[str]]:
    for page in _pages(instance, wanted, at_once):
        if found := [record.dagster_run.run_id for record in page if is_wanted(record)]:
            yield found


def _pages(
    instance: dg.DagsterInstance, wanted: dg.RunsFilter, at_once: int, *, ascending: bool = False
) -> Iterator[Sequence[dg.RunRecord]]:
    """Runs, a page at a time; the next is fetched before the caller can delete this one's.

    The cursor is a run: after one that is gone, Dagster finds nothing.
    """
    page = instance.get_run_records(wanted, limit=at_once, ascending=ascending)
    while page:
        cursor = page[-1].dagster_run.run_id
        following = instance.get_run_records(
            wanted, limit=at_once, cursor=cursor, ascending=ascending
        )
        yield page
        page = following


def _epoch(key: str) -> EpochNumber | None:
    with contextlib.suppress(InvalidName):
        return epoch_of(key)
    return None
