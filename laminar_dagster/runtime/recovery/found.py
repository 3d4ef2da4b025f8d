"""A pipeline's history as discovery finds it: its records, or what is left of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from laminar_dagster.core.ids import GENESIS, EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.prepared import LatestPointer, Prepared
from laminar_dagster.core.recovery import FoundEpoch, Standing
from laminar_dagster.runtime.ledgers import Ledgers
from laminar_dagster.runtime.recovery.documents import Seen


@dataclass(frozen=True, slots=True)
class EpochRecords:
    """All that is left of an epoch's documents.

    Attributes:
        winner: The winning attempt's manifest, from whichever record holds it; None while the
            epoch has no winner.
        manifest: The manifest as found in the winner's folder.
    """

    epoch: EpochNumber
    plan: Seen[EpochPlan]
    prepared: Seen[Prepared]
    winner: CheckpointManifest | None
    manifest: Seen[CheckpointManifest] | None

    @property
    def known_plan(self) -> EpochPlan | None:
        """Its plan, from whichever record holds it."""
        if self.plan.document or not self.prepared.document:
            return self.plan.document
        return self.prepared.document.plan

    @property
    def documents(self) -> Iterator[Seen[EpochPlan] | Seen[Prepared] | Seen[CheckpointManifest]]:
        """The documents as they were found."""
        yield self.plan
        yield self.prepared
        if self.manifest:
            yield self.manifest

    @property
    def has_manifest(self) -> bool:
        """Whether its manifest exists, even if it is damaged."""
        return self.manifest is not None and not self.manifest.is_missing

    @property
    def has_begun(self) -> bool:
        """Whether any document of the epoch exists."""
        return bool(self.winner or not self.plan.is_missing or not self.prepared.is_missing)


@dataclass(frozen=True, slots=True)
class Discovery:
    """The history of a pipeline that was found, consistent with itself.

    Attributes:
        epochs: Without a gap in their numbers, the oldest first; the last may have no winner.
        newest: The newest epoch that is committed; 0 for none.
        confirmed: The newest that every sink has.
        latest: The pointer as it was found.
        is_pointer_right: Whether the pointer can stay as it is.
    """

    epochs: Mapping[EpochNumber, EpochRecords]
    newest: EpochNumber
    confirmed: EpochNumber
    latest: Seen[LatestPointer]
    is_pointer_right: bool
    ledgers: Ledgers

    @property
    def committed(self) -> Iterator[tuple[EpochRecords, CheckpointManifest]]:
        """The committed epochs that are left, the oldest first."""
        for records in self.epochs.values():
            if records.winner and records.epoch <= self.newest:
                yield records, records.winner

    @property
    def tail(self) -> EpochRecords | None:
        """The epoch after the newest committed one, if it has begun."""
        return self.epochs.get(self.newest.next())

    def standing(self) -> Standing | None:
        """How far the pipeline is; None when the records that show it are damaged."""
        pointer = self.latest.document
        target = self.epochs.get(pointer.epoch) if pointer and self.is_pointer_right else None
        if pointer is None or target is None or not target.has_manifest:
            return None
        after = [each for each in self.epochs.values() if each.epoch > pointer.epoch]
        if any(seen.is_damaged for each in after for seen in each.documents):
            return None
        found = (
            FoundEpoch(
                each.epoch,
                planned=True,
                prepared=each.prepared.document,
                manifest=each.manifest.document if each.manifest else None,
            )
            for each in after
            if each.has_begun
        )
        return Standing(pointer.epoch, tuple(found), pointer)

    def standing_when_mended(self) -> Standing:
        """How far the pipeline is, once every document is restored that can be.

        Until then the store shows less: without the pointer, epochs that every sink has committed
        look unfinished.
        """
        latest = self.latest.document if self.is_pointer_right else None
        target = None if latest else self.winner(self.confirmed)
        if target:
            latest = LatestPointer.to(target)
        confirmed = latest.epoch if latest else self.confirmed
        # Only confirmed checkpoints are ever collected, so all before the oldest are confirmed.
        confirmed = max(confirmed, min(self.epochs, default=GENESIS.next()).previous())
        found: list[FoundEpoch] = []
        while (records := self.epochs.get(EpochNumber(confirmed + len(found) + 1))) is not None:
            if not records.has_begun:
                break
            is_committed = records.winner is not None and records.epoch <= self.newest
            manifest = records.winner if is_committed else None
            found.append(
                FoundEpoch(
                    records.epoch,
                    planned=True,
                    prepared=Prepared.of(records.winner) if records.winner else None,
                    manifest=manifest,
                )
            )
            if manifest is None:
                break
        return Standing(confirmed, tuple(found), latest)

    def is_kept(self, records: EpochRecords, wanted: EpochNumber) -> bool:
        """Whether an epoch's checkpoint should be there: it was not collected.

        Args:
            records: What is left of it.
            wanted: The epoch of the checkpoint that is restored.
        """
        return (
            records.has_manifest
            or records.epoch in (wanted, self.confirmed)
            or records.epoch > self.confirmed
            or not records.plan.is_missing
        )

    def winner(self, epoch: EpochNumber) -> CheckpointManifest | None:
        """The manifest of an epoch."""
        records = self.epochs.get(epoch)
        return records.winner if records else None
