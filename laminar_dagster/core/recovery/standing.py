"""Derives the facts of an epoch from the documents found in the store.

The store is searched in two ways: ``_latest`` and the epochs after it, read key by key; and by a
listing, when the pointer is missing, damaged or behind. Documents that are read by key count even
if the listing lacks them, because a listing may be stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.core.manifest import CheckpointManifest, SinkEntry
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
        """Refuse a gap: an epoch that is skipped would never be committed to its sinks."""
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
        """The documents of an epoch; without any for one that has not begun."""
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

    A sink may commit while the facts are collected. To keep them consistent, ``_latest`` is read
    before the ledgers, and a ledger that is ahead of ``newest_epoch`` is believed only after the
    store was read again.

    Args:
        standing: What the store holds.
        epoch: The epoch.
        ledgers: The epoch in each sink's ledger; None for a ledger that does not exist yet.
        unreadable: Sinks that are unavailable.
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
    # A ledger that does not exist yet counts as at the epoch before the sink joined.
    return SinkFact(entry.sink_id, entry.joined_at.previous() if ledger is None else ledger)
