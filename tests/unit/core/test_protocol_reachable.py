"""Every state that two processes, crashes and absent sinks can lead to: safe, and never stuck."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations_with_replacement

import pytest

from laminar_dagster.core.errors import EpochTaken, GateFailed
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.core.protocol import (
    AwaitEpoch,
    AwaitSinks,
    EpochFacts,
    Finished,
    Halt,
    SinkFact,
    Step,
    next_step,
)
from tests.unit.core.protocol_model import (
    Pipeline,
    Process,
    State,
    World,
    beginning,
    decide,
    outcomes,
    reachable,
    successors,
)

TWO = ("a", "b")
WORLDS = {
    "two processes, one epoch, two sinks": (Pipeline((TWO,)), 2),
    "two processes, two epochs": (Pipeline((("a",), ("a",)), crashes=0), 2),
    "two processes, two epochs, crashes": (Pipeline((("a",), ("a",))), 2),
    "two processes, a gate that fails": (Pipeline((("a",),), passes=False), 2),
    "two processes, sinks that leave": (Pipeline((TWO,), sinks_leave=True, crashes=0), 2),
    "one process, sinks that leave": (Pipeline((TWO, TWO), sinks_leave=True, crashes=2), 1),
    "one process, no sink": (Pipeline(((), ()), crashes=2), 1),
    "a sink that joins": (Pipeline((("a",), TWO, TWO), crashes=1), 1),
    "a sink that is removed": (Pipeline((TWO, ("a",)), crashes=1), 1),
}


@pytest.mark.parametrize("name", WORLDS)
def test_every_reachable_state_is_safe_and_leads_on(name: str) -> None:
    pipeline, processes = WORLDS[name]
    states = reachable(pipeline, processes)
    print(f"{name}: {len(states):,} states")  # noqa: T201
    assert len(states) > 50
    for world in {world for world, _ in states}:
        check_nothing_is_wrong(pipeline, world)
        check_a_newcomer_finishes_every_epoch(pipeline, replace(world, away=frozenset()))
    for state in states:
        check_facts_only_grow(pipeline, state)
        for process in state[1]:
            check_only_a_lost_race_or_a_failed_gate_halts(pipeline, state[0], process)
    alone = {(world, replace(each, about_to=None)) for world, them in states for each in them}
    for world, process in alone:
        check_every_step_leads_on(pipeline, world, process)


@pytest.mark.parametrize(
    "name",
    ["two processes, one epoch, two sinks", "a sink that joins", "a sink that is removed"],
)
def test_latest_is_confirmed_by_every_sink_of_every_epoch_up_to_it(name: str) -> None:
    pipeline, processes = WORLDS[name]
    for world in {world for world, _ in reachable(pipeline, processes)}:
        ledgers = dict(world.ledgers)
        for epoch in range(1, world.latest + 1):
            missing = [sink for sink in pipeline.epochs[epoch - 1] if ledgers[sink] < epoch]
            assert not missing, f"{missing} never got epoch {epoch}: {world}"


def check_nothing_is_wrong(pipeline: Pipeline, world: World) -> None:
    assert world.latest <= world.newest
    for sink, ledger in world.ledgers:
        assert ledger <= max(world.newest, pipeline.joined_at(sink) - 1), "before the manifest"
    for place in range(pipeline.last):
        committed = world.newest > place
        assert not committed or world.winners[place], "a manifest without a winner"
        assert not world.winners[place] or world.planned[place], "a winner without a plan"
        assert not world.planned[place] or world.newest >= place, "planned too early"
    for sink in pipeline.epochs[world.latest - 1] if world.latest else ():
        assert dict(world.ledgers)[sink] >= world.latest, "latest moved before a sink was there"
    assert pipeline.passes or world.newest == 0, "published in spite of the gate"


def check_facts_only_grow(pipeline: Pipeline, state: State) -> None:
    before = state[0]
    for after, _ in successors(pipeline, state):
        assert after.newest - before.newest in (0, 1)
        assert after.latest >= before.latest
        for old, new in zip(before.winners, after.winners, strict=True):
            assert old in (None, new), "a decided epoch was decided again"
        for (_, was), (_, now) in zip(before.ledgers, after.ledgers, strict=True):
            assert now - was in (0, 1), "a ledger moved other than by one"


def check_only_a_lost_race_or_a_failed_gate_halts(
    pipeline: Pipeline, world: World, process: Process
) -> None:
    match decide(pipeline, world, process):
        case Halt(error=EpochTaken()):
            assert process.attempt not in (None, world.winners[process.epoch - 1])
        case Halt(error=GateFailed()):
            assert not pipeline.passes
        case Halt(error=error):
            raise AssertionError(f"{error} at {world} for {process}")
        case AwaitSinks(sinks=sinks):
            behind = {sink for sink, ledger in world.ledgers if ledger < process.epoch}
            assert sinks
            assert set(sinks) <= behind | world.away


def check_every_step_leads_on(pipeline: Pipeline, world: World, process: Process) -> None:
    """One process alone: each step adds a fact, so there is no way round in a circle."""
    steps = 0
    while not isinstance(
        step := decide(pipeline, world, process), Finished | AwaitSinks | AwaitEpoch | Halt
    ):
        before = world.progress + process.progress
        # The last outcome is the one in which every sink that was asked commits.
        *_, (world, process) = outcomes(pipeline, world, process, step)
        assert world.progress + process.progress > before, f"{step} changed nothing"
        steps += 1
    assert steps <= 9


def check_a_newcomer_finishes_every_epoch(pipeline: Pipeline, world: World) -> None:
    """Everybody dead and all sinks back: whoever comes next goes through, in order."""
    end, verdict = finish(pipeline, world)
    if pipeline.passes:
        assert isinstance(verdict, Finished)
        assert end.latest == end.newest == pipeline.last
    else:
        assert isinstance(verdict, Halt)


def finish(pipeline: Pipeline, world: World) -> tuple[World, Step]:
    step: Step = Finished()
    for epoch in range(world.latest + 1, pipeline.last + 1):
        process = Process(name=9, epoch=epoch)
        while not isinstance(
            step := decide(pipeline, world, process), Finished | AwaitSinks | AwaitEpoch | Halt
        ):
            *_, (world, process) = outcomes(pipeline, world, process, step)
        if not isinstance(step, Finished):
            break
    return world, step


# --- facts are not read in one moment -----------------------------------------------------------


def history() -> list[World]:
    """What another process does, step by step, for four epochs and two sinks."""
    pipeline = Pipeline((TWO,) * 4)
    world = beginning(pipeline)
    worlds = [world]
    for epoch in range(1, 5):
        process = Process(name=1, epoch=epoch)
        while not isinstance(step := decide(pipeline, world, process), Finished):
            # One sink at a time, so that every intermediate ledger is seen.
            world, process = next(outcomes(pipeline, world, process, step))
            worlds.append(world)
    return worlds


READ: dict[str, Callable[[EpochFacts, World], EpochFacts]] = {
    "latest": lambda facts, world: replace(facts, latest=EpochNumber(world.latest)),
    "newest": lambda facts, world: replace(facts, newest=EpochNumber(world.newest)),
    "ledgers": lambda facts, world: replace(
        facts,
        sinks=tuple(SinkFact(SinkId(sink), EpochNumber(at)) for sink, at in world.ledgers),
    ),
}


def halts(order: tuple[str, ...]) -> Iterator[EpochFacts]:
    """Facts that stop an epoch, when another process goes on between the reads."""
    worlds = history()
    for epoch in range(1, 5):
        for moments in combinations_with_replacement(worlds, len(order)):
            facts = EpochFacts(
                epoch=EpochNumber(epoch),
                latest=EpochNumber(0),
                newest=EpochNumber(0),
                planned=True,
            )
            for name, world in zip(order, moments, strict=True):
                facts = READ[name](facts, world)
            if facts.newest >= epoch and isinstance(next_step(facts), Halt):
                yield facts


def test_read_between_latest_and_newest_a_ledger_never_looks_wrong() -> None:
    assert list(halts(("latest", "ledgers", "newest"))) == []


@pytest.mark.parametrize(
    "order", [("latest", "newest", "ledgers"), ("ledgers", "latest", "newest")], ids=str
)
def test_read_in_another_order_a_ledger_can_look_wrong(order: tuple[str, ...]) -> None:
    """Why the order is a rule: here a healthy pipeline is told that its sink is at fault."""
    assert next(halts(order), None) is not None
