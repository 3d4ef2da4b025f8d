"""A server that cannot be written to now, keeps a lock, or takes too long: try again later."""

from __future__ import annotations

from typing import Any

import pytest

from laminar_dagster.core.errors import ConnectionLost, SinkUnavailable
from laminar_dagster.sinks.mysql import connection
from tests.integration.sinks.databases.epochs import QUICK, ROWS, UPSERT, commit, until
from tests.integration.sinks.databases.mysql_place import PLAIN
from tests.integration.sinks.databases.place import DatabasePlace
from tests.integration.sinks.databases.servers import MYSQL_SERVERS, on

SLOW_TRIGGER = "CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW SET new.v = sleep(5)"


def test_a_server_that_only_reads_is_unavailable(lone_place: DatabasePlace) -> None:
    with lone_place.refuse_writes():
        sink = lone_place.sink(limits=QUICK)
        for ask in (sink.ledger, lambda: commit(sink, 1, ROWS)):
            with pytest.raises(SinkUnavailable, match="read-only"):
                ask()


@pytest.mark.parametrize(
    ("place", "statement", "options"),
    [
        *on("postgres", cases=[("LOCK TABLE t IN ACCESS EXCLUSIVE MODE", {})]),
        *on(
            *MYSQL_SERVERS,
            cases=[("SELECT * FROM t FOR UPDATE", UPSERT), ("LOCK TABLES t WRITE", UPSERT)],
        ),
    ],
    indirect=["place"],
)
def test_a_lock_that_is_not_freed_is_reported(
    place: DatabasePlace, statement: str, options: dict[str, Any]
) -> None:
    limits = {"lock": place.traits.shortest_limit}
    commit(place.sink(limits=QUICK, **options), 1, ROWS)
    with place.other() as other:
        other.execute(statement)
        with pytest.raises(SinkUnavailable, match="another transaction holds a lock"):
            commit(place.sink(limits=limits, **options), 2, ROWS)
    commit(place.sink(limits=QUICK, **options), 2, ROWS)
    assert len(place.query("SELECT * FROM t")) == (2 if options else 4)


@pytest.mark.parametrize(
    ("place", "statements"),
    [
        *on(
            "postgres",
            cases=[
                (
                    (
                        "CREATE FUNCTION slow() RETURNS text LANGUAGE sql AS"
                        " $$ SELECT pg_sleep(5)::text $$",
                        "CREATE TABLE t (k bigint, v text, s text DEFAULT slow())",
                    ),
                )
            ],
        ),
        *on("mariadb", cases=[((PLAIN, SLOW_TRIGGER),)]),
    ],
    indirect=["place"],
)
def test_a_statement_that_takes_too_long_is_reported(
    place: DatabasePlace, statements: tuple[str, ...]
) -> None:
    for statement in statements:
        place.query(statement)
    with pytest.raises(SinkUnavailable, match="statement_timeout"):
        commit(place.sink(limits={"statement": 0.3}), 1, ROWS)
    assert place.query("SELECT * FROM t") == []


@pytest.mark.service("mysql")
@pytest.mark.every_server
def test_mysql_is_given_up_where_it_cannot_give_up_itself(
    mysql_place: DatabasePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no limit for statements that write, so the connection is the one to end."""
    monkeypatch.setattr(connection, "_UNTIL_THE_SERVER_SPEAKS", 0.5)
    mysql_place.query(PLAIN)
    mysql_place.query(SLOW_TRIGGER.replace("5", "3"))
    with pytest.raises(ConnectionLost, match="timed out"):
        commit(mysql_place.sink(limits={"lock": 0.5, "statement": 0.5}), 1, ROWS.slice(0, 1))
    # It finishes what it was at, and finds nobody there.
    until(lambda: not mysql_place.sessions())
    assert mysql_place.query("SELECT * FROM t") == []
