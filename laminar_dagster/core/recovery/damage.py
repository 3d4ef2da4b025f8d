"""What is damaged, whether it is needed, and which of several witnesses to believe."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum

from laminar_dagster.core import layout
from laminar_dagster.core.document import checksum
from laminar_dagster.core.errors import IntegrityError, InvalidManifest
from laminar_dagster.core.ids import GENESIS, EpochNumber, SinkId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.offsets import describe_position
from laminar_dagster.core.plan import EpochPlan, ParentCheckpoint
from laminar_dagster.core.prepared import Prepared


class Need(Enum):
    """What an object is still needed for."""

    TO_GO_ON = "to go on"
    """Without it, the next epoch, or a sink that is behind, cannot go on."""

    FOR_PEOPLE = "for people"
    """Records that were set aside: made again where that can be done."""

    NOT_NOW = "not now"
    """Output that every sink has, or a part of the history."""


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file that a manifest names.

    Attributes:
        epoch: The epoch that wrote it: running it again recreates the file.
    """

    key: str
    size_bytes: int
    sha256: str
    epoch: EpochNumber
    need: Need = Need.TO_GO_ON


@dataclass(frozen=True, slots=True)
class Damage:
    """An object that is missing or altered.

    Attributes:
        epoch: The epoch it belongs to; None if it belongs to none.
    """

    key: str
    epoch: EpochNumber | None
    problem: IntegrityError


class RepairKind(StrEnum):
    """Where the content of a repaired object came from."""

    PUT_BACK = "put back"
    """From another document that holds the same."""

    REBUILT = "rebuilt"
    """An epoch was run again, and every hash was as it had been."""

    MADE_ANEW = "made anew"
    """Nothing had come of the old one yet."""


@dataclass(frozen=True, slots=True)
class Repair:
    """An object that is whole again, and what was wrong with it."""

    damage: Damage
    kind: RepairKind
    origin: str


def other_files(
    manifest: CheckpointManifest, uncommitted: Collection[SinkId]
) -> Iterator[KeptFile]:
    """The files of a checkpoint beside its state: staged output and dead letters.

    Args:
        manifest: The manifest of the checkpoint.
        uncommitted: Sinks that may still have to commit its epoch.
    """
    for sink in manifest.sinks:
        need = Need.TO_GO_ON if sink.sink_id in uncommitted else Need.NOT_NOW
        for file in sink.files:
            key = layout.checkpoint_key(manifest.checkpoint_id, file.path)
            yield KeptFile(key, file.size_bytes, file.sha256, manifest.epoch, need)
    for letters in manifest.dead_letters:
        for file in letters.files:
            key = layout.checkpoint_key(manifest.checkpoint_id, file.path)
            yield KeptFile(key, file.size_bytes, file.sha256, manifest.epoch, Need.FOR_PEOPLE)


def choose_winner(
    epoch: EpochNumber,
    prepared: Prepared | None,
    manifests: Iterable[CheckpointManifest],
    witnesses: Iterable[ParentCheckpoint],
) -> CheckpointManifest | None:
    """The manifest of an epoch's winner, from all that is left of it; None if nothing is.

    Args:
        epoch: The epoch.
        prepared: The record of its winner, if it can be read.
        manifests: Whole manifests of the epoch: the winner's own, or all that a listing shows.
        witnesses: Other documents that name the checkpoint: the latest pointer, the next plan.

    Raises:
        InvalidManifest: Several are whole, they differ, and no document names the winner.
    """
    found = {checksum(each): each for each in manifests}
    if prepared:
        found[checksum(prepared.manifest)] = prepared.manifest
    named = {each.manifest_checksum for each in witnesses if each.epoch == epoch}
    wanted = [manifest for digest, manifest in found.items() if digest in named]
    if len(wanted) == 1:
        return wanted[0]
    if prepared:
        # The record alone decides who won, and it contains the manifest.
        return prepared.manifest
    if len(found) > 1:
        some = next(iter(found.values()))
        reason = f"epoch {epoch} has {len(found)} manifests, and nothing says which one won"
        raise InvalidManifest(some.checkpoint_id, reason)
    return next(iter(found.values()), None)


def find_confirmed(
    winners: Mapping[EpochNumber, CheckpointManifest],
    ledgers: Mapping[SinkId, EpochNumber | None],
    away: Collection[SinkId],
) -> EpochNumber:
    """The newest epoch that every sink has committed; 0 for none.

    Args:
        winners: The manifests that are known.
        ledgers: The ledgers of the pipeline's sinks; a sink neither here nor in ``away`` has been
            removed from the pipeline.
        away: Sinks that are unavailable, and so confirm nothing.
    """
    confirmed = GENESIS
    for epoch, manifest in sorted(winners.items()):
        if missing_sinks(manifest, ledgers, away):
            break
        confirmed = epoch
    return confirmed


def missing_sinks(
    manifest: CheckpointManifest,
    ledgers: Mapping[SinkId, EpochNumber | None],
    away: Collection[SinkId],
) -> frozenset[SinkId]:
    """The sinks that may still have to commit an epoch."""
    found = set()
    for entry in manifest.sinks:
        if entry.sink_id in away:
            found.add(entry.sink_id)
        elif entry.sink_id in ledgers:
            ledger = ledgers[entry.sink_id]
            if (entry.joined_at.previous() if ledger is None else ledger) < manifest.epoch:
                found.add(entry.sink_id)
    return frozenset(found)


def describe_ranges(plan: EpochPlan) -> tuple[str, ...]:
    """What an epoch has read, source by source, for people."""
    found = []
    for source in plan.sources:
        for part in source.ranges:
            lane, start = describe_position(part.start)
            where = f"{source.source_id} {lane}".strip()
            found.append(f"{where}: {start} to {describe_position(part.end)[1]}")
    return tuple(found)
