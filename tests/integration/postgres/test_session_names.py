"""A session of one sink is never taken for that of another, however long their names are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from infra.postgres import PostgresEndpoint
from laminar_dagster.clients.postgres.server import Connection, Server
from laminar_dagster.sinks.postgres.connection import Limits, end_stuck_sessions

pytestmark = pytest.mark.service("postgres")

# Anything that stands still is stuck.
AT_ONCE = Limits(statement=0.0)
LONG = "laminar " + "a" * 60


@pytest.fixture
def server(postgres_service: PostgresEndpoint, postgres_database: str) -> Server:
    found = postgres_service
    return Server(found.host, postgres_database, str(found.port), found.user, found.password)


@pytest.fixture
def connections() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def _stands_in_a_copy(server: Server, application: str, stack: ExitStack) -> Connection:
    """A session that has begun to send rows, and sends none."""
    connection = server.connect(application)
    # Closed, not committed: it is in the middle of a statement.
    stack.callback(connection.close)
    connection.execute("CREATE TEMPORARY TABLE t (n int)")
    connection.pgconn.exec_(b"COPY t FROM STDIN")
    return connection


def _wait_until_it_reads(watcher: Connection, process: int) -> None:
    look = "SELECT wait_event = 'ClientRead' FROM pg_stat_activity WHERE pid = %s"
    while watcher.execute(look, (process,)).fetchone() != (True,):
        pass


@pytest.mark.parametrize(
    ("one", "another"),
    [
        (f"{LONG}/one", f"{LONG}/another"),
        ("laminar müsli/s", "laminar mösli/s"),
        ("laminar 表/s", "laminar 裏/s"),
    ],
)
def test_only_sessions_of_the_same_sink_are_ended(
    server: Server, connections: ExitStack, one: str, another: str
) -> None:
    stuck = _stands_in_a_copy(server, one, connections)
    stranger = connections.enter_context(server.connect(another))
    _wait_until_it_reads(stranger, stuck.info.backend_pid)
    assert end_stuck_sessions(stranger, AT_ONCE) == 0
    again = connections.enter_context(server.connect(one))
    assert end_stuck_sessions(again, AT_ONCE) == 1


@pytest.mark.parametrize("name", ["laminar shop/orders", f"{LONG}/one", "laminar müsli/s"])
def test_the_server_keeps_the_name_as_it_is(server: Server, name: str) -> None:
    with server.connect(name) as connection:
        sent = connection.info.get_parameters()["application_name"]
        shown = connection.execute("SELECT current_setting('application_name')").fetchone()
    assert shown == (sent,)
    assert sent.startswith("laminar ")
