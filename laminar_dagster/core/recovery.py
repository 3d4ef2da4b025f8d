"""From what was found in the store to facts, and to the checkpoints worth trying.

The store is searched in two places: ``_latest`` and the epochs after it, read key by key; and the
listing, when the pointer is missing, damaged or behind. What the first finds is believed over what
the second does not show, because a listing may be stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from laminar_dagster.core import layout
from laminar_dagster.core.document import Natural, Record, Sha256
from laminar_dagster.core.errors import (
    AllCheckpointsCorrupt,
    IntegrityError,
    LaminarError,
    OperatorMismatch,
    UnsupportedVersion,
)
from laminar_dagster.core.ids import (
    CheckpointId,
    EpochNumber,
    OperatorId,
    PartitionId,
    SinkId,
)
from laminar_dagster.core.manifest import CheckpointManifest, SinkEntry
from laminar_dagster.core.offsets import SourceOffset
from laminar_dagster.core.prepared import LatestPointer, Prepared
from laminar_dagster.core.protocol import EpochFacts, SinkFact


@dataclass(frozen=True, slots=True)
class FoundEpoch:
    """The documents of one epoch."""

    epoch: EpochNumber
    planned: bool
    prepared: Prepared | None
    manifest: CheckpointManifest | None


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a pipeline is.

    Attributes:
        confirmed: The last epoch that every sink has confirmed: the one ``_latest`` points at or,
            when the pointer is lost, the one before the oldest checkpoint there is, because only
            confirmed checkpoints are ever collected.
        epochs: The epochs after it, oldest first, up to the first without a manifest.
        latest: The pointer, if it could be read.
    """

    confirmed: EpochNumber
    epochs: tuple[FoundEpoch, ...]
    latest: LatestPointer | None = None

    def __post_init__(self) -> None:
        """Refuse a hole: an epoch that is stepped over would never reach its sinks."""
        for place, found in enumerate(self.epochs, 1):
            is_last = place == len(self.epochs)
            if found.epoch != self.confirmed + place or not (found.manifest or is_last):
                raise ValueError(f"epoch {found.epoch} does not follow in an unbroken line")

    @property
    def newest_epoch(self) -> EpochNumber:
        """The last epoch that has a manifest."""
        return max((each.epoch for each in self.epochs if each.manifest), default=self.confirmed)

    @property
    def unfinished(self) -> tuple[EpochNumber, ...]:
        """Epochs that have begun and that not every sink has confirmed, oldest first."""
        return tuple(
            found.epoch
            for found in self.epochs
            if found.planned or found.prepared or found.manifest
        )

    def find(self, epoch: EpochNumber) -> FoundEpoch:
        """The documents of an epoch; an empty find for one that has not begun."""
        for found in self.epochs:
            if found.epoch == epoch:
                return found
        return FoundEpoch(epoch, planned=False, prepared=None, manifest=None)


def facts_of(
    standing: Standing,
    epoch: EpochNumber,
    ledgers: Mapping[SinkId, EpochNumber | None],
    unreadable: frozenset[SinkId] = frozenset(),
) -> EpochFacts:
    """The durable facts of an epoch.

    A sink may commit while the facts are gathered. So that what is read fits together, ``_latest``
    is read before the ledgers; and a ledger that is ahead of ``newest_epoch`` is believed only
    after another look at the store.

    Args:
        standing: What the store holds.
        epoch: Which one.
        ledgers: What each sink says; None for a ledger that does not exist yet.
        unreadable: Sinks that are away.
    """
    found = standing.find(epoch)
    return EpochFacts(
        epoch=epoch,
        latest=standing.confirmed,
        newest=standing.newest_epoch,
        planned=found.planned,
        winner=found.prepared.checkpoint_id if found.prepared else None,
        sinks=tuple(
            SinkFact(entry.sink_id, None)
            if entry.sink_id in unreadable
            else _sink_fact(entry, ledgers[entry.sink_id])
            for entry in (found.manifest.sinks if found.manifest else ())
        ),
    )


def _sink_fact(entry: SinkEntry, ledger: EpochNumber | None) -> SinkFact:
    # A ledger that does not exist yet stands just before the epoch in which the sink joined.
    return SinkFact(entry.sink_id, entry.joined_at.previous() if ledger is None else ledger)


