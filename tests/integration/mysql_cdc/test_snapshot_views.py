"""Views of the tables for a copy: what they cost the server, and what they must not miss."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress

import pymysql
import pytest

from laminar_dagster.core.errors import SourceUnavailable
from laminar_dagster.core.offsets import MysqlPosition
from laminar_dagster.sources.mysql import captured_tables, snapshot
from laminar_dagster.sources.mysql.prepared import require_nothing_prepared
from laminar_dagster.sources.mysql.server_log import ServerLog
from tests.integration.mysql_cdc.shop import Shop


@contextmanager
def long_query(shop: Shop) -> Iterator[None]:
    """Somebody who reads the table for a minute."""
    with (
        closing(shop.connect()) as connection,
        connection.cursor() as cursor,
        ThreadPoolExecutor(1) as pool,
    ):
        ((session,),) = _ask(cursor, "SELECT CONNECTION_ID()")

        def read() -> None:
            with suppress(pymysql.Error):
                cursor.execute("SELECT SLEEP(60) FROM orders")

        pool.submit(read)
        while not shop.run(
            f"SELECT 1 FROM information_schema.processlist WHERE id = {session}"
            " AND info LIKE 'SELECT SLEEP%'"
        ):
            time.sleep(0.01)
        try:
            yield
        finally:
            shop.run(f"KILL {session}")


def _ask(cursor: pymysql.cursors.Cursor, statement: str) -> tuple[tuple[object, ...], ...]:
    cursor.execute(statement)
    return cursor.fetchall()


def test_a_lock_that_cannot_be_had_is_not_waited_for(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can write while MySQL waits for it, nor afterwards if it is not told to let go."""
    shop.run("CREATE TABLE others (id INT)")
    monkeypatch.setattr(snapshot, "_LOCK_SECONDS", 1)
    shop.insert([(1, "a")])
    with long_query(shop):
        begun = time.monotonic()
        if shop.is_mysql:
            with pytest.raises(SourceUnavailable, match="holds a lock"):
                shop.plan()
            assert shop.keeper.newest() is None
        else:
            shop.plan()
        shop.run("INSERT INTO others VALUES (1)")
        assert time.monotonic() - begun < 30
    shop.insert([(2, "b")])
    assert 2 in {row["id"] for row in shop.catch_up()}


def test_a_lock_ends_with_a_client_that_says_nothing_more(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is gone closes no connection, and the server would wait for hours."""
    if not shop.is_mysql:
        # It needs no lock.
        assert shop.epoch() == []
        return
    monkeypatch.setattr(snapshot, "_LOCK_SECONDS", 1)
    shop.insert([(1, "a")])

    def silence(*_: object) -> tuple[str, int]:
        begun = time.monotonic()
        shop.insert([(2, "b")])
        assert time.monotonic() - begun < 30
        raise pymysql.err.OperationalError(0, "nobody asks any more")

    monkeypatch.setattr(snapshot, "end_of", silence)
    with pytest.raises(SourceUnavailable):
        shop.plan()
    monkeypatch.undo()
    assert [row["id"] for row in shop.epoch()] == [1, 2]


def prepare(shop: Shop, key: int) -> None:
    """In a connection that is gone afterwards, as the coordinator of such a transaction may be."""
    with closing(shop.connect()) as connection, connection.cursor() as cursor:
        for statement in (
            f"XA START '{shop.database}'",
            f"INSERT INTO orders VALUES ({key}, 'x')",
            f"XA END '{shop.database}'",
            f"XA PREPARE '{shop.database}'",
        ):
            cursor.execute(statement)


def finish(shop: Shop, how: str) -> None:
    """The server has to see first that the connection is gone."""
    for _ in range(500):
        with suppress(pymysql.Error):
            shop.run(f"XA {how} '{shop.database}'")
            return
        time.sleep(0.01)
    pytest.fail("the transaction cannot be finished")


@pytest.mark.parametrize("mode", ["initial", "never"])
def test_nothing_is_begun_while_a_transaction_is_prepared(shop: Shop, mode: str) -> None:
    """It would be in the log before the place, and in no copy."""
    shop.options["snapshot"] = mode
    shop.insert([(1, "a")])
    prepare(shop, 2)
    try:
        with pytest.raises(SourceUnavailable, match="XA"):
            shop.plan()
        assert shop.keeper.newest() is None
    finally:
        finish(shop, "COMMIT")
    shop.plan()
    shop.insert([(3, "c")])
    found = shop.read(shop.plans[-1]).to_pylist() + shop.catch_up()
    assert [row["id"] for row in found] == ([1, 2, 3] if mode == "initial" else [3])


@pytest.mark.parametrize("mode", ["initial", "never"])
def test_one_that_is_committed_while_the_copy_is_begun_is_found_in_the_log(
    shop: Shop, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.options["snapshot"] = mode
    prepare(shop, 1)

    def late(server: ServerLog, file: str, position: int) -> None:
        finish(shop, "COMMIT")
        require_nothing_prepared(server, file, position)

    monkeypatch.setattr(captured_tables, "require_nothing_prepared", late)
    with pytest.raises(SourceUnavailable, match="XA"):
        shop.plan()
    monkeypatch.undo()
    assert shop.keeper.newest() is None
    shop.options["snapshot"] = "initial"
    assert [row["id"] for row in shop.epoch()] == [1]


def test_the_ids_of_a_copy_are_those_before_its_place(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.insert([(1, "a")])
    name = "gtid_executed" if shop.is_mysql else "gtid_binlog_pos"
    ((before,),) = shop.run(f"SELECT @@GLOBAL.{name}")

    def write(server: ServerLog, file: str, position: int) -> None:
        shop.insert([(2, "b")])

    monkeypatch.setattr(captured_tables, "require_nothing_prepared", write)
    assert [row["id"] for row in shop.epoch()] == [1]
    (end,) = shop.ends
    assert isinstance(end, MysqlPosition)
    assert end.gtid_set == "".join(before.split())
