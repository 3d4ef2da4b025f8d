"""A slot that was dropped, made anew, moved or given up; a crash in the copy; what is opted in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from infra.postgres import Postgres, PostgresEndpoint
from laminar_dagster.core.errors import (
    AuthFailed,
    InvalidConfig,
    LaminarError,
    RetentionExpired,
    SlotNotFound,
    SourceReplaced,
    SourceUnavailable,
)
from laminar_dagster.core.ids import FileName
from laminar_dagster.core.offsets import PostgresPosition
from laminar_dagster.core.ports import Admission
from laminar_dagster.runtime.snapshots import StoredSnapshots
from laminar_dagster.sources.postgres.copying import TableCopier
from laminar_dagster.sources.postgres.source import PostgresCdcSource
from laminar_dagster.testing.source_contract import CLOCK, NO_LIMIT
from tests.integration.postgres.tables import SOURCE, Reading, Tables, read, rows_of
from tests.services.postgres import WITH_SLOTS, WITHOUT_SYNC, database_on

pytestmark = pytest.mark.service("postgres")

COLUMNS = {"id": "bigint!"}


@pytest.fixture(scope="module")
def lone_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresEndpoint]:
    """Its settings are changed, and what is measured is how much is written to its log."""
    with Postgres({**WITHOUT_SYNC, **WITH_SLOTS}) as server:
        yield server.start(tmp_path_factory.mktemp("lone_postgres"))


@pytest.fixture
def tables(lone_server: PostgresEndpoint) -> Iterator[Tables]:
    with database_on(lone_server) as database:
        yield Tables(lone_server, database)


@pytest.fixture
def reading(tables: Tables) -> Reading:
    """One row was copied, and one was read from the stream."""
    tables.run("CREATE TABLE orders (id bigint PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    found = Reading(source(tables))
    assert len(found.rows()) == 1
    tables.run("INSERT INTO orders VALUES (2)")
    assert len(found.rows()) == 1
    return found


def source(tables: Tables, **options: str) -> PostgresCdcSource:
    return tables.source(COLUMNS, tables="orders", **options)


def reads_nothing(reading: Reading) -> bool:
    return reading.previous is None or all(part.is_empty for part in reading.previous.ranges)


def make_anew(tables: Tables) -> None:
    tables.drop_slot()
    with tables.connect() as connection:
        make = "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')"
        connection.execute(make, (tables.slot,))


def move(tables: Tables) -> None:
    tables.run("INSERT INTO orders VALUES (1000)")
    with tables.connect() as connection:
        move = "SELECT pg_replication_slot_advance(%s, pg_current_wal_flush_lsn())"
        connection.execute(move, (tables.slot,))


def give_up(tables: Tables) -> None:
    """The server removes what the slot needs."""
    with tables.connect() as connection:
        connection.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
        connection.execute("SELECT pg_reload_conf()")
        try:
            for _ in range(4):
                connection.execute("SELECT pg_switch_wal()")
                connection.execute("INSERT INTO orders SELECT coalesce(max(id), 0) + 1 FROM orders")
            connection.execute("CHECKPOINT")
        finally:
            connection.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
            connection.execute("SELECT pg_reload_conf()")


@pytest.mark.parametrize(
    ("lose", "named"),
    [
        (Tables.drop_slot, SlotNotFound),
        (make_anew, RetentionExpired),
        (move, RetentionExpired),
        (give_up, RetentionExpired),
    ],
)
def test_a_lost_log_is_named_and_a_new_snapshot_is_opt_in(
    tables: Tables, reading: Reading, lose: Callable[[Tables], None], named: type[LaminarError]
) -> None:
    lose(tables)
    tables.run("INSERT INTO orders VALUES (2000)")
    plan = reading.previous
    assert plan is not None
    for refused in (
        lambda: reading.plan(),
        lambda: reading.source.plan(plan, reading.at, NO_LIMIT, CLOCK),
        lambda: reading.source.verify(plan),
        lambda: reading.source.check_seek(reading.at[0]),
    ):
        with pytest.raises(named):
            refused()
    anew = Reading(source(tables, on_gap="snapshot"), plan)
    ids = {row["id"] for row in anew.rows()}
    assert ids == {row[0] for row in tables.fetch("SELECT id FROM orders")}
    assert anew.previous is not None
    (gap,) = anew.previous.gaps
    assert gap.lost.start == reading.at[0]
    assert "on_gap: snapshot" in gap.reason
    tables.run("INSERT INTO orders VALUES (3000)")
    assert [row["id"] for row in anew.rows()] == [3000]
    assert anew.previous.gaps == ()


def test_a_log_that_is_shorter_is_another_one(tables: Tables, reading: Reading) -> None:
    ahead = PostgresPosition(lsn=2**60, slot=tables.slot)
    with pytest.raises(SourceReplaced, match="a log that ends at"):
        reading.source.plan(reading.previous, (ahead,), NO_LIMIT, CLOCK)


def test_what_was_acknowledged_goes_and_what_is_retained_stays(
    tables: Tables, reading: Reading
) -> None:
    first = reading.previous
    assert first is not None
    reading.source.acknowledge(reading.at)
    assert [row["id"] for row in rows_of(read(reading.source, first))] == [2]
    source(tables, retain__wal="none").acknowledge(reading.at)
    with pytest.raises(RetentionExpired):
        reading.source.verify(first)
    assert reading.rows() == []
    tables.run("INSERT INTO orders VALUES (3)")
    assert [row["id"] for row in reading.rows()] == [3]


def test_what_others_write_does_not_pile_up(tables: Tables, reading: Reading) -> None:
    """An epoch without records moves the slot past it, and nothing is written to do so."""
    beating = Reading(source(tables, heartbeat__wal="1MiB", retain__wal="none"), reading.previous)
    assert beating.rows() == []
    assert reads_nothing(beating)
    # Not logged for this database's publication: another database's.
    with psycopg.connect(tables.endpoint.dsn(), autocommit=True) as other:
        other.execute("CREATE TABLE noise AS SELECT repeat('x', 900) FROM generate_series(1, 5000)")
        other.execute("DROP TABLE noise")
        other.execute("CHECKPOINT")
    assert beating.rows() == []
    assert not reads_nothing(beating)
    beating.source.acknowledge(beating.at)
    report = beating.source.health(beating.at)
    assert report.healthy
    assert int(report.details["retained_bytes"]) < 4_000_000
    tables.run("INSERT INTO orders VALUES (3)")
    assert [row["id"] for row in beating.rows()] == [3]


def test_health(tables: Tables, reading: Reading) -> None:
    assert reading.source.health(reading.at).healthy
    tables.run("INSERT INTO orders VALUES (3)")
    report = reading.source.health(reading.at)
    assert report.partitions[0].lag > 0
    assert float(report.details["lag_seconds"]) >= 0
    assert tables.endpoint.password not in str(report)
    tables.drop_slot()
    assert isinstance(reading.source.health(reading.at).error, SlotNotFound)
    away = source(tables, port="1")
    assert isinstance(away.health(()).error, SourceUnavailable)


# --- the copy -----------------------------------------------------------------------------------


def test_a_crash_in_the_copy_starts_it_over(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.run("CREATE TABLE orders (id bigint)", "INSERT INTO orders VALUES (1)")
    reading = Reading(source(tables))

    def crash(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(TableCopier, "copy", crash)
        with pytest.raises(KeyboardInterrupt):
            reading.plan()
    tables.run("INSERT INTO orders VALUES (2)")
    assert [row["id"] for row in reading.rows()] == [1, 2]
    tables.run("INSERT INTO orders VALUES (3)")
    assert [row["id"] for row in reading.rows()] == [3]


def test_changes_during_the_copy_come_once(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.run("CREATE TABLE orders (id bigint)", "INSERT INTO orders VALUES (1)")
    copy = TableCopier.copy

    def while_writing(*arguments: Any) -> Any:
        tables.run("INSERT INTO orders VALUES (2)", "DELETE FROM orders WHERE id = 1")
        return copy(*arguments)

    reading = Reading(source(tables))
    tables.run("ALTER TABLE orders REPLICA IDENTITY FULL")
    monkeypatch.setattr(TableCopier, "copy", while_writing)
    assert [row["id"] for row in reading.rows()] == [1]
    assert [(row["id"], row["_weight"]) for row in reading.rows()] == [(2, 1), (1, -1)]


def test_two_processes_take_one_snapshot(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.run("CREATE TABLE orders (id bigint)", "INSERT INTO orders VALUES (1)")
    copy = TableCopier.copy

    def meanwhile(*arguments: Any) -> Any:
        with pytest.raises(SourceUnavailable, match="another process takes its snapshot"):
            source(tables).prepare(None, ())
        # Nor is the slot of one who is at it taken for what a crash has left.
        with pytest.raises(SourceUnavailable, match=f"its snapshot, with slot {tables.slot}"):
            source(tables, slot=f"{tables.slot}_other").prepare(None, ())
        return copy(*arguments)

    monkeypatch.setattr(TableCopier, "copy", meanwhile)
    assert len(Reading(source(tables)).rows()) == 1
    assert len(Reading(source(tables)).rows()) == 1


def test_a_slot_of_somebody_else_is_left_alone(tables: Tables) -> None:
    tables.run("CREATE TABLE orders (id bigint)", "INSERT INTO orders VALUES (1)")
    with tables.connect() as connection:
        make = "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')"
        connection.execute(make, (tables.slot,))
    tables.run("INSERT INTO orders VALUES (2)")
    with pytest.raises(InvalidConfig, match="already, and it is not known here"):
        Reading(source(tables)).plan()
    # To begin where it stands has to be asked for.
    assert [row["id"] for row in Reading(source(tables, snapshot="never")).rows()] == [2]


def test_a_slot_that_an_older_version_left_is_known_too(tables: Tables) -> None:
    """Its mark does not name the server."""
    tables.run("CREATE TABLE orders (id bigint)", "INSERT INTO orders VALUES (1)")
    tables.run(f"SELECT pg_create_logical_replication_slot('{tables.slot}', 'pgoutput')")
    keeper = StoredSnapshots(tables.store, SOURCE)
    keeper.write(keeper.begin(1), FileName("slot"), 0, tables.slot.encode())
    assert [row["id"] for row in Reading(source(tables)).rows()] == [1]


def test_looking_takes_no_snapshot(tables: Tables) -> None:
    tables.run("CREATE TABLE orders (id bigint)")
    plan = source(tables).plan(None, (), Admission(max_records=1), CLOCK)
    assert not plan.ranges[0].is_empty
    assert StoredSnapshots(tables.store, SOURCE).newest() is None
    slots = "SELECT 1 FROM pg_replication_slots WHERE database = current_database()"
    assert tables.fetch(slots) == []


def test_a_slot_that_cannot_be_made_is_waited_for_no_longer_than_told(tables: Tables) -> None:
    tables.run("CREATE TABLE orders (id bigint)")
    with tables.connect() as other, other.transaction():
        other.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(SourceUnavailable, match="have not ended"):
            source(tables, slot__timeout="1s").prepare(None, ())
    assert [row["id"] for row in Reading(source(tables)).rows()] == [1]


# --- set-up -------------------------------------------------------------------------------------


def test_everything_that_is_in_the_way_is_named_at_once(tables: Tables) -> None:
    tables.run(
        "CREATE TABLE orders (id bigint, at timestamptz)",
        "CREATE PUBLICATION part FOR TABLE orders WITH (publish = 'insert')",
    )
    columns = {"id": "int", "at": "timestamp", "gone": "string"}
    wrong = tables.source(columns, tables="orders, nowhere", publication="part", before="required")
    with pytest.raises(InvalidConfig) as caught:
        wrong.plan(None, (), NO_LIMIT, CLOCK)
    told = f"{caught.value} {caught.value.advice()}"
    for part in (
        "no table public.nowhere",
        "leaves changes out",
        "lacks public.nowhere",
        "public.orders.id is bigint, declared as int32",
        "has no column `gone`",
        "does not send whole rows",
        "sources.sql:1",
    ):
        assert part in told
    with pytest.raises(InvalidConfig, match="CREATE PUBLICATION"):
        try:
            source(tables, publication="none").plan(None, (), NO_LIMIT, CLOCK)
        except InvalidConfig as error:
            raise InvalidConfig("", error.advice()) from None


def test_a_role_with_the_documented_rights_is_enough(tables: Tables) -> None:
    role = f"reader_{tables.slot}"
    tables.run(
        "CREATE TABLE orders (id bigint)",
        "INSERT INTO orders VALUES (1)",
        f"CREATE ROLE {role} LOGIN PASSWORD 'a-secret-word'",
        "GRANT SELECT ON orders TO " + role,
    )
    mine = source(tables, user=role, password="a-secret-word")
    try:
        with pytest.raises(AuthFailed, match="REPLICATION") as caught:
            Reading(mine).plan()
        assert "a-secret-word" not in str(caught.value)
        tables.run(f"ALTER ROLE {role} REPLICATION")
        reading = Reading(mine)
        assert len(reading.rows()) == 1
        tables.run("INSERT INTO orders VALUES (2)")
        assert len(reading.rows()) == 1
        reading.source.acknowledge(reading.at)
    finally:
        tables.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")