# --- which checkpoint to recover from -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint that was found: its manifest, or why it cannot be read."""

    checkpoint_id: CheckpointId
    manifest: CheckpointManifest | LaminarError


def fallback_chain(
    candidates: Iterable[Candidate], max_fallbacks: int
) -> tuple[CheckpointManifest, ...]:
    """The checkpoints to try, newest epoch first: one, and at most ``max_fallbacks`` more.

    A damaged manifest takes up a try. Its epoch is not known, so it is placed before the first
    readable one that was minted earlier.

    Raises:
        AllCheckpointsCorrupt: There are checkpoints, and none that may be tried can be read.
        LaminarError: A manifest could not be read for a reason other than damage, such as a store
            that is away or a newer format: falling back would be wrong.
    """
    unique = {candidate.checkpoint_id: candidate.manifest for candidate in candidates}
    readable = [each for each in unique.values() if isinstance(each, CheckpointManifest)]
    # Ids sort by the clocks of the machines that minted them; epochs are the truth.
    readable.sort(key=lambda manifest: manifest.epoch, reverse=True)
    ordered: list[CheckpointManifest | IntegrityError] = [*readable]
    for checkpoint, problem in sorted(unique.items()):
        if isinstance(problem, CheckpointManifest):
            continue
        if not isinstance(problem, IntegrityError) or isinstance(problem, UnsupportedVersion):
            raise problem
        later = (
            place
            for place, each in enumerate(ordered)
            if isinstance(each, CheckpointManifest) and each.checkpoint_id < checkpoint
        )
        ordered.insert(next(later, len(ordered)), problem)
    tries = ordered[: max(0, max_fallbacks) + 1]
    chosen = tuple(each for each in tries if isinstance(each, CheckpointManifest))
    if tries and not chosen:
        raise AllCheckpointsCorrupt(len(tries), str(tries[-1]))
    return chosen


def check_operators(
    manifest: CheckpointManifest, current: Iterable[OperatorId], *, allow_mismatch: bool = False
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Compare a checkpoint's operators with the pipeline's.

    Returns:
        The operators only the checkpoint has, and those only the pipeline has.

    Raises:
        OperatorMismatch: They differ, and that is not allowed.
    """
    stored = {entry.operator_id for entry in manifest.operators}
    wanted = set(current)
    only_stored = tuple(sorted(stored - wanted))
    only_wanted = tuple(sorted(wanted - stored))
    if (only_stored or only_wanted) and not allow_mismatch:
        raise OperatorMismatch(only_stored, only_wanted)
    return only_stored, only_wanted


class OperatorSnapshotRef(Record, frozen=True, kw_only=True):
    """A state file to restore, by its key."""

    operator_id: OperatorId
    partition_id: PartitionId
    key: str
    size_bytes: Natural
    sha256: Sha256
    epoch: EpochNumber
    is_incremental: bool


class RecoveryPlan(Record, frozen=True, kw_only=True):
    """What restoring a checkpoint takes: files to load, in order, and positions to seek to."""

    manifest: CheckpointManifest
    source_offsets: tuple[SourceOffset, ...]
    operator_snapshots: tuple[OperatorSnapshotRef, ...]

    @classmethod
    def from_manifest(cls, manifest: CheckpointManifest) -> RecoveryPlan:
        """Build the plan, after checking the manifest.

        Raises:
            InvalidManifest, DeltaWithoutBase, UnsupportedVersion: It must not be restored.
        """
        manifest.validate()
        return cls(
            manifest=manifest,
            source_offsets=tuple(
                SourceOffset(source_id=entry.source_id, position=position)
                for entry in manifest.sources
                for position in entry.positions
            ),
            operator_snapshots=tuple(
                OperatorSnapshotRef(
                    operator_id=entry.operator_id,
                    partition_id=part.partition_id,
                    key=layout.checkpoint_key(
                        manifest.origin_of(part).checkpoint_id,
                        part.path,
                    ),
                    size_bytes=part.size_bytes,
                    sha256=part.sha256,
                    epoch=manifest.origin_of(part).epoch,
                    is_incremental=part.is_incremental,
                )
                for entry in manifest.operators
                for part in entry.partitions
            ),
        )

    @property
    def total_bytes(self) -> int:
        """How much there is to load."""
        return sum(snapshot.size_bytes for snapshot in self.operator_snapshots)
