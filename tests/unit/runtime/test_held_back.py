"""What a plan pins of a partition that ``epoch.max_drift`` holds back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.document import checksum
from laminar_dagster.core.errors import RetentionExpired
from laminar_dagster.core.ids import EpochNumber, SourceId
from laminar_dagster.core.manifest import CheckpointManifest, SourceOffsetEntry
from laminar_dagster.core.offsets import LogMark, MysqlIdentity, MysqlPosition, SourceRange
from laminar_dagster.core.plan import EpochPlan, SourcePlan
from laminar_dagster.core.ports import Admission, PinsItsEnd
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.steps import make_plan
from laminar_dagster.sources.file.source import FileSource
from laminar_dagster.sources.mysql.planning import Planner
from laminar_dagster.sources.mysql.source import MysqlCdcSource
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.core.samples import manifest
from tests.unit.runtime.conditions import World
from tests.unit.sources.file.files import ends, extents, file_source

LINE = b'{"n":1}\n'
DAY, HOUR = 86_400_000_000, 3_600_000_000


def pipeline_of(root: Path, **options: Any) -> Pipeline:
    made = World().pipeline(MemoryStore())
    source = file_source(root, **options)
    return replace(made, sources=(source,), max_drift=HOUR, limits=Admission())


def committed(pipeline: Pipeline, plan: EpochPlan) -> CheckpointManifest:
    """The checkpoint of a plan, in which one file is a day ahead of the other."""
    (part,) = plan.sources
    pipeline.checkpoints.create_plan(plan)
    entry = SourceOffsetEntry(
        source_id=part.source_id,
        positions=ends(part),
        path=layout.offsets_path(part.source_id),
        watermarks=tuple(DAY if path == "ahead.log" else 0 for path in extents(part)),
        watermark=0,
    )
    changes: dict[str, Any] = {"fingerprint": "code", "sinks": (), "sources": (entry,)}
    return manifest(plan.epoch, plan_checksum=checksum(plan), **changes)


def planned(pipeline: Pipeline, parent: CheckpointManifest | None) -> EpochPlan:
    epoch = parent.epoch.next() if parent else EpochNumber(1)
    return make_plan(replace(pipeline, sinks=()), epoch, parent)


def held_back(root: Path, pipeline: Pipeline) -> CheckpointManifest:
    """After the epoch in which the file that is ahead has grown, and was not read."""
    for name in ("ahead.log", "slow.log"):
        (root / name).write_bytes(2 * LINE)
    first = committed(pipeline, planned(pipeline, None))
    for name in ("ahead.log", "slow.log"):
        (root / name).write_bytes(5 * LINE)
    plan = planned(pipeline, first)
    assert extents(plan.sources[0]) == {"ahead.log": (16, 16), "slow.log": (16, 40)}
    pipeline.sources[0].verify(plan.sources[0])
    return committed(pipeline, plan)


@pytest.mark.parametrize("on_vanished", ["forget", "fail"])
def test_a_file_that_is_held_back_was_not_read_to_its_end(tmp_path: Path, on_vanished: str) -> None:
    pipeline = pipeline_of(tmp_path, on_vanished=on_vanished)
    parent = held_back(tmp_path, pipeline)
    (tmp_path / "ahead.log").unlink()
    with pytest.raises(RetentionExpired, match=r"ahead\.log from byte 16 on") as caught:
        planned(pipeline, parent)
    assert "read to its end" not in str(caught.value)


def test_what_was_held_back_of_a_vanished_file_is_a_gap(tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path, on_vanished="forget", on_gap="earliest")
    parent = held_back(tmp_path, pipeline)
    (tmp_path / "ahead.log").unlink()
    (part,) = planned(pipeline, parent).sources
    (gap,) = part.gaps
    assert gap.lost.start.byte_offset == 16  # type: ignore[union-attr]
    assert gap.lost.end.byte_offset == 40  # type: ignore[union-attr]


def test_a_file_that_was_held_back_is_read_when_the_others_came_up(tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path)
    parent = held_back(tmp_path, pipeline)
    (part,) = planned(pipeline, parent).sources
    assert extents(part) == {"ahead.log": (16, 40), "slow.log": (40, 40)}


def test_a_file_whose_start_nobody_has_pinned_is_not_held_back(tmp_path: Path) -> None:
    """Rather ahead of the others than with a pin that is not its own."""
    (tmp_path / "ahead.log").write_bytes(5 * LINE)
    source = file_source(tmp_path)
    whole = source.plan(None, (), Admission(), World().clock.now())
    empty = SourceRange(start=whole.ranges[0].start, end=whole.ranges[0].start)
    held = SourcePlan(source_id=whole.source_id, identity=whole.identity, ranges=(empty,))
    assert source.pin_held(held, None) == whole


def test_tables_of_mysql_are_pinned_where_the_epoch_begins() -> None:
    """The log behind has an ALTER; the next epoch reads it from the start."""

    def pinned(start: int, kind: str) -> MysqlIdentity:
        mark = LogMark(binlog_file="log.1", start=start, checksum=start)
        return MysqlIdentity(server_uuid="s", mark=mark, tables={"t": {"c": kind}})

    def plan(start: int, end: int, identity: MysqlIdentity) -> SourcePlan:
        places = [MysqlPosition(binlog_file="log.1", binlog_position=at) for at in (start, end)]
        part = SourceRange(start=places[0], end=places[1])
        return SourcePlan(source_id=SourceId("t"), identity=identity, ranges=(part,))

    tables: Any = SimpleNamespace(source_id=SourceId("t"))
    keeper: Any = SimpleNamespace(newest=lambda: None)
    before = plan(4, 100, pinned(90, "int"))
    held = plan(100, 100, pinned(190, "bigint"))
    found = Planner(tables, keeper).pin_held(held, before)
    assert found == plan(100, 100, pinned(90, "int"))


@pytest.mark.parametrize("source", [FileSource, MysqlCdcSource])
def test_sources_whose_pin_depends_on_the_end_are_asked(source: type) -> None:
    assert issubclass(source, PinsItsEnd)
