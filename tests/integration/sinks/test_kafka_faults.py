"""What the wire, the broker and the clock can do to a commit. Each time: whole epochs, once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from infra.kafka import Kafka, KafkaEndpoint
from infra.load import Deadline
from infra.wire_requests import is_kafka_end_txn
from laminar_dagster.core.errors import (
    CommitOutcomeUnknown,
    FencedOut,
    LaminarError,
    LedgerMismatch,
    RetryError,
    SinkUnavailable,
    UnknownOutcome,
    WriteFailed,
)
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import FileEntry
from laminar_dagster.core.ports import StagedOutput
from laminar_dagster.sinks.kafka.producer import TransactionalProducer, transactional_id
from laminar_dagster.sinks.kafka.sink import KafkaSink
from laminar_dagster.sinks.kafka.topics import SinkTopics
from tests.integration.sinks.kafka_place import LIMITS, KafkaPlace, messages
from tests.services.kafka import (
    IMPATIENT,
    KafkaWire,
    Outgoing,
    delete_topic,
    produce_in_transaction,
)
from tests.unit.sinks.staging import SINK, staged

pytestmark = pytest.mark.service("kafka")


@pytest.fixture
def place(kafka_service: KafkaEndpoint) -> KafkaPlace:
    return KafkaPlace.new(kafka_service.bootstrap)


def output(epoch: int) -> StagedOutput:
    """Three rows that tell their epoch, in two files."""
    first = pa.table({"key": [epoch * 10, epoch * 10 + 1], "value": [str(epoch)] * 2})
    return staged(first, pa.table({"key": [epoch * 10 + 2], "value": [str(epoch)]}))


def expected(epochs: int) -> list[tuple[int, str]]:
    return [(epoch * 10 + row, str(epoch)) for epoch in range(1, epochs + 1) for row in range(3)]


def rows(place: KafkaPlace) -> list[tuple[int, str]]:
    return sorted(place.read(SINK))


def commit(sink: KafkaSink, epoch: int) -> None:
    sink.commit(EpochNumber(epoch), output(epoch))


def through(place: KafkaPlace, wire: KafkaWire, **limits: Any) -> KafkaSink:
    options = place.options(SINK, limits=replace(LIMITS, **limits))
    return KafkaSink(SINK, place.pipeline, replace(options, bootstrap_servers=wire.bootstrap))


# --- the wire -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["cut", "swallow"])
def test_the_client_asks_again_whether_a_commit_was_taken(
    place: KafkaPlace, kafka_wire: KafkaWire, fault: str
) -> None:
    """Before it arrives, or after it was carried out: the coordinator knows the same producer."""
    sink = through(place, kafka_wire)
    commit(sink, 1)
    if fault == "cut":
        kafka_wire.wire.cut_next_request(is_kafka_end_txn)
    else:
        kafka_wire.wire.swallow_next_reply(is_kafka_end_txn, quiet=0.05)
    cuts = kafka_wire.wire.cuts
    commit(sink, 2)
    assert kafka_wire.wire.cuts > cuts
    assert rows(place) == expected(2)


@pytest.mark.parametrize("arrives", [False, True])
def test_a_commit_without_an_answer_is_unknown_until_the_ledger_is_read(
    place: KafkaPlace, kafka_wire: KafkaWire, arrives: bool
) -> None:
    sink = through(place, kafka_wire, commit=1.0, abort=1.0)
    commit(sink, 1)
    wire = kafka_wire.wire

    def fail_for_good(request: bytes) -> bool:
        if is_kafka_end_txn(request):
            # Every way back is cut as well; the listener is closed from within its own loop.
            wire._listener.close()  # type: ignore[union-attr]
            wire._listener = None
            return True
        return False

    if arrives:
        wire.swallow_next_reply(fail_for_good, quiet=0.05)
    else:
        wire.cut_next_request(fail_for_good)
    with pytest.raises(CommitOutcomeUnknown):
        commit(sink, 2)
    wire.restore()
    direct = place.sink(SINK)
    assert direct.ledger() == (2 if arrives else 1)
    commit(direct, 2)
    commit(sink, 3)
    assert rows(place) == expected(3)


def test_a_broker_that_is_away_is_told_so(place: KafkaPlace, kafka_wire: KafkaWire) -> None:
    sink = through(place, kafka_wire, connect=1.0)
    kafka_wire.wire.refuse()
    for call in (sink.ledger, lambda: commit(sink, 1)):
        with pytest.raises(SinkUnavailable, match=str(kafka_wire.wire.port)):
            call()
    kafka_wire.wire.restore()
    commit(sink, 1)
    assert rows(place) == expected(1)


# --- another committer ----------------------------------------------------------------------------


def test_of_two_committers_the_first_is_fenced_out(place: KafkaPlace) -> None:
    """The second comes while the first has sent half of its rows; nothing of that is seen."""
    commit(place.sink(SINK), 1)
    good = output(2)

    def read(file: FileEntry) -> bytes:
        if file == good.entry.files[1]:
            commit(place.sink(SINK), 2)
        return good.read(file)

    with pytest.raises(FencedOut) as caught:
        place.sink(SINK).commit(EpochNumber(2), StagedOutput(good.entry, read))
    assert caught.value.exit_code == 5
    assert rows(place) == expected(2)
    assert place.sink(SINK).ledger() == 2


def test_who_is_fenced_out_hears_it_at_every_call(place: KafkaPlace) -> None:
    """Of a producer that has given up, librdkafka says nothing but that."""
    sink = place.sink(SINK)
    commit(sink, 1)
    where = SinkTopics(SINK, sink._options, sink._cluster()).place()
    with sink._producer(0, where) as first, sink._producer(0, where) as second:
        first.fence()
        first.begin(EpochNumber(2))
        second.fence()
        for _ in range(3):
            with pytest.raises(FencedOut):
                first.send(where.topic, [b"x"], [b"k"], [0], [])
                first.finish()
    commit(sink, 2)
    assert rows(place) == expected(2)


def test_what_is_aborted_is_never_seen(place: KafkaPlace) -> None:
    """Its messages are in the topic, and no reader of committed ones gets them."""
    commit(place.sink(SINK), 1)
    bad = staged(
        pa.table({"key": [1, 2], "value": ["a", "b"], "_weight": pa.array([1, 1], pa.int8())}),
        pa.table({"key": [3], "value": ["c"], "_weight": pa.array([-1], pa.int8())}),
    )

    def read(file: FileEntry) -> bytes:
        if file == bad.entry.files[1]:
            _until(lambda: bool(place.sink(SINK).pending_transactions()))
        return bad.read(file)

    with pytest.raises(WriteFailed, match="_weight"):
        place.sink(SINK).commit(EpochNumber(2), StagedOutput(bad.entry, read))
    assert rows(place) == expected(1)
    topic = place.topic(SINK)
    assert len([*messages(place.bootstrap, topic, isolation="read_uncommitted")]) > 3
    # Nothing stays open that would hold readers back.
    assert place.sink(SINK).pending_transactions() == ()
    commit(place.sink(SINK), 2)
    assert rows(place) == expected(2)


def test_a_committer_that_died_before_its_commit_is_cleared_away(place: KafkaPlace) -> None:
    """It has written the ledger's record too. Who only looks is not kept waiting."""
    commit(place.sink(SINK), 1)
    child = _child(_die_before_the_commit, place)
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    sink = place.sink(SINK)
    (left,) = sink.pending_transactions()
    assert left.state == "open"
    assert left.identity == transactional_id(str(place.pipeline), str(SINK), 0)
    begun = time.monotonic()
    assert sink.ledger() == 1
    commit(sink, 2)
    assert time.monotonic() - begun < LIMITS.transaction
    assert rows(place) == expected(2)
    assert sink.pending_transactions() == ()


