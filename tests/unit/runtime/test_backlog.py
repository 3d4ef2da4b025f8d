"""What waits to be read, told without writing anything."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from laminar_dagster.config.model import Column
from laminar_dagster.core.errors import SourceReplaced, SourceUnavailable
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import (
    CustomPosition,
    FilePosition,
    KafkaPosition,
    SourcePosition,
    SourceRange,
)
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission
from laminar_dagster.runtime.backlog import SourceBacklog, backlog_of, is_short_of, measure
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.sources.file.options import FileOptions
from laminar_dagster.sources.file.source import FileSource
from laminar_dagster.stores.local import LocalStore
from laminar_dagster.testing.memory_pipeline import MemoryLog, MemorySource
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.conditions import World


class AwaySource(MemorySource):
    """Cannot be reached."""

    def plan(
        self,
        previous: SourcePlan | None,
        start: tuple[SourcePosition, ...],
        limits: Admission,
        clock: datetime,
    ) -> SourcePlan:
        raise SourceUnavailable(self.source_id, "no route to host")


@pytest.fixture
def world() -> World:
    world = World()
    world.log.partitions = [[1, 2, 3, 4], [10, 20]]
    return world


def kafka(partition: int, offset: int) -> KafkaPosition:
    return KafkaPosition(topic="t", partition=partition, offset=offset)


def test_before_the_first_epoch_everything_waits(world: World) -> None:
    backlog = backlog_of(world.pipeline(MemoryStore()))
    (source,) = backlog.sources
    assert (source.amount, source.unit, len(source.ranges)) == (6, "records", 2)
    assert not backlog.is_empty
    assert backlog.since_commit is None
    # Three of each partition fit into an epoch.
    assert backlog.exceeds_epoch
    assert not backlog_of(world.pipeline(MemoryStore(), max_records=4)).exceeds_epoch
    assert not backlog_of(world.pipeline(MemoryStore(), max_records=None)).exceeds_epoch


def test_what_an_epoch_has_read_no_longer_waits(world: World) -> None:
    pipeline = world.pipeline(MemoryStore())
    EpochRunner(pipeline).run()
    world.clock.moment += timedelta(minutes=5)
    backlog = backlog_of(pipeline)
    (source,) = backlog.sources
    assert source.amount == 1
    assert [(part.start, part.end) for part in source.waiting] == [
        (
            KafkaPosition(topic="numbers", partition=0, offset=3),
            KafkaPosition(topic="numbers", partition=0, offset=4),
        )
    ]
    assert backlog.since_commit == timedelta(minutes=5)
    EpochRunner(pipeline).run()
    assert backlog_of(pipeline).is_empty
    assert backlog_of(pipeline).sources[0].amount == 0


def test_a_look_writes_nothing(world: World, tmp_path: Path) -> None:
    pipeline = world.pipeline(LocalStore(tmp_path))
    EpochRunner(pipeline).run()
    before = sorted(tmp_path.rglob("*"))
    backlog_of(pipeline)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_source_that_is_away_hides_no_other(world: World) -> None:
    away = AwaySource(MemoryLog(), SourceId("away"))
    pipeline = world.pipeline(MemoryStore())
    pipeline = dataclasses.replace(pipeline, sources=(away, *pipeline.sources))
    backlog = backlog_of(pipeline)
    assert [source.source_id for source in backlog.sources] == ["away", "numbers"]
    assert isinstance(backlog.sources[0].error, SourceUnavailable)
    assert backlog.sources[0].amount is None
    assert backlog.sources[1].amount == 6
    with pytest.raises(SourceUnavailable):
        backlog.require_complete()


def test_files_wait_by_the_byte_and_must_be_the_ones_that_were_planned(
    world: World, tmp_path: Path
) -> None:
    folder = tmp_path / "input"
    folder.mkdir()
    (folder / "a").write_text('{"n": 1}\n{"n": 2}\n{"n":')
    source = FileSource(
        SourceId("files"), folder, [Column("n", "int")], FileOptions(format="ndjson")
    )
    now = world.clock.now()
    (found,) = measure([source], None, None, now).sources
    # The torn last line is not there yet.
    assert (found.amount, found.unit) == (18, "bytes")
    (limited,) = measure([source], None, None, now, Admission(max_records=1)).sources
    assert limited.exceeds_epoch
    (folder / "a").unlink()
    assert measure([source], None, None, now).is_empty
    (folder / "b").symlink_to("/etc/passwd")
    (refused,) = measure([source], None, None, now).sources
    assert refused.error is not None
    assert not isinstance(refused.error, SourceReplaced)


def test_positions_without_a_number_have_no_amount() -> None:
    start = CustomPosition(source_type="mine", position_bytes=b"\1")
    end = CustomPosition(source_type="mine", position_bytes=b"\2")
    waits = SourceBacklog(SourceId("mine"), (SourceRange(start=start, end=end),))
    assert (waits.amount, waits.unit, waits.is_empty) == (None, None, False)
    rests = SourceBacklog(SourceId("mine"), (SourceRange(start=end, end=end),))
    assert (rests.amount, rests.is_empty) == (0, True)


@pytest.mark.parametrize(
    ("reached", "wanted", "short"),
    [
        ([], [], False),
        ([], [kafka(0, 1)], True),
        ([kafka(0, 1)], [kafka(0, 1)], False),
        ([kafka(0, 2)], [kafka(0, 1)], False),
        ([kafka(0, 1)], [kafka(0, 2)], True),
        ([kafka(0, 9)], [kafka(0, 1), kafka(1, 1)], True),
        ([FilePosition(path="a", byte_offset=5)], [FilePosition(path="a", byte_offset=5)], False),
    ],
)
def test_short_of_is_told_by_partition(
    reached: list[SourcePosition], wanted: list[SourcePosition], short: bool
) -> None:
    assert is_short_of(reached, wanted) is short
