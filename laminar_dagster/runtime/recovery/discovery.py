"""Finds out what a pipeline has committed, also when the records of it are damaged.

First key by key: ``_latest`` and the epochs around it, as every run does it. When that leaves a
doubt (a pointer that is missing, damaged or dangling; a damaged record of an epoch; a sink or an
index that is ahead of the store, or a sink that cannot be asked), the store is listed, and
everything that is left of an epoch is evidence: its prepared record, its manifest, the plan of the
next one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from laminar_dagster.core import layout
from laminar_dagster.core.document import checksum
from laminar_dagster.core.errors import (
    AllCheckpointsCorrupt,
    CheckpointListFailed,
    IntegrityError,
    LedgerMismatch,
    MalformedDocument,
    NoCheckpointAvailable,
    RetryError,
    StoreSetBack,
    UnsupportedVersion,
)
from laminar_dagster.core.ids import GENESIS, CheckpointId, EpochNumber, SinkId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.plan import ParentCheckpoint
from laminar_dagster.core.ports import CheckpointIndex, RecordedCheckpoint
from laminar_dagster.core.prepared import LatestPointer
from laminar_dagster.core.recovery import choose_winner, find_confirmed
from laminar_dagster.core.recovery.damage import missing_sinks
from laminar_dagster.runtime.ledgers import Ledgers
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.recovery.deadline import Deadline
from laminar_dagster.runtime.recovery.documents import Documents, DocumentT, Seen
from laminar_dagster.runtime.recovery.found import Discovery, EpochRecords

# The documents of so many epochs are read in parallel, while walking back.
_STRIDE: Final = 4


def discover(
    pipeline: Pipeline, index: CheckpointIndex | None, deadline: Deadline | None = None
) -> Discovery:
    """Find out what is committed.

    Raises:
        RecoveryTimeout: It takes too long.
        NoCheckpointAvailable: The store is empty.
        AllCheckpointsCorrupt: There were checkpoints, and no intact record of them is left.
        StoreSetBack: The index, or the pointer, names a later checkpoint than the store has.
        LedgerMismatch: A sink has committed a later epoch than the store has.
        InvalidManifest: Two records contradict each other, and nothing decides between them.
        CheckpointListFailed: The store had to be listed, and cannot be.
        UnsupportedVersion: A newer release wrote one of the documents.
    """
    search = _Search(pipeline, index.newest() if index else None, deadline)
    found = search.key_by_key()
    if found is None:
        found = search.by_listing()
    if (found.ledgers.newest() or GENESIS) > found.newest:
        # A sink may have committed an epoch while the store was read: read both again.
        found = search.by_listing()
    _require_explained(found, search.recorded, index, pipeline.checkpoints.objects.url)
    return found


def _require_explained(
    found: Discovery, recorded: RecordedCheckpoint | None, index: CheckpointIndex | None, url: str
) -> None:
    ahead = found.ledgers.furthest()
    if ahead and ahead[1] > found.newest:
        raise LedgerMismatch(ahead[0], found.newest.next(), ahead[1])
    if index and recorded and recorded.epoch > found.newest:
        raise StoreSetBack(url, found.newest, index.name, recorded.epoch)
    pointer = found.latest.document
    if pointer and pointer.epoch > found.newest:
        raise StoreSetBack(url, found.newest, layout.LATEST, pointer.epoch)
    begun = [each for each in found.epochs.values() if each.has_begun]
    if not begun:
        raise NoCheckpointAvailable(url)
    if begun[-1].epoch > found.newest.next():
        # It builds on a checkpoint of which nothing is left.
        lost = begun[-1].epoch.previous()
        raise StoreSetBack(url, found.newest, begun[-1].plan.key, lost)


class _Search:
    """One search through a store."""

    def __init__(
        self,
        pipeline: Pipeline,
        recorded: RecordedCheckpoint | None,
        deadline: Deadline | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._deadline = deadline
        self._documents = Documents(pipeline.checkpoints.objects)
        self.recorded = recorded

    def key_by_key(self) -> Discovery | None:
        """Search from the pointer forward, then back; None when a doubt is left."""
        latest = self._documents.latest()
        pointer = latest.document
        # The pointer is read before the ledgers: they only ever move forward.
        ledgers = Ledgers.read(self._pipeline.sinks)
        if pointer is None or ledgers.errors:
            # A sink that cannot be asked may be ahead of the store.
            return None
        manifest = layout.manifest_key(pointer.checkpoint_id)
        self._documents.read_ahead([*_keys([pointer.epoch, pointer.epoch.next()]), manifest])
        records = self._records(pointer.epoch, [pointer.checkpoint_id], [pointer.as_parent()])
        if not records.winner or not records.has_manifest or not _agrees(pointer, records.winner):
            return None
        epochs = {pointer.epoch: records}
        tail = records
        while tail.winner:
            tail = self._records(tail.epoch.next())
            epochs[tail.epoch] = tail
            if tail.prepared.is_damaged:
                return None
        if tail.has_begun:
            # Planned, and without a winner; or the record of the winner is lost.
            return None
        self._add_history(epochs)
        found = self._put_together(epochs, latest, ledgers)
        ahead = ledgers.newest()
        if ahead is not None and ahead > found.newest:
            return None
        if self.recorded and self.recorded.epoch > found.newest:
            return None
        return found

    def by_listing(self) -> Discovery:
        """Search a listing of the store, with every record that is left of an epoch."""
        checkpoints = self._pipeline.checkpoints
        latest = self._documents.latest()
        ledgers = Ledgers.read(self._pipeline.sinks)
        listed: defaultdict[EpochNumber, list[CheckpointManifest]] = defaultdict(list)
        damaged: list[IntegrityError] = []
        begun: set[EpochNumber] = set()
        try:
            for candidate in checkpoints.candidates():
                match candidate.manifest:
                    case CheckpointManifest() as manifest:
                        listed[manifest.epoch].append(manifest)
                    case UnsupportedVersion() as newer:
                        raise newer
                    case IntegrityError() as problem:
                        damaged.append(problem)
                    case other:
                        raise other
            begun |= {*listed, *self._listed_epochs(listed, ledgers)}
        except RetryError as error:
            raise CheckpointListFailed(checkpoints.objects.url, str(error)) from error
        pointer = latest.document
        epochs: dict[EpochNumber, EpochRecords] = {}
        above: EpochRecords | None = None
        for place, epoch in enumerate(_numbers(begun)):
            self._read_stride(place, epoch)
            witnesses = [pointer.as_parent()] if pointer else []
            ids = [each.checkpoint_id for each in listed[epoch]]
            if above and above.plan.document and above.plan.document.parent:
                witnesses.append(above.plan.document.parent)
                ids.append(above.plan.document.parent.checkpoint_id)
            above = epochs[epoch] = self._records(epoch, ids, witnesses)
        if epochs:
            self._add_history(epochs)
        if damaged and not any(each.winner for each in epochs.values()):
            raise AllCheckpointsCorrupt(len(damaged), str(damaged[0]))
        return self._put_together(epochs, latest, ledgers)

    def _listed_epochs(
        self, listed: Mapping[EpochNumber, list[CheckpointManifest]], ledgers: Ledgers
    ) -> Iterator[EpochNumber]:
        """Epochs with a plan or a prepared record, from the oldest that may matter on.

        Prepared records are kept for ever. Those from before the oldest manifest matter only if
        the ledger of a sink is still behind them.
        """
        joined = {
            entry.sink_id: entry.joined_at.previous()
            for manifests in listed.values()
            for manifest in manifests
            for entry in manifest.sinks
        }
        stands = {
            sink: joined.get(sink) if each is None else each for sink, each in ledgers.found.items()
        }
        start = min(
            [*listed, *(each for each in stands.values() if each is not None)], default=GENESIS
        )
        if not listed:
            start = GENESIS
        objects = self._pipeline.checkpoints.objects
        for info in objects.list(layout.EPOCHS, start_after=layout.epoch_start(start)):
            key = layout.parse_epoch_key(info.key)
            if key:
                yield key.epoch

    def _add_history(self, epochs: dict[EpochNumber, EpochRecords]) -> None:
        """Add the epochs before the oldest one, back to the first that was collected."""
        oldest = epochs[min(epochs)]
        place = 0
        while oldest.epoch > GENESIS.next() and oldest.winner:
            self._read_stride(place, oldest.epoch.previous())
            place += 1
            above = oldest
            plan = above.plan.document
            known = oldest.winner.previous_checkpoint_id
            oldest = self._records(
                oldest.epoch.previous(),
                [known] if known else [],
                [plan.parent] if plan and plan.parent else [],
            )
            if oldest.plan.is_missing and not oldest.has_manifest:
                break
            epochs[oldest.epoch] = oldest
        for epoch in sorted(epochs):
            epochs[epoch] = epochs.pop(epoch)

    def _read_stride(self, place: int, epoch: EpochNumber) -> None:
        """Read the next few epochs in parallel, at every ``_STRIDE``-th place on the way back."""
        if place % _STRIDE == 0:
            numbers = range(epoch, max(epoch - _STRIDE, GENESIS), -1)
            self._documents.read_ahead(_keys(EpochNumber(each) for each in numbers))

    def _records(
        self,
        epoch: EpochNumber,
        ids: Iterable[CheckpointId] = (),
        witnesses: Iterable[ParentCheckpoint] = (),
    ) -> EpochRecords:
        """The documents that are left of an epoch.

        Args:
            epoch: The epoch.
            ids: Checkpoints that may be the epoch's.
            witnesses: The checkpoint as the pointer or the next epoch's plan names it.
        """
        if self._deadline:
            self._deadline.remaining()
        plan, prepared = self._documents.plan(epoch), self._documents.prepared(epoch)
        own = [prepared.document.checkpoint_id] if prepared.document else []
        seen = {each: self._documents.manifest(each) for each in dict.fromkeys([*own, *ids])}
        whole = [
            each.document
            for each in seen.values()
            if each.document and each.document.epoch == epoch
        ]
        winner = choose_winner(epoch, prepared.document, whole, witnesses)
        if winner is None:
            return EpochRecords(epoch, plan, prepared, None, None)
        if plan.document and checksum(plan.document) != winner.plan_checksum:
            problem = MalformedDocument(plan.key, "it is not the plan that was carried out")
            plan = Seen(plan.key, None, problem, plan.version)
        manifest = seen[winner.checkpoint_id]
        return EpochRecords(
            epoch,
            plan,
            _held_to(prepared, prepared.document is None or prepared.document.manifest == winner),
            winner,
            _held_to(manifest, manifest.document is None or manifest.document == winner),
        )

    def _put_together(
        self,
        epochs: Mapping[EpochNumber, EpochRecords],
        latest: Seen[LatestPointer],
        ledgers: Ledgers,
    ) -> Discovery:
        pointer = latest.document
        sure = max(pointer.epoch if pointer else GENESIS, ledgers.newest() or GENESIS)
        newest = GENESIS
        for epoch, records in epochs.items():
            after = epochs.get(epoch.next())
            is_committed = records.has_manifest or epoch <= sure or (after and after.has_begun)
            if records.winner and is_committed:
                newest = epoch
        winners = {each.epoch: each.winner for each in epochs.values() if each.winner}
        committed = {epoch: each for epoch, each in winners.items() if epoch <= newest}
        confirmed = find_confirmed(committed, ledgers.found, ledgers.errors.keys())
        is_right = pointer is not None and pointer.epoch <= newest
        if pointer and is_right:
            target = epochs.get(pointer.epoch)
            if target and target.winner:
                # No epoch can build on a checkpoint that was collected.
                can_be_used = target.has_manifest or pointer.epoch >= confirmed
                is_right = can_be_used and _agrees(pointer, target.winner)
            elif target is None and ledgers.errors:
                # It was collected, so every sink has confirmed it, also an unavailable one.
                is_right = _is_before_the_oldest(pointer, epochs)
            else:
                # Nothing is left of that epoch: later ones can do without, if every sink has it.
                has_successor = target is not None and pointer.epoch < newest
                is_right = has_successor and _is_behind_every_sink(pointer, ledgers)
            if is_right:
                confirmed = max(confirmed, pointer.epoch)
        return Discovery(epochs, newest, confirmed, latest, is_right, ledgers)


def _is_before_the_oldest(
    pointer: LatestPointer, epochs: Mapping[EpochNumber, EpochRecords]
) -> bool:
    after = epochs.get(pointer.epoch.next())
    if after is None or after.winner is None or not after.has_manifest:
        return False
    return after.winner.previous_checkpoint_id == pointer.checkpoint_id


def _is_behind_every_sink(pointer: LatestPointer, ledgers: Ledgers) -> bool:
    known = [each for each in ledgers.found.values() if each is not None]
    is_complete = len(known) == len(ledgers.found) and not ledgers.errors
    return is_complete and min(known, default=GENESIS) >= pointer.epoch


def uncommitted_sinks(found: Discovery, manifest: CheckpointManifest) -> frozenset[SinkId]:
    """The sinks that may still need the staged output of an epoch."""
    if manifest.epoch <= found.confirmed:
        return frozenset()
    return missing_sinks(manifest, found.ledgers.found, found.ledgers.errors.keys())


def _keys(epochs: Iterable[EpochNumber]) -> Iterator[str]:
    """The keys of the plans and prepared records of epochs."""
    for epoch in epochs:
        yield layout.plan_key(epoch)
        yield layout.prepared_key(epoch)


def _numbers(begun: set[EpochNumber]) -> Iterator[EpochNumber]:
    """Every number from the newest down to the oldest."""
    if begun:
        for number in range(max(begun), min(begun) - 1, -1):
            yield EpochNumber(number)


def _agrees(pointer: LatestPointer, manifest: CheckpointManifest) -> bool:
    return pointer == LatestPointer.to(manifest)


def _held_to(seen: Seen[DocumentT], is_right: bool) -> Seen[DocumentT]:
    """The document as seen; as damaged, if it is intact but not the one that it should be."""
    if is_right:
        return seen
    problem = MalformedDocument(seen.key, "it is not the one that the other records name")
    return Seen(seen.key, None, problem, seen.version)
