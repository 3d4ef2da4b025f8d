"""What checkpoints must do on any store: listing, the pointer, collection, verification.

Subclassed for each store; a subclass provides the fixture ``store``.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.document import encode
from laminar_dagster.core.errors import ChecksumMismatch, LaminarError, ObjectMissing
from laminar_dagster.core.ids import CheckpointId, EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.core.prepared import AttemptRecord
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.collector import Retention, collect
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.verification import verify_checkpoint
from tests.unit.runtime.conditions import World

# Objects are stamped with the store's own time, which a test cannot set.
LATER = datetime.now(UTC) + timedelta(days=1)


def history(store: ObjectStore, epochs: int) -> World:
    """So many finished epochs, nothing collected."""
    world = World()
    runner = EpochRunner(world.pipeline(store, collect_every=1000))
    for epoch in range(epochs):
        world.log.partitions[epoch % 2].extend([epoch, epoch + 1])
        runner.run()
    return world


def manifests(store: ObjectStore) -> list[CheckpointManifest]:
    found = [each.manifest for each in CheckpointStore(store).candidates()]
    return [each for each in found if isinstance(each, CheckpointManifest)]


def keys(store: ObjectStore) -> set[str]:
    return {info.key for prefix in ("checkpoints/", "epochs/") for info in store.list(prefix)}


def abandoned(store: ObjectStore, epoch: int) -> CheckpointId:
    """An attempt that wrote something and died."""
    record = AttemptRecord(
        version=1,
        epoch=EpochNumber(epoch),
        checkpoint_id=CheckpointId.from_parts(1_900_000_000_000 + epoch, 7),
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    CheckpointStore(store).begin_attempt(record)
    store.put(f"checkpoints/{record.checkpoint_id}/operators/totals/0.snap", b"12")
    return record.checkpoint_id


class CheckpointBehaviour:
    """F-DCKP-003 on a real store."""

    # --- documents ------------------------------------------------------------------------------

    def test_manifest_write_and_read(self, store: ObjectStore) -> None:
        history(store, 1)
        (manifest,) = manifests(store)
        assert CheckpointStore(store).manifest(manifest.checkpoint_id) == manifest
        assert store.read(layout.manifest_key(manifest.checkpoint_id)) == encode(manifest)

    def test_latest_never_moves_back(self, store: ObjectStore) -> None:
        history(store, 3)
        checkpoints = CheckpointStore(store)
        oldest = manifests(store)[-1]
        pointer = checkpoints.advance_latest(oldest)
        assert pointer.epoch == 3
        assert checkpoints.latest() == pointer

    def test_racing_movers_leave_the_newest(self, store: ObjectStore) -> None:
        history(store, 5)
        store.delete([layout.LATEST])
        found = manifests(store)
        with ThreadPoolExecutor(5) as pool:
            list(pool.map(lambda each: CheckpointStore(store).advance_latest(each), found))
        latest = CheckpointStore(store).latest()
        assert latest
        assert latest.epoch == 5

    # --- listing --------------------------------------------------------------------------------

    def test_checkpoint_layout_listing_order(self, store: ObjectStore) -> None:
        history(store, 4)
        assert [manifest.epoch for manifest in manifests(store)] == [4, 3, 2, 1]

    def test_incomplete_checkpoint_skipped(self, store: ObjectStore) -> None:
        history(store, 2)
        abandoned(store, 3)
        assert [manifest.epoch for manifest in manifests(store)] == [2, 1]

    def test_unparseable_checkpoint_reported_and_skipped(self, store: ObjectStore) -> None:
        history(store, 3)
        damaged = manifests(store)[1].checkpoint_id
        data = bytearray(store.read(layout.manifest_key(damaged)))
        data[len(data) // 2] ^= 1
        store.put(layout.manifest_key(damaged), bytes(data))
        found = {each.checkpoint_id: each.manifest for each in CheckpointStore(store).candidates()}
        assert isinstance(found.pop(damaged), LaminarError)
        assert all(isinstance(each, CheckpointManifest) for each in found.values())
        assert len(found) == 2

    def test_listing_reads_no_more_than_asked_for(self, store: ObjectStore) -> None:
        history(store, 4)
        found = list(CheckpointStore(store).candidates(limit=2))
        assert len(found) == 2

    def test_strangers_are_not_checkpoints(self, store: ObjectStore) -> None:
        history(store, 1)
        store.put("checkpoints/notes/manifest.json", b"{}")
        assert len(list(CheckpointStore(store).candidates())) == 1

    # --- verification ---------------------------------------------------------------------------

    def test_a_whole_checkpoint_verifies(self, store: ObjectStore) -> None:
        history(store, 4)
        read: list[int] = []
        newest = manifests(store)[0]
        found = list(verify_checkpoint(CheckpointStore(store), newest, read.append))
        assert [each.problem for each in found] == [None] * len(found)
        assert sum(read) == sum(size for _, size, _ in newest.files())
        assert {each.key for each in found} >= {key for key, _, _ in newest.files()}

    @pytest.mark.parametrize("damage", ["flip", "cut", "grow", "empty", "delete"])
    def test_every_damage_is_found(self, store: ObjectStore, damage: str) -> None:
        history(store, 4)
        newest = manifests(store)[0]
        for key, _, _ in newest.files():
            data = store.read(key)
            bad = {
                "flip": bytes([data[0] ^ 1]) + data[1:],
                "cut": data[:-1],
                "grow": data + b"x",
                "empty": b"",
                "delete": None,
            }[damage]
            store.delete([key])
            if bad is not None:
                store.put(key, bad)
            found = list(verify_checkpoint(CheckpointStore(store), newest))
            problems = [each for each in found if each.problem]
            assert [each.key for each in problems] == [key]
            wanted = ObjectMissing if damage == "delete" else ChecksumMismatch
            assert isinstance(problems[0].problem, wanted)
            store.put(key, data)

    def test_an_offset_file_of_another_epoch_is_found(self, store: ObjectStore) -> None:
        history(store, 2)
        newest, older = manifests(store)
        path = newest.sources[0].path
        theirs = store.read(layout.checkpoint_key(older.checkpoint_id, path))
        store.put(layout.checkpoint_key(newest.checkpoint_id, path), theirs)
        found = list(verify_checkpoint(CheckpointStore(store), newest))
        key = layout.checkpoint_key(newest.checkpoint_id, path)
        assert [each.key for each in found if each.problem] == [key]

    # --- collection -----------------------------------------------------------------------------

    def test_garbage_collection_retains_latest(self, store: ObjectStore) -> None:
        history(store, 7)
        done = collect(CheckpointStore(store), Retention(3), LATER)
        assert [manifest.epoch for manifest in manifests(store)] == [7, 6, 5]
        assert [manifest.epoch for manifest in done.retained] == [7, 6, 5]
        for manifest in manifests(store):
            found = list(verify_checkpoint(CheckpointStore(store), manifest))
            assert not [each for each in found if each.problem]

    def test_a_dry_run_tells_what_would_go_and_removes_nothing(self, store: ObjectStore) -> None:
        history(store, 6)
        before = keys(store)
        told = collect(CheckpointStore(store), Retention(2), LATER, dry_run=True)
        assert keys(store) == before
        collect(CheckpointStore(store), Retention(2), LATER)
        assert before - keys(store) == set(told.garbage.keys)
        assert told.garbage.keys

    def test_a_second_collection_finds_nothing(self, store: ObjectStore) -> None:
        history(store, 6)
        collect(CheckpointStore(store), Retention(2), LATER)
        assert collect(CheckpointStore(store), Retention(2), LATER).garbage.keys == ()

    def test_a_dead_attempt_goes_after_the_grace_period(self, store: ObjectStore) -> None:
        history(store, 3)
        dead = abandoned(store, 2)
        soon = datetime.now(UTC)
        collect(CheckpointStore(store), Retention(10, timedelta(hours=1)), soon)
        assert any(dead in key for key in keys(store))
        collect(CheckpointStore(store), Retention(10, timedelta(hours=1)), LATER)
        assert not any(dead in key for key in keys(store))

    def test_an_attempt_at_an_open_epoch_is_never_collected(self, store: ObjectStore) -> None:
        history(store, 3)
        slow = abandoned(store, 4)
        collect(CheckpointStore(store), Retention(1), LATER + timedelta(days=365))
        assert len([key for key in keys(store) if slow in key]) == 2

    def test_the_fence_of_an_old_epoch_stays(self, store: ObjectStore) -> None:
        history(store, 5)
        collect(CheckpointStore(store), Retention(1), LATER)
        for epoch in range(1, 6):
            assert CheckpointStore(store).prepared(EpochNumber(epoch))
        assert CheckpointStore(store).plan(EpochNumber(4)) is None
        assert CheckpointStore(store).plan(EpochNumber(5))

    def test_collection_leaves_strangers_alone(self, store: ObjectStore) -> None:
        history(store, 3)
        store.put("checkpoints/notes.txt", b"mine")
        store.put("epochs/readme", b"mine")
        collect(CheckpointStore(store), Retention(1), LATER)
        assert {"checkpoints/notes.txt", "epochs/readme"} <= keys(store)

    def test_a_damaged_manifest_that_is_to_be_kept_stops_the_collection(
        self, store: ObjectStore
    ) -> None:
        history(store, 5)
        kept = manifests(store)[1].checkpoint_id
        store.put(layout.manifest_key(kept), b"{}")
        before = keys(store)
        with pytest.raises(LaminarError):
            collect(CheckpointStore(store), Retention(3), LATER)
        assert keys(store) == before

    def test_work_goes_on_after_a_collection(self, store: ObjectStore) -> None:
        world = history(store, 6)
        collect(CheckpointStore(store), Retention(1), LATER)
        world.log.partitions[0].extend([100, 200])
        world.runner(store).run()
        assert sorted(world.table.rows) == world.log.expected()
