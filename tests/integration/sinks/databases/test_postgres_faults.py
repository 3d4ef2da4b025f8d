"""Faults that only PostgreSQL knows."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.postgres import Postgres
from laminar_dagster.core.errors import CommitOutcomeUnknown, LedgerMismatch
from laminar_dagster.core.ports import Sink
from tests.integration.sinks.databases.epochs import (
    PATIENT,
    commit_numbered,
    expected,
    rows_in,
    until,
)
from tests.integration.sinks.databases.own_server import OwnServer
from tests.integration.sinks.databases.place import DatabasePlace
from tests.integration.sinks.databases.postgres_place import PostgresPlace
from tests.services.faulty_wire import FaultyWire, WireFactory

pytestmark = pytest.mark.service("postgres")


def sink_at(place: DatabasePlace) -> Sink:
    return place.sink(limits=PATIENT)


def through(place: PostgresPlace, wire: FaultyWire, **limits: float) -> Sink:
    server = {"host": wire.host, "port": wire.port}
    return place.sink(limits={**PATIENT, **limits}, server=server)


def test_a_reply_to_a_rollback_that_never_comes_is_not_waited_for(
    postgres_place: PostgresPlace, faulty_wire: WireFactory
) -> None:
    place = postgres_place
    wire = faulty_wire(place.endpoint.host, place.endpoint.port)
    sink = through(place, wire, abort=0.2)
    commit_numbered(sink, 1)
    held = wire.hold_next_reply(lambda request: b"ROLLBACK\0" in request)
    with pytest.raises(LedgerMismatch):
        commit_numbered(sink, 3)
    held.wait()
    assert sink.ledger() == 1
    commit_numbered(sink, 2)
    assert rows_in(place) == expected(2)


@pytest.mark.slow
def test_a_redo_waits_for_a_commit_that_is_still_under_way(
    own_postgres: OwnServer[DatabasePlace], faulty_wire: WireFactory
) -> None:
    """The server waits for a standby that is not there; meanwhile the client is cut off."""
    place = own_postgres.start()
    assert isinstance(place, PostgresPlace)
    wire = faulty_wire(place.endpoint.host, place.endpoint.port)
    commit_numbered(sink_at(place), 1)
    place.query("ALTER SYSTEM SET synchronous_standby_names TO 'nobody'")
    place.query("SELECT pg_reload_conf()")
    # A limit on statements does not hold for this wait. If it did, the server would say that it
    # had committed, although a standby might not have it.
    first = through(place, wire, statement=0.5)
    with ThreadPoolExecutor(2) as pool:
        lost = pool.submit(commit_numbered, first, 2)
        until(lambda: place.waiting("SyncRep") == 1)
        time.sleep(1)
        assert not lost.done()
        wire.cut()
        with pytest.raises(CommitOutcomeUnknown):
            lost.result(30)
        # Nobody sees it yet.
        assert sink_at(place).ledger() == 1
        redo = pool.submit(commit_numbered, sink_at(place), 2)
        until(lambda: place.waiting() == 1)
        assert not redo.done()
        place.query("ALTER SYSTEM RESET synchronous_standby_names")
        place.query("SELECT pg_reload_conf()")
        redo.result(30)
    assert sink_at(place).ledger() == 2
    assert rows_in(place) == expected(2)


@pytest.mark.slow
def test_a_killed_server_keeps_what_it_confirmed(tmp_path: Path) -> None:
    """Even where it is told not to wait for its disk: the sink asks it to."""
    settings = {"synchronous_commit": "off", "wal_writer_delay": "10s", "full_page_writes": "off"}
    with Postgres(settings) as service:
        server = OwnServer(
            service,
            tmp_path / "postgres",
            lambda endpoint: PostgresPlace(endpoint, endpoint.database),
        )
        place = server.start()
        for epoch in range(1, 4):
            commit_numbered(sink_at(place), epoch)
            server.kill()
            place = server.restart()
            assert sink_at(place).ledger() == epoch
            assert rows_in(place) == expected(epoch)