def _until(holds: Callable[[], bool]) -> None:
    deadline = Deadline(60)
    while not holds():
        assert not deadline.is_over
        time.sleep(0.05)


def _child(run: Any, *arguments: object) -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    child = context.Process(target=run, args=arguments, daemon=True)
    child.start()
    return child


def _die_before_the_commit(place: KafkaPlace) -> None:
    patch = pytest.MonkeyPatch()
    patch.setattr(TransactionalProducer, "commit", lambda _: os.kill(os.getpid(), signal.SIGKILL))
    commit(place.sink(SINK), 2)


@pytest.mark.slow
@pytest.mark.parametrize("taken_over", [True, False])
def test_a_committer_sleeps_until_its_transaction_has_expired(
    place: KafkaPlace, taken_over: bool
) -> None:
    """Stopped with everything sent but the commit; it wakes after the broker has given it up."""
    commit(place.sink(SINK), 1)
    context = multiprocessing.get_context("forkserver")
    here, there = context.Pipe()
    child = _child(_commit_slowly, place, there)
    try:
        assert here.poll(60)
        assert here.recv() == "about to commit"
        os.kill(child.pid, signal.SIGSTOP)
        if taken_over:
            commit(place.sink(SINK), 2)
            commit(place.sink(SINK), 3)
        else:
            _until(lambda: not place.sink(SINK).pending_transactions())
        os.kill(child.pid, signal.SIGCONT)
        here.send("go on")
        assert here.poll(60)
        assert here.recv() in ("fenced_out", "commit_outcome_unknown")
        child.join(60)
    finally:
        child.kill()
        child.join(60)
    assert rows(place) == expected(3 if taken_over else 1)
    if not taken_over:
        commit(place.sink(SINK), 2)
        assert rows(place) == expected(2)


