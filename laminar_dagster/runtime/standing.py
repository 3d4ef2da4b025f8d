"""How far a pipeline and its sinks are, and what comes next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from laminar_dagster.core import protocol
from laminar_dagster.core.errors import LaminarError
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.core.manifest import CheckpointManifest, SinkEntry
from laminar_dagster.core.ports import Sink
from laminar_dagster.core.recovery import Standing, facts_of
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.ledgers import Ledgers
from laminar_dagster.runtime.survey import newest_manifest, survey

SinkState = Literal["new", "at", "behind", "ahead", "away"]


@dataclass(frozen=True, slots=True)
class Look:
    """What the store and the sinks say, read so that it fits together."""

    standing: Standing
    manifest: CheckpointManifest | None
    ledgers: Ledgers

    @classmethod
    def take(cls, checkpoints: CheckpointStore, sinks: Iterable[Sink]) -> Look:
        """Look at a pipeline.

        Raises:
            LaminarError: The store is away, or damaged.
        """
        standing = survey(checkpoints)
        ledgers = Ledgers.read(sinks)
        ahead = ledgers.newest()
        if ahead is not None and ahead > standing.newest_epoch:
            # Another process may have gone on since; only a second look tells.
            standing = survey(checkpoints)
        return cls(standing, newest_manifest(checkpoints, standing), ledgers)

    def sinks(self) -> list[SinkStanding]:
        """Each sink, compared with the newest checkpoint."""
        newest = self.standing.newest_epoch
        joined = {entry.sink_id: entry.joined_at for entry in _sinks_of(self.manifest)}
        shown = [SinkStanding(each, "away", None, error) for each, error in self._away()]
        for sink_id, ledger in self.ledgers.found.items():
            if ledger is None and sink_id in joined:
                ledger = joined[sink_id].previous()
            shown.append(SinkStanding(sink_id, _state(ledger, newest), ledger))
        return sorted(shown, key=lambda each: each.sink_id)

    def next_step(self, epoch: EpochNumber) -> protocol.Step:
        """What the next run does for an epoch first."""
        manifest = self.standing.find(epoch).manifest
        # A sink that was removed from the pipeline holds nobody back.
        ledgers = {entry.sink_id: epoch for entry in _sinks_of(manifest)} | dict(self.ledgers.found)
        facts = facts_of(self.standing, epoch, ledgers, frozenset(self.ledgers.errors))
        return protocol.next_step(facts)

    def _away(self) -> Iterable[tuple[SinkId, LaminarError]]:
        return self.ledgers.errors.items()


@dataclass(frozen=True, slots=True)
class SinkStanding:
    """How far a sink is, compared with the newest checkpoint."""

    sink_id: SinkId
    state: SinkState
    ledger: EpochNumber | None
    error: LaminarError | None = None


def _sinks_of(manifest: CheckpointManifest | None) -> Iterable[SinkEntry]:
    return manifest.sinks if manifest else ()


def _state(ledger: EpochNumber | None, newest: EpochNumber) -> SinkState:
    if ledger is None:
        return "new"
    if ledger == newest:
        return "at"
    return "behind" if ledger < newest else "ahead"
