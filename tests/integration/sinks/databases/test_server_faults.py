"""What the server, an administrator and the clock can do to a commit. Each time: whole epochs."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import pytest

from laminar_dagster.core.errors import (
    ConnectionLost,
    LaminarError,
    RetryError,
    SinkUnavailable,
    UnknownOutcome,
)
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.ports import Sink
from laminar_dagster.testing.sink_contract import Mode
from tests.integration.sinks.databases.epochs import (
    BOTH_MODES,
    PATIENT,
    WRITES,
    commit_numbered,
    expected,
    interrupted,
    output,
    rows_in,
    until,
    write_every_file_by_itself,
)
from tests.integration.sinks.databases.own_server import OwnServer
from tests.integration.sinks.databases.place import DatabasePlace


def sink_at(place: DatabasePlace, mode: Mode = "append", **limits: float) -> Sink:
    return place.sink(limits={**PATIENT, **limits}, **WRITES[mode])


# --- the server ends ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "modes",
    [["append"] * 4, ["upsert"] * 4, ["append", "upsert", "append"]],
    ids=["append", "upsert", "in turns"],
)
def test_a_server_killed_at_any_moment_holds_whole_epochs(
    own_server: OwnServer[DatabasePlace], modes: list[Mode]
) -> None:
    """And all that it confirmed."""
    dice = random.Random(3)
    place = own_server.start()
    commit_numbered(sink_at(place, modes[0]), 1)
    if {*modes} == {*WRITES}:
        place.query("CREATE UNIQUE INDEX its_key ON t (k)")
    epoch = 1
    for mode in modes:
        confirmed = [epoch]

        def go_on(place: DatabasePlace, mode: Mode, confirmed: list[int]) -> None:
            while True:
                commit_numbered(sink_at(place, mode), confirmed[-1] + 1)
                confirmed.append(confirmed[-1] + 1)

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(go_on, place, mode, confirmed)
            time.sleep(dice.uniform(0.05, 0.5))
            own_server.kill()
            with pytest.raises((RetryError, UnknownOutcome)):
                running.result(60)
        place = own_server.restart()
        held = sink_at(place, mode).ledger()
        assert held in (confirmed[-1], confirmed[-1] + 1)
        epoch = int(held)
        assert rows_in(place) == expected(epoch)
    commit_numbered(sink_at(place, modes[-1]), epoch + 1)
    assert rows_in(place) == expected(epoch + 1)


@pytest.mark.slow
def test_a_server_that_is_stopped_and_started_meanwhile(
    own_server: OwnServer[DatabasePlace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An orderly end, in the middle of an epoch."""
    write_every_file_by_itself(monkeypatch)
    place = own_server.start()
    commit_numbered(sink_at(place), 1)
    again: list[DatabasePlace] = []
    stopped = interrupted(2, lambda: again.append(own_server.restart()))
    with pytest.raises((ConnectionLost, SinkUnavailable)):
        sink_at(place).commit(EpochNumber(2), stopped)
    (place,) = again
    assert sink_at(place).ledger() == 1
    assert rows_in(place) == expected(1)
    commit_numbered(sink_at(place), 2)
    assert rows_in(place) == expected(2)


