"""An epoch says of every point that it is there, in order; and what strikes at one does."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from laminar_dagster.core import points
from laminar_dagster.core.ids import FileName, SourceId
from laminar_dagster.core.points import Point, reach, unwatch, watch
from laminar_dagster.runtime.snapshots import StoredSnapshots
from laminar_dagster.testing.crash import Crash, NeverReached, strike_at
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.conditions import World

Seen = list[tuple[Point, str]]


@pytest.fixture
def seen() -> Iterator[Seen]:
    found: Seen = []

    def note(point: Point, name: str) -> None:
        found.append((point, name))

    watch(note)
    yield found
    unwatch(note)
    assert points._watchers == ()


@pytest.fixture
def world() -> World:
    world = World()
    world.log.partitions = [[1, 2], [10]]
    return world


def test_an_epoch_reaches_every_point_in_its_order(world: World, seen: Seen) -> None:
    report = world.runner(MemoryStore()).run()
    steps = [name for point, name in seen if point is Point.STEP_BEGINS]
    assert steps == [step.name for step in report.steps]
    assert steps == [name for point, name in seen if point is Point.STEP_ENDS]
    begins = seen.index((Point.STEP_BEGINS, "Compute"))
    assert seen[begins + 1] == (Point.ATTEMPT_BEGUN, report.checkpoint_id)
    begins = seen.index((Point.STEP_BEGINS, "CommitSinks"))
    (sink,) = {name for point, name in seen if point is Point.SINK_BEGINS}
    assert seen[begins + 1 : begins + 5] == [
        (Point.SINK_BEGINS, sink),
        (Point.SINK_SENDS_COMMIT, sink),
        (Point.SINK_COMMITTED, sink),
        (Point.STEP_ENDS, "CommitSinks"),
    ]
    assert {point for point, _ in seen} == {*Point} - {Point.SNAPSHOT_FILE_KEPT}


def test_a_file_of_a_snapshot_is_a_point_once_it_is_stored(seen: Seen) -> None:
    snapshots = StoredSnapshots(MemoryStore(), SourceId("orders"))
    draft = snapshots.begin(1)
    written = len(seen)
    snapshots.write(draft, FileName("rows"), 1, b"data")
    assert seen[written:] == [(Point.SNAPSHOT_FILE_KEPT, "rows")]


def test_a_sink_that_is_struck_before_its_commit_has_published_nothing(world: World) -> None:
    def crash() -> None:
        assert world.table.rows == []
        raise Crash

    store = MemoryStore()
    with strike_at(crash, Point.SINK_SENDS_COMMIT), pytest.raises(Crash):
        world.runner(store).run()
    assert world.table.ledger is None
    world.runner(store).run()
    assert world.table.rows == world.log.expected()


def test_it_strikes_once_and_only_there() -> None:
    struck: list[str] = []
    with strike_at(lambda: struck.append("x"), Point.STEP_ENDS, "Plan"):
        reach(Point.STEP_BEGINS, "Plan")
        reach(Point.STEP_ENDS, "Gate")
        assert struck == []
        reach(Point.STEP_ENDS, "Plan")
        reach(Point.STEP_ENDS, "Plan")
    reach(Point.STEP_ENDS, "Plan")
    assert struck == ["x"]


def test_who_was_never_there_has_proved_nothing() -> None:
    with (
        pytest.raises(NeverReached, match="no thread was at STEP_ENDS of Gate"),
        strike_at(lambda: None, Point.STEP_ENDS, "Gate"),
    ):
        reach(Point.STEP_ENDS, "Plan")
    assert points._watchers == ()


def test_a_process_dies_at_its_point_and_not_before() -> None:
    code = """
from laminar_dagster.core.points import Point, reach
from laminar_dagster.testing.crash import kill_at
kill_at(Point.STEP_BEGINS, "Plan")
reach(Point.STEP_BEGINS, "Gate")
print("alive", flush=True)
reach(Point.STEP_BEGINS, "Plan")
print("still alive", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "alive\n"), done.stderr
