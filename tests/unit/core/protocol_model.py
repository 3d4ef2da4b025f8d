"""A plain model of the store, the sinks and the processes around the protocol.

Two processes work on the same epochs, each on its own facts, which may be old by the time it acts.
A process may die at any moment and forget what only it knew; a sink may go away and come back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final, Literal, TypeVar

from laminar_dagster.core.errors import GateFailed
from laminar_dagster.core.ids import CheckpointId, EpochNumber, SinkId
from laminar_dagster.core.protocol import (
    Acknowledge,
    AwaitEpoch,
    AwaitSinks,
    Collect,
    CommitSinks,
    Compute,
    EpochFacts,
    Finished,
    Gate,
    Halt,
    MoveLatest,
    Plan,
    Prepare,
    SinkFact,
    Step,
    WriteManifest,
    next_step,
)
from tests.unit.core.samples import checkpoint

T = TypeVar("T")

FAILURE: Final = GateFailed(1, "contract", "no")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What does not change: the sinks of each epoch, and whether the output passes the gate."""

    epochs: tuple[tuple[str, ...], ...]
    passes: bool = True
    sinks_leave: bool = False
    crashes: int = 1

    @property
    def last(self) -> int:
        return len(self.epochs)

    @property
    def sinks(self) -> tuple[str, ...]:
        return tuple(sorted({sink for sinks in self.epochs for sink in sinks}))

    def joined_at(self, sink: str) -> int:
        return next(n for n, sinks in enumerate(self.epochs, start=1) if sink in sinks)


@dataclass(frozen=True, slots=True)
class World:
    """What survives a crash."""

    planned: tuple[bool, ...]
    winners: tuple[CheckpointId | None, ...]
    newest: int
    latest: int
    ledgers: tuple[tuple[str, int], ...]
    away: frozenset[str] = frozenset()

    @property
    def progress(self) -> int:
        ledgers = sum(ledger for _, ledger in self.ledgers)
        decided = sum(winner is not None for winner in self.winners)
        return sum(self.planned) + decided + self.newest + self.latest + ledgers


@dataclass(frozen=True, slots=True)
class Process:
    """What one process knows: its epoch, its attempt, and the step it is about to take."""

    name: int
    epoch: int = 1
    life: int = 0
    attempt: CheckpointId | None = None
    gate: Literal[True] | GateFailed | None = None
    acknowledged: bool = False
    collected: bool = False
    about_to: Step | None = None

    @property
    def progress(self) -> int:
        return (
            (self.attempt is not None)
            + (self.gate is not None)
            + self.acknowledged
            + self.collected
        )

    def turned_to(self, epoch: int) -> Process:
        return Process(self.name, epoch, self.life)

    def reborn(self) -> Process:
        return Process(self.name, self.epoch, self.life + 1)


State = tuple[World, tuple[Process, ...]]


def beginning(pipeline: Pipeline) -> World:
    return World(
        planned=(False,) * pipeline.last,
        winners=(None,) * pipeline.last,
        newest=0,
        latest=0,
        ledgers=tuple((sink, pipeline.joined_at(sink) - 1) for sink in pipeline.sinks),
    )


def facts_of(pipeline: Pipeline, world: World, process: Process) -> EpochFacts:
    ledgers = dict(world.ledgers)
    sinks = pipeline.epochs[process.epoch - 1] if world.newest >= process.epoch else ()
    return EpochFacts(
        epoch=EpochNumber(process.epoch),
        latest=EpochNumber(world.latest),
        newest=EpochNumber(world.newest),
        planned=world.planned[process.epoch - 1],
        winner=world.winners[process.epoch - 1],
        attempt=process.attempt,
        gate=process.gate,
        sinks=tuple(
            SinkFact(SinkId(sink), None if sink in world.away else EpochNumber(ledgers[sink]))
            for sink in sinks
        ),
        acknowledged=process.acknowledged,
        collected=process.collected,
    )


def decide(pipeline: Pipeline, world: World, process: Process) -> Step:
    return next_step(facts_of(pipeline, world, process))


def outcomes(
    pipeline: Pipeline, world: World, process: Process, step: Step
) -> Iterator[tuple[World, Process]]:
    """What a step may lead to. Conditions hold where the store or the sink holds them."""
    place = process.epoch - 1
    done = replace(process, about_to=None)
    match step:
        case Plan():
            yield replace(world, planned=_set(world.planned, place, True)), done
        case Compute():
            # Each life of each process has names of its own.
            number = process.name * 100 + process.epoch * 10 + process.life
            yield world, replace(done, attempt=checkpoint(number))
        case Gate():
            yield world, replace(done, gate=True if pipeline.passes else FAILURE)
        case Prepare(attempt=attempt):
            winner = world.winners[place] or attempt
            yield replace(world, winners=_set(world.winners, place, winner)), done
        case WriteManifest(winner=winner):
            assert world.winners[place] == winner, "the manifest of an attempt that did not win"
            assert world.newest >= place, "a manifest without the one below"
            yield replace(world, newest=max(world.newest, process.epoch)), done
        case CommitSinks(sinks=sinks):
            assert world.newest >= process.epoch, "a sink committed before the manifest"
            for size in range(1, len(sinks) + 1):
                for some in combinations(sinks, size):
                    yield replace(world, ledgers=_commit(world, process.epoch, some)), done
        case MoveLatest():
            yield replace(world, latest=max(world.latest, process.epoch)), done
        case Acknowledge():
            yield world, replace(done, acknowledged=True)
        case Collect():
            yield world, replace(done, collected=True)
        case Finished() | AwaitSinks() | AwaitEpoch() | Halt():
            raise AssertionError(f"{step} is nothing to carry out")


def successors(pipeline: Pipeline, state: State) -> Iterator[State]:
    """Everything that can happen next."""
    world, processes = state
    for place, process in enumerate(processes):
        if process.about_to is not None:
            for after, changed in outcomes(pipeline, world, process, process.about_to):
                yield after, _set(processes, place, changed)
        else:
            step = decide(pipeline, world, process)
            if not isinstance(step, Finished | AwaitSinks | AwaitEpoch | Halt):
                yield world, _set(processes, place, replace(process, about_to=step))
            # Free to look at any epoch that can have begun, in any order.
            for epoch in range(1, min(world.newest + 1, pipeline.last) + 1):
                if epoch != process.epoch:
                    yield world, _set(processes, place, process.turned_to(epoch))
        if process.life < pipeline.crashes:
            yield world, _set(processes, place, process.reborn())
    if pipeline.sinks_leave:
        for sink in pipeline.sinks:
            yield replace(world, away=world.away ^ {sink}), processes


def reachable(pipeline: Pipeline, processes: int) -> set[State]:
    start: State = (beginning(pipeline), tuple(Process(n + 1) for n in range(processes)))
    seen = {start}
    front = [start]
    while front:
        front = [
            state for each in front for state in successors(pipeline, each) if _is_new(state, seen)
        ]
    return seen


def _is_new(state: State, seen: set[State]) -> bool:
    if state in seen:
        return False
    seen.add(state)
    return True


def _set(items: tuple[T, ...], place: int, item: T) -> tuple[T, ...]:
    return (*items[:place], item, *items[place + 1 :])


def _commit(world: World, epoch: int, sinks: tuple[SinkId, ...]) -> tuple[tuple[str, int], ...]:
    """Each sink by itself: forward by one, or not at all when it is there, past it or away."""
    return tuple(
        (
            sink,
            epoch if sink in sinks and sink not in world.away and ledger == epoch - 1 else ledger,
        )
        for sink, ledger in world.ledgers
    )
