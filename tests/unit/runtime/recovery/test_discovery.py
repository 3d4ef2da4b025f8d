"""Where the newest checkpoint is found: the pointer, the index, the listing, the sinks."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from msgspec import structs

from laminar_dagster.core import layout
from laminar_dagster.core.document import encode
from laminar_dagster.core.errors import (
    CannotRebuild,
    CheckpointListFailed,
    LaminarError,
    ObjectMissing,
    SinkUnavailable,
    StoreSetBack,
    StoreUnavailable,
    UnsupportedVersion,
)
from laminar_dagster.core.ids import (
    CheckpointId,
    EpochNumber,
)
from laminar_dagster.core.ports import (
    ObjectInfo,
    RecordedCheckpoint,
    VersionedObject,
)
from laminar_dagster.core.prepared import LatestPointer
from laminar_dagster.core.protocol import CommitSinks
from laminar_dagster.runtime import steps
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.recovery import RecoveryManager
from laminar_dagster.runtime.recovery.discovery import discover
from laminar_dagster.runtime.survey import survey
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.recovery.ruins import (
    Ruin,
)


class Unlisted(MemoryStore):
    """Must not be listed."""

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        raise StoreUnavailable(self.url, f"{prefix} is not to be listed")

    def list_folders(self, prefix: str) -> Iterator[str]:
        raise StoreUnavailable(self.url, f"{prefix} is not to be listed")


def unlisted(ruin: Ruin) -> Unlisted:
    store = Unlisted()
    for key, data in ruin.objects().items():
        store.put(key, data)
    return store


@dataclass
class Recorded:
    """An index that knows what it is told."""

    epoch: int
    checkpoint_id: CheckpointId
    name: str = "the index"

    def newest(self) -> RecordedCheckpoint | None:
        if not self.epoch:
            return None
        return RecordedCheckpoint(EpochNumber(self.epoch), self.checkpoint_id)


class Counting(MemoryStore):
    """Counts how often each document is read."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        self.asked[key] += 1
        return super().read(key, limit=limit)

    def read_versioned(self, key: str, *, limit: int | None = None) -> VersionedObject | None:
        self.asked[key] += 1
        return super().read_versioned(key, limit=limit)


def test_what_is_whole_is_read_once(ruin: Ruin) -> None:
    """Far away, each read takes its time."""
    store = Counting()
    for key, data in ruin.objects().items():
        store.put(key, data)
    RecoveryManager(ruin.pipeline(store)).recover()
    assert store.asked[layout.LATEST] == store.asked[layout.plan_key(EpochNumber(7))] == 1
    assert set(store.asked.values()) == {1}