@pytest.fixture(params=[False, True], ids=["before its rows", "among its rows"])
def among_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether rows are written already when the last file is read."""
    if request.param:
        write_every_file_by_itself(monkeypatch)
    return bool(request.param)


@pytest.mark.usefixtures("among_rows")
@BOTH_MODES
def test_an_administrator_ends_the_session(place: DatabasePlace, mode: Mode) -> None:
    commit_numbered(sink_at(place, mode), 1)

    def end() -> None:
        (session,) = place.sessions()
        place.end_session(session)
        until(lambda: not place.sessions())

    with pytest.raises(ConnectionLost):
        sink_at(place, mode).commit(EpochNumber(2), interrupted(2, end))
    assert rows_in(place) == expected(1)
    commit_numbered(sink_at(place, mode), 2)
    assert rows_in(place) == expected(2)


# --- writers that stand still ---------------------------------------------------------------------


@pytest.mark.usefixtures("among_rows")
def test_a_writer_that_reads_for_too_long_loses_its_transaction(place: DatabasePlace) -> None:
    commit_numbered(sink_at(place), 1)
    slow = interrupted(2, lambda: until(lambda: not place.sessions()))
    with pytest.raises(ConnectionLost):
        sink_at(place, idle=place.traits.shortest_limit).commit(EpochNumber(2), slow)
    assert rows_in(place) == expected(1)


@pytest.mark.slow
@BOTH_MODES
@pytest.mark.parametrize("where", ["between files", "in a stream"])
def test_a_stopped_writer_wakes_after_another_took_over(
    place: DatabasePlace, mode: Mode, where: str
) -> None:
    """SIGSTOP keeps its sockets open, and no time-out of the network ends its transaction."""
    commit_numbered(sink_at(place, mode), 1)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    here, there = context.Pipe()
    child: BaseProcess = context.Process(
        target=_commit_and_stop, args=(place, mode, where, there), daemon=True
    )
    child.start()
    try:
        assert here.poll(60)
        assert here.recv() == "holding the lock"
        assert child.pid is not None
        os.kill(child.pid, signal.SIGSTOP)
        _take_over(place, mode, place.traits.stuck_stream if where == "in a stream" else None)
        commit_numbered(sink_at(place, mode), 3)
        os.kill(child.pid, signal.SIGCONT)
        here.send("go on")
        assert here.poll(60)
        # Its transaction is gone, and it says that nothing of it was published.
        assert here.recv() in ("connection_lost", "sink_unavailable")
        child.join(60)
    finally:
        child.kill()
        child.join(60)
    assert rows_in(place) == expected(3)
    assert sink_at(place, mode).ledger() == 3


def _take_over(place: DatabasePlace, mode: Mode, stuck: str | None) -> None:
    """Commit epoch 2: at once, when the server ends the other; or else as the runtime does."""
    if stuck is None:
        commit_numbered(sink_at(place, mode), 2)
        return
    refused: list[str] = []
    while len(refused) < 20:
        try:
            commit_numbered(sink_at(place, mode, lock=1, statement=2), 2)
        except RetryError as error:
            refused.append(str(error))
        else:
            assert stuck in refused[-1]
            return
    raise AssertionError(refused)


def _commit_and_stop(place: DatabasePlace, mode: Mode, where: str, parent: Connection) -> None:
    """In a process of its own: commit epoch 2, and halt while the ledger's row is locked."""
    patch = pytest.MonkeyPatch()
    write_every_file_by_itself(patch)

    def halt() -> None:
        parent.send("holding the lock")
        assert parent.recv() == "go on"

    staged = output(2)
    if where == "in a stream":
        place.halt_in_stream(patch, halt)
    else:
        staged = interrupted(2, halt)
    try:
        sink_at(place, mode, idle=1, statement=2).commit(EpochNumber(2), staged)
    except LaminarError as error:
        parent.send(error.kind)
    else:
        parent.send("committed")


def test_the_lock_is_waited_for_and_then_the_epoch_is_skipped(place: DatabasePlace) -> None:
    commit_numbered(sink_at(place), 1)
    with place.other() as other, ThreadPoolExecutor(1) as pool:
        other.execute("SELECT 1 FROM _laminar_ledger FOR UPDATE")
        waiting = pool.submit(commit_numbered, sink_at(place), 2)
        until(lambda: place.waiting() == 1)
        with pytest.raises(SinkUnavailable, match="another transaction holds a lock"):
            commit_numbered(sink_at(place, lock=place.traits.shortest_limit), 2)
        other.execute("UPDATE _laminar_ledger SET epoch = 2")
        other.commit()
        waiting.result(30)
    assert rows_in(place) == expected(1)
    assert sink_at(place).ledger() == 2
