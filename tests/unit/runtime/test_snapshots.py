"""Snapshots in a store: one of a number, never changed, kept as long as an epoch may need it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.errors import (
    InvalidState,
    MalformedDocument,
    ObjectExists,
    ObjectMissing,
)
from laminar_dagster.core.garbage import Holdings, find_garbage
from laminar_dagster.core.ids import EpochNumber, FileName, SourceId
from laminar_dagster.core.manifest import CheckpointManifest, SourceOffsetEntry
from laminar_dagster.core.offsets import (
    PostgresIdentity,
    PostgresPosition,
    SnapshotProgress,
    SourcePosition,
)
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import SnapshotDraft, Snapshotting
from laminar_dagster.core.snapshot import SourceSnapshot
from laminar_dagster.runtime import steps
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.snapshots import StoredSnapshots, file_key, finished_snapshots
from laminar_dagster.runtime.verification import verify_checkpoint
from laminar_dagster.testing.memory_pipeline import MemorySource
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.core.samples import manifest
from tests.unit.runtime.conditions import World

SOURCE = SourceId("orders")
IDENTITY = PostgresIdentity(system_id="1", timeline=1, slot="s")
END = PostgresPosition(lsn=100, slot="s")
GRACE = timedelta(hours=1)


def at(lsn: int, rows: int | None = None, number: int = 1) -> PostgresPosition:
    progress = None if rows is None else SnapshotProgress(number=number, rows=rows)
    return PostgresPosition(lsn=lsn, slot="s", snapshot=progress)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def keeper(store: MemoryStore) -> StoredSnapshots:
    return StoredSnapshots(store, SOURCE)


def copied(keeper: StoredSnapshots, number: int = 1) -> tuple[SnapshotDraft, SourceSnapshot]:
    draft = keeper.begin(number)
    file = keeper.write(draft, FileName("0.arrow"), 3, b"three rows")
    return draft, keeper.finish(draft, END, IDENTITY, (file,))


def test_the_newest_is_found(keeper: StoredSnapshots) -> None:
    assert keeper.newest() is None
    _, first = copied(keeper)
    assert keeper.newest() == keeper.find(1) == first
    _, second = copied(keeper, 2)
    assert keeper.newest() == second
    assert keeper.read(second, second.files[0]) == b"three rows"
    with pytest.raises(ObjectMissing):
        keeper.find(3)


def test_one_draft_of_a_number_wins(keeper: StoredSnapshots) -> None:
    late = keeper.begin(1)
    _, first = copied(keeper)
    with pytest.raises(ObjectExists):
        keeper.finish(late, END, IDENTITY, ())
    assert keeper.newest() == first


def test_marks_of_drafts_are_found(keeper: StoredSnapshots) -> None:
    mark = FileName("mark")
    assert keeper.marks(1, mark) == ()
    for word in (b"one", b"two"):
        draft = keeper.begin(1)
        keeper.write(draft, mark, 0, word)
        keeper.write(draft, FileName("bookmark"), 3, b"rows")
    keeper.write(keeper.begin(2), mark, 0, b"of another")
    assert sorted(keeper.marks(1, mark)) == [b"one", b"two"]


def test_a_description_under_another_name_is_refused(
    store: MemoryStore, keeper: StoredSnapshots
) -> None:
    copied(keeper)
    store.put(layout.snapshot_key(SOURCE, 2), store.read(layout.snapshot_key(SOURCE, 1)))
    with pytest.raises(MalformedDocument, match="another snapshot"):
        keeper.newest()


def test_without_a_store_there_is_none_and_none_is_taken() -> None:
    keeper = StoredSnapshots(None, SOURCE)
    assert keeper.newest() is None
    assert keeper.marks(1, FileName("a")) == ()
    with pytest.raises(InvalidState):
        keeper.write(keeper.begin(1), FileName("a"), 0, b"")


# --- the collector ------------------------------------------------------------------------------


def standing(epoch: int, *positions: SourcePosition) -> CheckpointManifest:
    entry = SourceOffsetEntry(
        source_id=SOURCE, positions=positions, path=layout.offsets_path(SOURCE)
    )
    return manifest(epoch, sources=(entry,))


def collected(
    store: MemoryStore, *retained: CheckpointManifest, hours: float = 0
) -> tuple[str, ...]:
    objects = [*store.list(layout.SNAPSHOTS)]
    holdings = Holdings(
        retained=retained,
        undecided=frozenset(),
        attempts={},
        decided=EpochNumber(max((each.epoch for each in retained), default=0)),
        objects=objects,
        snapshots=finished_snapshots(store, objects),
    )
    now = max(info.modified for info in objects) + timedelta(hours=hours)
    garbage = find_garbage(holdings, now, GRACE)
    assert garbage.strangers == ()
    return garbage.keys


@pytest.mark.parametrize(
    ("retained", "goes"),
    [
        ((), False),
        # The first epoch can be run again as long as its checkpoint is kept.
        ((standing(1, at(100)), standing(2, at(200))), False),
        ((standing(2, at(100, 1)), standing(3, at(100))), False),
        ((standing(2, at(100, 3)),), False),
        ((standing(2, at(100)), standing(3, at(200))), True),
        # Before a snapshot that was taken anew, and of a source that came later.
        ((standing(2, at(50)), standing(3, at(200))), False),
        ((manifest(2), standing(3, at(200))), False),
    ],
)
def test_files_stay_while_an_epoch_may_read_them(
    store: MemoryStore,
    keeper: StoredSnapshots,
    retained: tuple[CheckpointManifest, ...],
    goes: bool,
) -> None:
    _, snapshot = copied(keeper)
    expected = (file_key(snapshot, snapshot.files[0]),) if goes else ()
    assert collected(store, *retained, hours=9) == expected


def test_a_draft_goes_when_it_can_no_longer_win(
    store: MemoryStore, keeper: StoredSnapshots
) -> None:
    draft = keeper.begin(1)
    keeper.write(draft, FileName("0.arrow"), 3, b"half")
    mine = layout.snapshot_file_key(SOURCE, 1, draft.draft_id, FileName("0.arrow"))
    assert collected(store, standing(1, at(100)), hours=9) == ()
    copied(keeper)
    assert collected(store, standing(1, at(100)), hours=0.5) == ()
    assert collected(store, standing(1, at(100)), hours=9) == (mine,)


def test_what_is_not_ours_below_snapshots_is_left_alone() -> None:
    for key in (
        "snapshots/orders/1/snapshot.json",
        "snapshots/orders/00000000000000000001/x/a.arrow",
        "snapshots/../00000000000000000001/snapshot.json",
        "snapshots/notes",
    ):
        assert layout.parse_snapshot_key(key) is None


# --- verification -------------------------------------------------------------------------------


def test_verifying_a_checkpoint_reads_what_it_still_has_to_read(
    store: MemoryStore, keeper: StoredSnapshots
) -> None:
    _, snapshot = copied(keeper)
    key = file_key(snapshot, snapshot.files[0])

    def problems(document: CheckpointManifest) -> dict[str, bool]:
        found = verify_checkpoint(CheckpointStore(store), document)
        return {each.key: each.problem is not None for each in found}

    unread, read = standing(2, at(100, 1)), standing(2, at(100))
    assert problems(unread)[key] is False
    assert key not in problems(read)
    store.put(key, b"other rows")
    assert problems(unread)[key] is True
    store.delete([layout.snapshot_key(SOURCE, 1)])
    assert problems(unread)[layout.SNAPSHOTS] is True


# --- who has snapshots taken --------------------------------------------------------------------


class CopiedSource(MemorySource):
    """Tells what it was asked."""

    asked: list[tuple[bool, tuple[SourcePosition, ...]]]

    def prepare(self, previous: SourcePlan | None, start: tuple[SourcePosition, ...]) -> None:
        self.asked.append((previous is not None, start))


def test_whoever_plans_has_snapshots_taken_first(store: MemoryStore) -> None:
    world = World()
    source = CopiedSource(world.log)
    source.asked = []
    assert isinstance(source, Snapshotting)
    pipeline = replace(world.pipeline(store), sources=(source,))
    steps.plan(pipeline, EpochNumber(1))
    assert source.asked == [(False, ())]
    steps.make_plan(pipeline, EpochNumber(1), None)
    assert len(source.asked) == 1
