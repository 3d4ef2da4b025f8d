"""The names of a pipeline's assets, jobs and resources in Dagster."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

import dagster as dg

from laminar_dagster.core.ids import EpochNumber, PipelineName
from laminar_dagster.orchestration.errors import InvalidPartition

PIPELINE_TAG: Final = "laminar/pipeline"
EPOCH_TAG: Final = "laminar/epoch"
ERROR_TAG: Final = "laminar/error_kind"
REVISION_TAG: Final = "laminar/revision"

# Backfills run in the order of their keys, so keys are padded.
_DIGITS: Final = 12
_KEY: Final = re.compile(r"[0-9]{12}")


@dataclass(frozen=True, slots=True)
class Names:
    """The names in Dagster of one pipeline's parts."""

    pipeline: PipelineName

    @property
    def group(self) -> str:
        """The group of its assets, and the prefix of its jobs."""
        return _identifier(self.pipeline)

    @property
    def partitions(self) -> str:
        """The partitions definition, with a partition for each of its epochs."""
        return f"laminar_{self.group}_epochs"

    @property
    def pool(self) -> str:
        """The pool, with a limit of one, of runs that must not work at the same time."""
        return f"laminar_{self.group}"

    @property
    def spark(self) -> str:
        """The resource that gives its Spark session."""
        return f"{self.group}_spark"

    @property
    def epoch(self) -> str:
        """The resource that chooses the epoch of a run without a partition."""
        return f"{self.group}_epoch"

    def asset(self, name: str) -> dg.AssetKey:
        """The key of an asset that only this pipeline has: plans, views, state, checkpoints."""
        return dg.AssetKey([str(self.pipeline), name])

    def job(self, what: str) -> str:
        """The name of one of its jobs, sensors, schedules or steps."""
        return f"{self.group}_{what}"


def partition_key(epoch: EpochNumber) -> str:
    """An epoch as the key of a partition."""
    return f"{epoch:0{_DIGITS}d}"


def epoch_of(key: str) -> EpochNumber:
    """The epoch that the key of a partition stands for.

    Raises:
        InvalidPartition: The key is not that of an epoch.
    """
    if not _KEY.fullmatch(key) or int(key) == 0:
        raise InvalidPartition("partition", key[:80], _reason_not_an_epoch(key))
    return EpochNumber(int(key))


def _reason_not_an_epoch(key: str) -> str:
    example = int(key) if re.fullmatch(r"[0-9]{1,12}", key) and int(key) else 1
    return f"is not the number of an epoch in {_DIGITS} digits, such as {example:0{_DIGITS}d}"


def epochs_of(keys: Iterable[str]) -> tuple[EpochNumber, ...]:
    """The epochs of partition keys, the oldest first.

    Raises:
        InvalidPartition: A key is not that of an epoch; somebody has added it by hand.
    """
    return tuple(sorted(map(epoch_of, keys)))


def place_key(address: str, project: Path) -> dg.AssetKey:
    """The key of a place that several pipelines may share: a folder, a table, a topic.

    Args:
        address: The address of a source or sink, as its adapter gives it.
        project: Paths within it are relative to it in the key.
    """
    scheme, _, rest = address.partition("://")
    path = PurePosixPath(rest)
    root = PurePosixPath(project.absolute())
    path = path.relative_to(root) if path.is_relative_to(root) else path
    return dg.AssetKey([_readable(part) for part in (scheme, *path.parts) if part != "/"])


def _identifier(name: str) -> str:
    """Dagster's names hold letters, digits and underscores only."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def _readable(part: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", part)
