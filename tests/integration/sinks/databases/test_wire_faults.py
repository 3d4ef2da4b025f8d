"""What the wire can do to a commit. Each time: whole epochs, once."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from infra.wire_requests import is_encrypted_mysql_commit
from laminar_dagster.core.errors import (
    CommitOutcomeUnknown,
    RetryError,
    SinkUnavailable,
    UnknownOutcome,
)
from laminar_dagster.core.ports import Sink
from laminar_dagster.testing.sink_contract import Mode
from tests.integration.sinks.databases.epochs import (
    BOTH_MODES,
    PATIENT,
    WRITES,
    commit_numbered,
    expected,
    rows_in,
    until,
)
from tests.integration.sinks.databases.mysql_place import MysqlPlace
from tests.integration.sinks.databases.place import DatabasePlace
from tests.services.faulty_wire import FaultyWire, WireFactory

pytestmark = pytest.mark.every_server


def through(place: DatabasePlace, wire: FaultyWire, mode: Mode, **limits: float) -> Sink:
    """A sink behind the wire; in plain text, since the wire could not find the COMMIT otherwise."""
    tls = place.traits.tls
    server = {"host": wire.host, "port": wire.port, tls.mode: tls.off}
    return place.sink(limits={**PATIENT, **limits}, server=server, **WRITES[mode])


def directly(place: DatabasePlace, mode: Mode = "append") -> Sink:
    return place.sink(limits=PATIENT, **WRITES[mode])


@BOTH_MODES
def test_a_commit_that_never_arrives_is_redone(
    place: DatabasePlace, wire: FaultyWire, mode: Mode
) -> None:
    sink = through(place, wire, mode)
    commit_numbered(sink, 1)
    wire.cut_next_request(place.is_commit)
    with pytest.raises(CommitOutcomeUnknown):
        commit_numbered(sink, 2)
    assert wire.cuts == 1
    assert sink.ledger() == 1
    assert rows_in(place) == expected(1)
    commit_numbered(sink, 2)
    assert rows_in(place) == expected(2)


def assert_not_done_twice(place: DatabasePlace, sink: Sink) -> None:
    """The second epoch is there, although nobody was told."""
    assert sink.ledger() == 2
    commit_numbered(sink, 2)
    assert rows_in(place) == expected(2)


@BOTH_MODES
def test_a_commit_whose_reply_is_lost_is_not_done_twice(
    place: DatabasePlace, wire: FaultyWire, mode: Mode
) -> None:
    sink = through(place, wire, mode)
    commit_numbered(sink, 1)
    wire.swallow_next_reply(place.is_commit)
    with pytest.raises(CommitOutcomeUnknown):
        commit_numbered(sink, 2)
    assert wire.swallowed == 1
    assert_not_done_twice(place, sink)


@BOTH_MODES
def test_a_reply_to_a_commit_that_never_comes_is_not_waited_for(
    place: DatabasePlace, wire: FaultyWire, mode: Mode
) -> None:
    sink = through(place, wire, mode, commit=0.2)
    commit_numbered(sink, 1)
    held = wire.hold_next_reply(place.is_commit)
    with pytest.raises(CommitOutcomeUnknown):
        commit_numbered(sink, 2)
    held.wait()
    assert_not_done_twice(place, sink)


@BOTH_MODES
def test_a_commit_whose_reply_never_comes_is_in_doubt(
    place: DatabasePlace, wire: FaultyWire, mode: Mode
) -> None:
    """The connection stands, and is silent."""
    sink = through(place, wire, mode, commit=0.5)
    commit_numbered(sink, 1)
    wire.swallow_next_reply(place.is_commit, quiet=600)
    with pytest.raises(CommitOutcomeUnknown, match=place.traits.hung_up):
        commit_numbered(sink, 2)
    assert_not_done_twice(place, sink)


@pytest.mark.service("mysql")
@pytest.mark.parametrize("arrives", [False, True])
def test_a_commit_over_tls_is_in_doubt_too(
    mysql_place: MysqlPlace, faulty_wire: WireFactory, arrives: bool
) -> None:
    """Which is how MySQL is talked to, unless somebody says otherwise."""
    wire = faulty_wire(mysql_place.endpoint.host, mysql_place.endpoint.port)
    server = {"host": wire.host, "port": wire.port}
    sink = mysql_place.sink(limits=PATIENT, server=server, **WRITES["upsert"])
    assert mysql_place.is_encrypted(sink)
    commit_numbered(sink, 1)
    fail = wire.swallow_next_reply if arrives else wire.cut_next_request
    fail(is_encrypted_mysql_commit)
    with pytest.raises(CommitOutcomeUnknown):
        commit_numbered(sink, 2)
    assert wire.cuts == 1
    assert sink.ledger() == (2 if arrives else 1)
    commit_numbered(sink, 2)
    assert rows_in(mysql_place) == expected(2)


def test_a_server_that_accepts_and_says_nothing_is_unavailable(place: DatabasePlace) -> None:
    """Not for longer than `connect_timeout`."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        server = {"port": mute.getsockname()[1], "connect_timeout": 0.5}
        with pytest.raises(SinkUnavailable, match=place.traits.timed_out):
            place.sink(server=server).ledger()


