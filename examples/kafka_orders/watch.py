"""The pipeline's store, looked at from outside while the pipeline writes to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from laminar_dagster.config.project import load_pipeline
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.offsets import KafkaPosition
from laminar_dagster.runtime.assembly import known_connectors
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.survey import survey
from laminar_dagster.stores.url import open_store

PIPELINE: Final = "orders"

Doing = Literal["waiting", "computing", "committing"]


@dataclass(frozen=True, slots=True)
class Look:
    """How far the pipeline is.

    Attributes:
        confirmed: The last epoch that all sinks have; 0 before the first.
        doing: What became of the one after it so far.
    """

    confirmed: int
    doing: Doing


class Watch:
    """Looks, and changes nothing."""

    def __init__(self, project: Path) -> None:
        """Read the pipeline's files; nothing is opened.

        Raises:
            ConfigError: They have a mistake.
        """
        folder = project / "dbt_like_configs" / PIPELINE
        model = load_pipeline(folder, connectors=known_connectors())
        self._checkpoints = CheckpointStore(open_store(model.config.store, project))

    def look(self) -> Look:
        """How far it is now."""
        standing = survey(self._checkpoints)
        if not standing.epochs:
            return Look(int(standing.confirmed), "waiting")
        is_decided = standing.epochs[0].prepared is not None
        return Look(int(standing.confirmed), "committing" if is_decided else "computing")

    def manifest(self, epoch: int) -> CheckpointManifest:
        """Of an epoch that is confirmed; also when its checkpoint has been collected."""
        return self._checkpoints.winner(EpochNumber(epoch)).manifest

    def manifests(self) -> list[CheckpointManifest]:
        """Of every epoch that is confirmed."""
        return [self.manifest(each) for each in range(1, self.look().confirmed + 1)]


def positions(manifest: CheckpointManifest) -> dict[int, int]:
    """The offset that comes next, by partition of the topic."""
    (source,) = manifest.sources
    return {
        each.partition: each.offset for each in source.positions if isinstance(each, KafkaPosition)
    }


def rows_out(manifest: CheckpointManifest) -> int:
    """Rows that an epoch gave to the first sink; the other gets the same."""
    return sum(file.rows for file in manifest.sinks[0].files)


def seconds(manifest: CheckpointManifest) -> float:
    """How long an epoch took, from the start of the attempt to the point of commit."""
    return max((manifest.completed_at - manifest.started_at).total_seconds(), 0.001)