def _commit_slowly(place: KafkaPlace, parent: Connection) -> None:
    patch = pytest.MonkeyPatch()
    real = TransactionalProducer.commit

    def wait_and_commit(producer: TransactionalProducer) -> None:
        parent.send("about to commit")
        assert parent.recv() == "go on"
        real(producer)

    patch.setattr(TransactionalProducer, "commit", wait_and_commit)
    try:
        commit(place.sink(SINK, limits=replace(LIMITS, transaction=1.0)), 2)
    except LaminarError as error:
        parent.send(error.kind)
    else:
        parent.send("committed")


# --- the ledger -----------------------------------------------------------------------------------


def ledger_of(place: KafkaPlace) -> str:
    return place.options(SINK).ledger_topic


@pytest.fixture
def stranger(place: KafkaPlace, kafka_service: KafkaEndpoint) -> Iterator[Producer]:
    """Another writer with a transaction that is open in the ledger, after the first epoch."""
    commit(place.sink(SINK), 1)
    topic = ledger_of(place)
    open_ = produce_in_transaction(
        kafka_service, topic, [Outgoing(b"{}", b"stranger")], end="leave open", partition=0
    )
    yield open_
    open_.abort_transaction(20)


def test_an_open_transaction_of_a_stranger_in_the_ledger_keeps_nobody_waiting(
    place: KafkaPlace, stranger: Producer
) -> None:
    begun = time.monotonic()
    assert place.sink(SINK).ledger() == 1
    commit(place.sink(SINK), 2)
    assert time.monotonic() - begun < LIMITS.connect
    assert rows(place) == expected(2)


def test_an_epoch_behind_an_open_transaction_does_not_pass_for_a_missing_one(
    place: KafkaPlace, stranger: Producer
) -> None:
    """It is committed, and no reader of the ledger can see it yet: it must not be redone."""
    commit(place.sink(SINK), 2)
    hasty = place.sink(SINK, limits=replace(LIMITS, connect=1.0))
    for epoch in (2, 3):
        with pytest.raises(SinkUnavailable, match="a transaction of another writer"):
            commit(hasty, epoch)
    stranger.abort_transaction(20)
    stranger.begin_transaction()
    commit(hasty, 2)
    commit(hasty, 3)
    assert rows(place) == expected(3)


def test_a_topic_that_was_made_anew_is_refused(
    place: KafkaPlace, kafka_service: KafkaEndpoint
) -> None:
    commit(place.sink(SINK), 1)
    delete_topic(kafka_service, place.topic(SINK))
    with pytest.raises(WriteFailed, match="which held its epochs so far, is gone"):
        commit(place.sink(SINK), 2)
    with pytest.raises(LaminarError, match="which held its epochs so far, is gone"):
        place.sink(SINK).check(pa.schema([("key", pa.int64())]))


def test_a_rival_that_commits_the_first_epoch_meanwhile_is_no_lost_ledger(
    place: KafkaPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After this one has read the empty ledger, and before it looks for messages of its own."""
    look = KafkaSink._require_new

    def meanwhile(sink: KafkaSink, *given: Any) -> None:
        monkeypatch.undo()
        commit(place.sink(SINK), 1)
        look(sink, *given)

    monkeypatch.setattr(KafkaSink, "_require_new", meanwhile)
    slower = place.sink(SINK)
    with pytest.raises(FencedOut):
        commit(slower, 1)
    assert rows(place) == expected(1)
    commit(slower, 1)
    commit(slower, 2)
    assert rows(place) == expected(2)


def test_a_ledger_that_was_made_anew_is_no_new_sink(
    place: KafkaPlace, kafka_service: KafkaEndpoint
) -> None:
    for epoch in (1, 2):
        commit(place.sink(SINK), epoch)
    delete_topic(kafka_service, ledger_of(place))
    for epoch in (1, 2, 3):
        with pytest.raises((WriteFailed, LedgerMismatch)):
            commit(place.sink(SINK), epoch)
    assert rows(place) == expected(2)


# --- the broker -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_coordinator_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    """With a transaction open, and with one that was being committed."""
    with Kafka(IMPATIENT) as kafka:
        endpoint = kafka.start(tmp_path / "kafka")
        place = KafkaPlace.new(endpoint.bootstrap)
        commit(place.sink(SINK), 1)
        good = output(2)

        def read(file: FileEntry) -> bytes:
            if file == good.entry.files[1]:
                os.kill(kafka.identity.pid, signal.SIGKILL)
            return good.read(file)

        sink = place.sink(SINK, limits=replace(LIMITS, transaction=3.0, commit=2.0, abort=1.0))
        with pytest.raises((RetryError, UnknownOutcome)):
            sink.commit(EpochNumber(2), StagedOutput(good.entry, read))
        kafka.stop()
        kafka.start(tmp_path / "kafka")
        held = place.sink(SINK).ledger()
        assert held == 1
        for epoch in (2, 3):
            commit(place.sink(SINK), epoch)
        assert rows(place) == expected(3)
