"""Two processes at one epoch: at once, or one that wakes up after the other has finished.

Nothing in this proof keeps them apart but the sinks' ledgers and the store's conditions.
"""

from __future__ import annotations

import time

import pytest

from tests.integration.proof.meeting import those_that_met
from tests.integration.proof.sinks.case import PATIENCE
from tests.integration.proof.sinks.conftest import CaseFactory, StoreKind
from tests.integration.proof.sinks.ground import Server
from tests.integration.proof.sinks.places import ON_SERVERS, TEAMS
from tests.integration.proof.sinks.topic_place import TopicPlace
from tests.services.faulty_wire import FaultyWire

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service("postgres"),
    pytest.mark.service("mariadb"),
    pytest.mark.service("kafka"),
    pytest.mark.service("s3"),
    pytest.mark.proof("rivals at the sinks"),
]


@pytest.mark.parametrize("store", ["local", "s3"])
@pytest.mark.parametrize("seed", range(2))
def test_two_commit_at_once(make_case: CaseFactory, store: StoreKind, seed: int) -> None:
    """To every kind of sink. Each finds its work done, or is told that another has it."""
    case = make_case(TEAMS[seed % 2], store, seed=seed)
    meetings = case.ground.root / "meetings"
    rivals = [case.start(patience=PATIENCE, meeting=meetings) for _ in range(2)]
    for worker in rivals:
        worker.must_finish()
    assert those_that_met(meetings), "they never met"
    case.check_everything()


@pytest.mark.parametrize("kind", ON_SERVERS)
def test_a_stopped_writer_wakes_after_another_took_over(
    make_wired_case: CaseFactory, wires: dict[Server, FaultyWire], kind: str
) -> None:
    """It was stopped inside its transaction, all rows sent, its commit on the way.

    The other does this epoch and the next. The commit then arrives, the writer wakes, and changes
    nothing.
    """
    case = make_wired_case((kind, "sqlite_moves"))
    case.start(epochs=1).must_finish()
    held = wires[case.server_of(kind)].hold_next_request(case.place(kind).is_commit)
    writer = case.start()
    held.wait()
    case.wait_for_the_others(2, kind)
    writer.stop()
    try:
        case.start(patience=PATIENCE).must_finish()
        case.check_everything()
    finally:
        held.release()
        writer.wake()
    writer.must_finish_or_fail("fenced_out", "epoch_taken", "commit_outcome_unknown")
    case.check_everything()


@pytest.mark.parametrize("kind", ["kafka_moves", "kafka_balances"])
def test_a_transaction_expires_while_its_committer_sleeps(
    make_wired_case: CaseFactory, wires: dict[Server, FaultyWire], kind: str
) -> None:
    """Nobody takes over: the broker aborts it, and the committer does the epoch again."""
    case = make_wired_case((kind, "sqlite_moves"), expiry=3.0)
    case.start(epochs=1).must_finish()
    place = case.place(kind)
    assert isinstance(place, TopicPlace)
    held = wires["kafka"].hold_next_request(place.is_commit)
    sleeper = case.start(patience=PATIENCE)
    held.wait()
    case.wait_for_the_others(2, kind)
    sleeper.stop()
    assert place.has_open_transaction()
    deadline = time.monotonic() + PATIENCE
    while place.has_open_transaction():
        assert time.monotonic() < deadline, "the broker never aborted it"
        time.sleep(0.1)
    assert case.check_whole_epochs()[kind] == 1
    sleeper.wake()
    held.release()
    sleeper.must_finish()
    case.check_everything()
