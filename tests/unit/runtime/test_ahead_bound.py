"""How far event time may be ahead of the clock: pinned by the plan, for whoever carries it out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from laminar_dagster.config.project import load_pipeline
from laminar_dagster.core.document import decode, encode
from laminar_dagster.core.ids import EpochNumber, SourceId
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.runtime.assembly import (
    assemble,
    bounds_of,
    build_adapters,
    known_connectors,
)
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.steps import make_plan
from laminar_dagster.testing.memory_pipeline import NUMBERS
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.branches import conditions as branches
from tests.unit.runtime.conditions import World

HOUR = 3_600_000_000
DAY = 24 * HOUR


def test_a_plan_pins_the_bound_of_each_source() -> None:
    world = World()
    pipeline = replace(world.pipeline(MemoryStore()), max_ahead={NUMBERS: HOUR})
    plan = make_plan(pipeline, EpochNumber(1), None)
    assert [each.max_ahead_micros for each in plan.sources] == [HOUR]
    assert decode(encode(plan), EpochPlan, "plan") == plan
    other = make_plan(replace(pipeline, max_ahead={SourceId("other"): HOUR}), EpochNumber(1), None)
    assert [each.max_ahead_micros for each in other.sources] == [None]
    assert b"max_ahead" not in encode(other), "as before there was a bound"


def test_a_plan_that_is_stored_keeps_its_bound() -> None:
    """A retry, or whoever runs the epoch again, has the plan's and not the pipeline's."""
    world, store = World(), MemoryStore()
    world.log.partitions[0].extend([1, 2, 3])
    pipeline = replace(world.pipeline(store), max_ahead={NUMBERS: HOUR})
    pipeline.checkpoints.create_plan(make_plan(pipeline, EpochNumber(1), None))
    EpochRunner(replace(pipeline, max_ahead={NUMBERS: DAY})).run()
    (first,) = (pipeline.checkpoints.winner(EpochNumber(1)).plan,)
    assert first and [each.max_ahead_micros for each in first.sources] == [HOUR]


@pytest.mark.parametrize(
    ("option", "expected"), [("", {"s": DAY}), ("1h", {"s": HOUR}), ("unbounded", {})]
)
def test_an_assembled_pipeline_has_the_bounds_that_are_declared(
    tmp_path: Path, option: str, expected: dict[str, int]
) -> None:
    given = f", 'watermark.max.ahead' = '{option}'" if option else ""
    folder = tmp_path / "dbt_like_configs" / "shop"
    (folder / "models").mkdir(parents=True)
    (tmp_path / "input").mkdir()
    (folder / "pipeline.yml").write_text("name: shop\nstore: state\n")
    (folder / "models" / "v.sql").write_text("SELECT id FROM s")
    (folder / "sources.sql").write_text(
        "CREATE SOURCE TABLE s (id INT, ts TIMESTAMP, WATERMARK FOR ts)"
        f" WITH (connector = 'file', path = 'input', format = 'ndjson'{given});\n"
        "CREATE SOURCE TABLE t (id INT) WITH (connector = 'file', path = 'input', format = 'csv');"
    )
    pipeline = assemble(load_pipeline(folder, {}, known_connectors()), tmp_path, None)
    assert pipeline.max_ahead == expected


def test_a_branch_has_the_clock_of_the_pipeline_and_the_bound_of_its_version() -> None:
    """So that it puts right what an epoch without a bound did to the watermark."""
    world = branches.World(MemoryStore())
    world.arrive(1, 2, 3, 4)
    world.run(2)
    replay = world.fork(0)
    bounded = replace(replay, branch=replace(replay.branch, max_ahead={NUMBERS: HOUR}))
    assert [each.report.epoch for each in bounded.run()] == [1, 2]
    for number in (EpochNumber(1), EpochNumber(2)):
        stored, replayed = replay.main.plan(number), replay.branch.checkpoints.plan(number)
        assert stored and replayed
        assert replayed.clock == stored.clock
        assert [each.max_ahead_micros for each in stored.sources] == [None]
        without = [structs.replace(each, max_ahead_micros=None) for each in replayed.sources]
        assert without == [*stored.sources]
        assert [each.max_ahead_micros for each in replayed.sources] == [HOUR]


def test_every_connector_of_a_source_takes_the_option(tmp_path: Path) -> None:
    server = "host = 'h', database = 'd', user = 'u', password = '${PW}', tables = 't'"
    options = {
        "file": "path = 'input', format = 'ndjson'",
        "kafka": "bootstrap.servers = 'b:1', topic = 't', group.id = 'g'",
        "postgres-cdc": f"{server}, slot = 's', publication = 'p'",
        "mysql-cdc": server,
    }
    assert {*options} == {*known_connectors().sources}
    folder = tmp_path / "dbt_like_configs" / "shop"
    (folder / "models").mkdir(parents=True)
    (tmp_path / "input").mkdir()
    (folder / "pipeline.yml").write_text("name: shop\nstore: state\n")
    (folder / "models" / "v.sql").write_text("SELECT id FROM s0")
    (folder / "sources.sql").write_text(
        "".join(
            f"CREATE SOURCE TABLE s{number} (id INT, ts TIMESTAMP, WATERMARK FOR ts) WITH"
            f" (connector = '{name}', {quoted(each)}, 'watermark.max.ahead' = '1h');\n"
            for number, (name, each) in enumerate(options.items())
        )
    )
    model = load_pipeline(folder, {"PW": "x"}, known_connectors())
    assert len(build_adapters(model, tmp_path).sources) == 4
    assert {*bounds_of(model).values()} == {HOUR}


def quoted(options: str) -> str:
    pairs = (each.split(" = ") for each in options.split(", "))
    return ", ".join(f"'{name}' = {value}" for name, value in pairs)