def test_documents_that_are_far_away_are_read_side_by_side(ruin: Ruin) -> None:
    class Far(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.together = threading.Barrier(2, timeout=30)

        def read_versioned(self, key: str, *, limit: int | None = None) -> VersionedObject | None:
            if key == layout.LATEST:
                time.sleep(0.02)
            if key in (layout.plan_key(EpochNumber(7)), layout.prepared_key(EpochNumber(7))):
                # One after the other, the first would wait for ever.
                self.together.wait()
            return super().read_versioned(key, limit=limit)

    store = Far()
    for key, data in ruin.objects().items():
        store.put(key, data)
    found = discover(ruin.pipeline(store), None)
    assert found.newest == 7
    assert found.standing() == survey(ruin.checkpoints)


@pytest.mark.parametrize("behind", [0, 1, 3])
@pytest.mark.parametrize("planned", [False, True])
def test_discovery_and_a_run_agree_how_far_the_pipeline_is(behind: int, planned: bool) -> None:
    ruin = Ruin().run(7, behind=behind)
    pipeline = ruin.pipeline()
    if planned:
        ruin.arrive()
        steps.plan(pipeline, EpochNumber(8))
    standing = survey(ruin.checkpoints)
    assert discover(pipeline, None).standing() == standing
    assert [each.epoch for each in ruin.recover().unfinished] == list(standing.unfinished)
    assert len(standing.unfinished) == behind + planned


def test_damaged_records_do_not_tell_how_far_the_pipeline_is() -> None:
    ruin = Ruin().run(7, behind=2)
    ruin.flip(layout.prepared_key(EpochNumber(6)))
    assert discover(ruin.pipeline(), None).standing() is None
    ruin.lose(layout.LATEST)
    assert discover(ruin.pipeline(), None).standing() is None


def test_recovery_dual_source_raft_and_storage_both_populated(ruin: Ruin) -> None:
    """The pointer and the index agree: nothing is listed."""
    index = Recorded(7, ruin.manifest(7).checkpoint_id)
    result = RecoveryManager(ruin.pipeline(unlisted(ruin)), index=index).recover()
    assert result.epoch == 7


@pytest.mark.parametrize("damage", ["missing", "damaged", "other"])
def test_recovery_dual_source_raft_empty_storage_fallback(ruin: Ruin, damage: str) -> None:
    """Neither pointer nor index knows anything: the listing finds the checkpoint."""
    before = ruin.objects()
    match damage:
        case "missing":
            ruin.lose(layout.LATEST)
        case "damaged":
            ruin.flip(layout.LATEST)
        case _:
            other = Ruin()
            other.world.mint.minted = 1000
            ruin.store.put(layout.LATEST, other.run(2).store.read(layout.LATEST))
    index = Recorded(0, ruin.manifest(7).checkpoint_id)
    result = RecoveryManager(ruin.pipeline(), index=index).recover()
    assert result.epoch == 7
    assert [each.damage.key for each in result.repairs] == [layout.LATEST]
    assert ruin.objects() == before
    with pytest.raises(CheckpointListFailed):
        ruin.lose(layout.LATEST)
        RecoveryManager(ruin.pipeline(unlisted(ruin))).recover()


def test_a_stale_pointer_is_left_behind() -> None:
    """An old copy of the pointer, to a checkpoint that is collected by now."""
    ruin = Ruin(retain=2).run(2)
    old = ruin.store.read(layout.LATEST)
    ruin.run(5)
    right = ruin.store.read(layout.LATEST)
    ruin.store.put(layout.LATEST, old)
    assert ruin.recover().epoch == 7
    assert ruin.store.read(layout.LATEST) == right
    ruin.run_on()
    ruin.check_answer()


@pytest.mark.parametrize("damage", ["missing", "damaged", "stale"])
def test_a_running_pipeline_may_mend_the_pointer_first(damage: str) -> None:
    ruin = Ruin(retain=2).run(2)
    old = ruin.store.read(layout.LATEST)
    ruin.run(5)
    late = ruin.pipeline()
    ruin.arrive()
    ruin.quick.is_away = ruin.slow.is_away = True
    with pytest.raises(SinkUnavailable):
        EpochRunner(late).run()
    ruin.quick.is_away = ruin.slow.is_away = False
    match damage:
        case "missing":
            ruin.lose(layout.LATEST)
        case "damaged":
            ruin.flip(layout.LATEST)
        case _:
            ruin.store.put(layout.LATEST, old)
    manifest = ruin.manifest(8)
    store, moved = ruin.store, threading.Event()

    class Overtaken(MemoryStore):
        """The daemon finishes its epoch just before the pointer is put back."""

        def __getattribute__(self, name: str) -> object:
            if name == "replace":
                if not moved.is_set():
                    moved.set()
                    steps.commit_sinks(late, manifest, [each.sink_id for each in manifest.sinks])
                    steps.move_latest(late, manifest)
                return store.replace
            return getattr(store, name)

    result = RecoveryManager(ruin.pipeline(Overtaken())).recover()
    assert moved.is_set()
    assert [each.damage.key for each in result.repairs] == [layout.LATEST]
    assert ruin.checkpoints.latest() == LatestPointer.to(manifest)
    ruin.run_on()
    ruin.check_answer()


@pytest.fixture
def stale() -> Ruin:
    """An old copy of the pointer, and one of the sinks cannot be asked."""
    ruin = Ruin(retain=3).run(2)
    old = ruin.store.read(layout.LATEST)
    ruin.run(7, behind=1)
    ruin.store.put(layout.LATEST, old)
    ruin.slow.is_away = True
    return ruin


def test_a_run_does_not_commit_again_what_was_collected(stale: Ruin) -> None:
    before = stale.objects()
    missing = layout.manifest_key(stale.manifest(2).checkpoint_id)
    with pytest.raises(ObjectMissing, match=missing):
        stale.run_on()
    assert stale.objects() == before


def test_a_pointer_that_moves_while_it_is_looked_at_is_no_damage() -> None:
    """Between the pointer and the epochs after it, others go on and collect."""
    ruin = Ruin(retain=1).run(3)

    class Overtaken(MemoryStore):
        is_overtaken = False

        def read(self, key: str, *, limit: int | None = None) -> bytes:
            data = ruin.store.read(key, limit=limit)
            if key == layout.LATEST and not self.is_overtaken:
                self.is_overtaken = True
                ruin.run(3)
            return data

    assert survey(CheckpointStore(Overtaken())).newest_epoch == 6


def test_a_stale_pointer_is_left_behind_although_a_sink_is_away(stale: Ruin) -> None:
    """Its checkpoint is collected, and so is the one before the oldest: every sink had that."""
    result = stale.recover()
    assert [each.damage.key for each in result.repairs] == [layout.LATEST]
    pointer = stale.checkpoints.latest()
    assert pointer
    oldest = min(each.manifest.epoch for each in stale.checkpoints.candidates())  # type: ignore[union-attr]
    assert pointer == LatestPointer.to(stale.manifest(oldest - 1))
    assert stale.recover().repairs == ()
    with pytest.raises(SinkUnavailable):
        stale.run_on()
    stale.slow.is_away = False
    stale.run_on()
    stale.check_answer()
    kept = [each.manifest.epoch for each in stale.checkpoints.candidates()]  # type: ignore[union-attr]
    assert kept == sorted(kept, reverse=True)
    assert 3 not in kept


def test_a_wrong_pointer_that_nothing_says_better_is_told(stale: Ruin) -> None:
    """The record of the checkpoint before the oldest is lost as well."""
    for epoch in range(1, 10):
        key = layout.manifest_key(stale.manifest(epoch).checkpoint_id)
        if epoch > 2 and key in stale.objects():
            break
    stale.lose(layout.prepared_key(EpochNumber(epoch - 1)))
    result = stale.recover()
    assert [each.key for each in result.not_repaired] == [layout.LATEST]
    stale.slow.is_away = False
    assert layout.LATEST in [each.damage.key for each in stale.recover().repairs]
    stale.run_on()
    stale.check_answer()


def test_an_index_that_is_behind_is_no_witness_against_the_store(ruin: Ruin) -> None:
    for epoch in (3, 7):
        index = Recorded(epoch, ruin.manifest(1).checkpoint_id)
        assert RecoveryManager(ruin.pipeline(), index=index).recover().epoch == 7


def test_what_a_sink_would_know_that_is_away_is_looked_for(ruin: Ruin) -> None:
    """An epoch of which nothing is left but the one after it, which is not seen from below."""
    old = ruin.store.read(layout.LATEST)
    ruin.run(2)
    ruin.store.put(layout.LATEST, old)
    winner = ruin.manifest(8).checkpoint_id
    ruin.lose(
        layout.plan_key(EpochNumber(8)),
        layout.prepared_key(EpochNumber(8)),
        layout.manifest_key(winner),
    )
    assert ruin.recover(dry_run=True).epoch == 9
    ruin.quick.is_away = ruin.slow.is_away = True
    before = ruin.objects()
    with pytest.raises(CannotRebuild, match="neither its manifest nor the record"):
        ruin.recover()
    assert ruin.objects() == before


def test_a_store_that_was_set_back_is_refused(ruin: Ruin) -> None:
    index = Recorded(8, ruin.manifest(7).checkpoint_id)
    with pytest.raises(StoreSetBack) as caught:
        RecoveryManager(ruin.pipeline(), index=index).recover()
    assert (caught.value.newest, caught.value.witness, caught.value.known) == (7, "the index", 8)


def test_a_commit_that_crashed_before_the_pointer_is_found(ruin: Ruin) -> None:
    ruin.arrive()
    ruin.quick.is_away = ruin.slow.is_away = True
    with pytest.raises(LaminarError):
        EpochRunner(ruin.pipeline()).run()
    ruin.quick.is_away = ruin.slow.is_away = False
    ruin.lose(layout.prepared_key(EpochNumber(8)))
    result = ruin.recover()
    assert result.epoch == 8
    assert [each.damage.key for each in result.repairs] == [layout.prepared_key(EpochNumber(8))]
    (unfinished,) = result.unfinished
    assert unfinished.epoch == 8
    assert isinstance(unfinished.next_step, CommitSinks)
    ruin.run_on()
    ruin.check_answer()


def test_a_newer_format_is_not_damage(ruin: Ruin) -> None:
    newer = structs.replace(ruin.manifest(7), version=2)
    ruin.store.put(layout.manifest_key(newer.checkpoint_id), encode(newer))
    with pytest.raises(UnsupportedVersion):
        ruin.recover()


def test_a_pointer_of_a_newer_release_is_not_moved_back(ruin: Ruin) -> None:
    pointer = ruin.checkpoints.latest()
    assert pointer
    newer = encode(structs.replace(pointer, version=2, epoch=EpochNumber(9)))
    ruin.store.put(layout.LATEST, newer)
    with pytest.raises(UnsupportedVersion):
        survey(ruin.checkpoints)
    with pytest.raises(UnsupportedVersion):
        ruin.checkpoints.advance_latest(ruin.manifest(7))
    assert ruin.store.read(layout.LATEST) == newer
    ruin.flip(layout.LATEST)
    ruin.checkpoints.advance_latest(ruin.manifest(7))
    assert ruin.checkpoints.latest() == pointer


def test_what_is_listed_only_in_doubt(ruin: Ruin) -> None:
    assert discover(ruin.pipeline(unlisted(ruin)), None).newest == 7
    ruin.slow.is_away = True
    with pytest.raises(CheckpointListFailed):
        discover(ruin.pipeline(unlisted(ruin)), None)
    ruin.slow.is_away = False
    ruin.lose(layout.LATEST)
    with pytest.raises(CheckpointListFailed):
        discover(ruin.pipeline(unlisted(ruin)), None)
    assert discover(ruin.pipeline(), None).newest == 7
