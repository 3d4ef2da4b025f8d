"""next_step, for every combination of facts over small domains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Literal, get_args

import pytest

from laminar_dagster.core.errors import (
    EpochOutOfOrder,
    EpochTaken,
    GateFailed,
    LedgerMismatch,
)
from laminar_dagster.core.ids import EpochNumber, SinkId
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

OWN, OTHER = checkpoint(1), checkpoint(2)
FAILURE = GateFailed(1, "contract", "no")
STEPS = tuple(kind for group in get_args(Step) for kind in (get_args(group) or (group,)))
LEDGERS = (None, *map(EpochNumber, range(5)))
VERDICTS: tuple[Literal[True] | GateFailed | None, ...] = (None, True, FAILURE)


def every_fact() -> Iterator[EpochFacts]:
    sinks = [
        tuple(SinkFact(SinkId(f"s{place}"), ledger) for place, ledger in enumerate(ledgers))
        for size in range(3)
        for ledgers in product(LEDGERS, repeat=size)
    ]
    orders = [(latest, newest) for newest in range(4) for latest in range(newest + 1)]
    for (
        epoch,
        (latest, newest),
        planned,
        winner,
        attempt,
        gate,
        sink_facts,
        acknowledged,
        collected,
    ) in product(
        range(1, 4),
        orders,
        (False, True),
        (None, OWN, OTHER),
        (None, OWN),
        VERDICTS,
        sinks,
        (False, True),
        (False, True),
    ):
        yield EpochFacts(
            epoch=EpochNumber(epoch),
            latest=EpochNumber(latest),
            newest=EpochNumber(newest),
            planned=planned,
            winner=winner,
            attempt=attempt,
            gate=gate,
            sinks=sink_facts,
            acknowledged=acknowledged,
            collected=collected,
        )


def may(facts: EpochFacts, step: Step) -> bool:
    """Whether a step is right, step by step: what must hold before it is taken."""
    ours = facts.attempt is None or facts.winner in (None, facts.attempt)
    before_manifest = facts.newest == facts.epoch - 1 and facts.latest < facts.epoch
    after_manifest = facts.newest >= facts.epoch > facts.latest
    passed = facts.latest > facts.epoch
    finished = facts.latest == facts.epoch
    undecided = before_manifest and facts.winner is None
    ready = {each.sink_id for each in facts.sinks if each.ledger == facts.epoch - 1}
    behind = {
        each.sink_id for each in facts.sinks if each.ledger is None or each.ledger < facts.epoch - 1
    }
    strange = {
        each.sink_id
        for each in facts.sinks
        if each.ledger is not None
        and (
            each.ledger > facts.newest
            or (each.ledger < facts.epoch - 1 and facts.latest >= facts.epoch - 1)
        )
    }
    match step:
        case Halt(error=EpochTaken()):
            return not ours
        case Halt(error=EpochOutOfOrder() as error):
            return ours and facts.newest < facts.epoch - 1 and error.missing == facts.newest + 1
        case Halt(error=GateFailed()):
            return undecided and facts.planned and bool(facts.attempt) and facts.gate is FAILURE
        case Halt(error=LedgerMismatch() as error):
            return ours and after_manifest and error.sink_id in strange
        case Plan():
            return undecided and not facts.planned
        case Compute():
            return undecided and facts.planned and not facts.attempt
        case Gate(attempt=attempt):
            return undecided and facts.planned and attempt == OWN and facts.gate is None
        case Prepare(attempt=attempt):
            return undecided and facts.planned and attempt == OWN and facts.gate is True
        case WriteManifest(winner=winner):
            return ours and before_manifest and winner == facts.winner
        case CommitSinks(sinks=sinks):
            return ours and after_manifest and not strange and bool(ready) and set(sinks) == ready
        case AwaitSinks(sinks=sinks):
            return ours and after_manifest and not strange and not ready and set(sinks) == behind
        case AwaitEpoch(epoch=epoch):
            alone = ours and after_manifest and not strange and not ready and not behind
            return alone and facts.latest < epoch == facts.epoch - 1
        case MoveLatest():
            alone = ours and after_manifest and not strange and not ready and not behind
            return alone and facts.latest == facts.epoch - 1
        case Acknowledge():
            return ours and finished and not facts.acknowledged
        case Collect():
            return ours and finished and facts.acknowledged and not facts.collected
        case Finished():
            # Telling a source of an epoch that others went past would set it back.
            return ours and (passed or (finished and facts.acknowledged and facts.collected))
    return False


def test_every_combination_of_facts_has_exactly_one_right_step() -> None:
    seen: Counter[str] = Counter()
    for facts in every_fact():
        step = next_step(facts)
        assert isinstance(step, STEPS), facts
        assert may(facts, step), f"{step} for {facts}"
        seen[type(step).__name__] += 1
    print(f"{sum(seen.values()):,} combinations of facts: {dict(seen)}")  # noqa: T201
    assert sum(seen.values()) == 185_760
    assert set(seen) == {kind.__name__ for kind in STEPS}


def test_an_earlier_step_is_never_repeated_once_its_fact_exists() -> None:
    for facts in every_fact():
        step = next_step(facts)
        if facts.winner:
            assert not isinstance(step, Plan | Compute | Gate | Prepare)
        if facts.planned:
            assert not isinstance(step, Plan)
        if facts.newest >= facts.epoch:
            assert not isinstance(step, Plan | Compute | Gate | Prepare | WriteManifest)
        if facts.newest < facts.epoch:
            assert not isinstance(step, CommitSinks | AwaitSinks | MoveLatest)
        if facts.latest < facts.epoch:
            assert not isinstance(step, Acknowledge | Collect | Finished)


def facts(epoch: int, latest: int, newest: int, **known: object) -> EpochFacts:
    return EpochFacts(
        epoch=EpochNumber(epoch),
        latest=EpochNumber(latest),
        newest=EpochNumber(newest),
        **known,  # type: ignore[arg-type]
    )


def at(name: str, ledger: int | None) -> SinkFact:
    return SinkFact(SinkId(name), None if ledger is None else EpochNumber(ledger))


@pytest.mark.parametrize(
    ("known", "step"),
    [
        (facts(1, 0, 0), Plan()),
        (facts(1, 0, 0, planned=True), Compute()),
        (facts(1, 0, 0, planned=True, attempt=OWN), Gate(OWN)),
        (facts(1, 0, 0, planned=True, attempt=OWN, gate=True), Prepare(OWN)),
        (facts(1, 0, 0, planned=True, winner=OTHER), WriteManifest(OTHER)),
        (facts(1, 0, 0, winner=OTHER), WriteManifest(OTHER)),
        (facts(1, 0, 1, sinks=(at("a", 0), at("b", 1))), CommitSinks((SinkId("a"),))),
        (facts(1, 0, 1, sinks=(at("a", None), at("b", 0))), CommitSinks((SinkId("b"),))),
        (facts(1, 0, 1, sinks=(at("a", None), at("b", 1))), AwaitSinks((SinkId("a"),))),
        (facts(2, 0, 2, sinks=(at("a", 0), at("b", 1))), CommitSinks((SinkId("b"),))),
        (facts(2, 0, 2, sinks=(at("a", 0), at("b", 2))), AwaitSinks((SinkId("a"),))),
        (facts(1, 0, 1, sinks=(at("a", 1), at("b", 1))), MoveLatest()),
        (facts(1, 0, 2, sinks=(at("a", 1), at("b", 2))), MoveLatest()),
        (facts(1, 0, 1), MoveLatest()),
        (facts(1, 1, 1), Acknowledge()),
        (facts(1, 1, 3, acknowledged=True), Collect()),
        (facts(1, 3, 3), Finished()),
        (facts(1, 1, 1, acknowledged=True, collected=True), Finished()),
    ],
)
def test_the_life_of_an_epoch(known: EpochFacts, step: Step) -> None:
    assert next_step(known) == step


@pytest.mark.parametrize(
    ("known", "error", "fields"),
    [
        (facts(1, 0, 0, attempt=OWN, winner=OTHER), EpochTaken, {"epoch": 1, "winner": OTHER}),
        (facts(3, 0, 1), EpochOutOfOrder, {"epoch": 3, "missing": 2}),
        (facts(1, 0, 0, planned=True, attempt=OWN, gate=FAILURE), GateFailed, {"epoch": 1}),
        # Past every manifest: the store was set back, or the sink is shared.
        (facts(1, 0, 1, sinks=(at("a", 2),)), LedgerMismatch, {"sink_id": "a", "ledger": 2}),
        # It had confirmed epoch 2, or `_latest` would not be there.
        (facts(3, 2, 3, sinks=(at("a", 1),)), LedgerMismatch, {"epoch": 3, "ledger": 1}),
    ],
)
def test_what_stops_an_epoch(
    known: EpochFacts, error: type[Exception], fields: dict[str, object]
) -> None:
    step = next_step(known)
    assert isinstance(step, Halt)
    assert type(step.error) is error
    assert step.error.context().items() >= fields.items()