class _Nth:
    """Matches one request, by its number among those that come by themselves."""

    def __init__(self, place: DatabasePlace, number: int) -> None:
        self._place = place
        self._left = number
        self.request = b""

    def __call__(self, request: bytes) -> bool:
        if not self._place.counts(request):
            return False
        self._left -= 1
        if self._left == 0:
            self.request = request
        return self._left == 0


@pytest.mark.slow
@BOTH_MODES
@pytest.mark.parametrize("fault", ["cut", "swallow"])
def test_a_fault_at_every_request(
    place: DatabasePlace, wire: FaultyWire, mode: Mode, fault: str
) -> None:
    """Also while the tables are made. Only that of the COMMIT leaves a doubt."""
    traits = place.traits
    sink = through(place, wire, mode, **traits.limits_in_a_stream)
    number, epoch, doubts = 1, 1, 0
    while True:
        nth = _Nth(place, number)
        if fault == "cut":
            wire.cut_next_request(nth)
        else:
            wire.swallow_next_reply(nth, quiet=0.05)
        try:
            commit_numbered(sink, epoch)
        except RetryError:
            of_the_tables = traits.commits_tables and epoch == 1
            assert not place.is_commit(nth.request) or of_the_tables, nth.request
        except UnknownOutcome:
            assert place.is_commit(nth.request)
            doubts += 1
        else:
            # The goodbye may be lost; any other fault must have shown.
            assert nth.request in (b"", traits.goodbye), nth.request
            if not nth.request:
                break
        wire.restore()
        held = directly(place, mode).ledger() or 0
        assert held in (epoch - 1, epoch)
        if held or epoch > 1:
            assert rows_in(place) == expected(held)
        epoch = held + 1
        # The same request again in a later epoch, once the tables are there.
        number += 1
        assert number < 100
    wire.restore()
    assert doubts >= 1
    assert number > traits.least_requests
    assert directly(place, mode).ledger() == epoch
    assert rows_in(place) == expected(epoch)


@pytest.mark.parametrize("head_start", [0.0, 0.7])
def test_a_slow_wire_loses_nothing(
    place: DatabasePlace, wire: FaultyWire, head_start: float
) -> None:
    """The slow one and a quick one want the same epoch; the quick one overtakes it, or waits."""
    commit_numbered(directly(place), 1)
    wire.delay(0.1)
    slow = through(place, wire, "append")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(commit_numbered, slow, 2)
        until(lambda: wire.accepted == 1)
        time.sleep(head_start)
        commit_numbered(directly(place), 2)
        running.result()
    assert rows_in(place) == expected(2)


def test_a_server_that_is_down_is_unavailable(place: DatabasePlace, wire: FaultyWire) -> None:
    sink = through(place, wire, "append")
    wire.refuse()
    for call in (sink.ledger, lambda: commit_numbered(sink, 1)):
        with pytest.raises(SinkUnavailable, match=str(wire.port)):
            call()
    wire.restore()
    commit_numbered(sink, 1)
