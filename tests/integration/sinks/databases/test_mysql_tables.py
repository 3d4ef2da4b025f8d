"""Tables and sessions of MySQL and MariaDB, where they are like no other server's."""

from __future__ import annotations

import pyarrow as pa
import pytest

from laminar_dagster.clients.mysql.session import Session
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.sinks.mysql import connection
from tests.integration.sinks.databases.epochs import ROWS, UPSERT, commit, refusal, sink_at
from tests.integration.sinks.databases.mysql_place import PLAIN, MariadbPlace, MysqlPlace


def test_a_made_table_has_a_primary_key_transactions_and_an_exact_collation(
    either_way: MysqlPlace,
) -> None:
    commit(sink_at(either_way, **UPSERT), 1, ROWS)
    ((_, statement),) = either_way.query("SHOW CREATE TABLE t")
    for part in ("PRIMARY KEY (`k`)", "ENGINE=InnoDB", f"COLLATE={either_way.dialect.collation}"):
        assert part in statement


def test_texts_that_look_alike_are_keys_of_their_own(either_way: MysqlPlace) -> None:
    """Most collations take some of these for one."""
    keys = ["a", "A", "á", "a ", " a", "", " ", "ß", "ss", "\U0001f600", "\U0001f601", "a\0"]
    rows = pa.table({"k": keys, "v": [f"{each!r}" for each in keys]})
    sink = sink_at(either_way, **UPSERT)
    commit(sink, 1, rows)
    commit(sink, 2, rows)
    assert sorted(either_way.query("SELECT k, v FROM t")) == sorted(
        zip(keys, rows["v"].to_pylist(), strict=True)
    )
    weights = pa.array([-1] * 3 + [1] * 9, pa.int8())
    commit(sink, 3, rows.append_column("_weight", weights))
    assert {key for (key,) in either_way.query("SELECT k FROM t")} == {*keys[3:]}


def test_a_key_of_a_collation_that_pads_takes_what_it_can_tell_apart(
    any_mysql: MysqlPlace,
) -> None:
    any_mysql.query(
        "CREATE TABLE t (k varchar(9) COLLATE utf8mb4_bin PRIMARY KEY, v longtext) CHARSET utf8mb4"
    )
    commit(sink_at(any_mysql, **UPSERT), 1, pa.table({"k": ["a", "A", " a"], "v": ["1", "2", "3"]}))
    assert len(any_mysql.query("SELECT * FROM t")) == 3
    assert "end with a space, which the collation of the table does not see" in refusal(
        sink_at(any_mysql, **UPSERT), pa.table({"k": ["a", "a "], "v": ["1", "2"]}), 2
    )


def test_a_key_that_is_too_long_is_shown(any_mysql: MysqlPlace) -> None:
    sink = sink_at(any_mysql, **UPSERT)
    assert "at most 255 characters" in refusal(sink, pa.table({"k": ["x" * 256], "v": ["a"]}))
    many = pa.table({f"k{each}": ["x"] for each in range(6)})
    commit(sink_at(any_mysql, "u", mode="upsert", key=tuple(many.column_names)), 1, many)
    assert any_mysql.query("SELECT count(*) FROM u") == [(1,)]


def test_a_row_longer_than_the_server_takes_is_shown(
    any_mysql: MysqlPlace,
) -> None:
    """A stream takes it; a statement cannot."""
    ((longest,),) = any_mysql.query("SELECT @@max_allowed_packet")
    rows = pa.table({"k": [1, 2], "v": ["", "x" * (longest // 2)]})
    inserting = any_mysql.sink(bulk=False)
    reason = refusal(inserting, rows)
    assert "more than the server's `max_allowed_packet`" in reason
    assert "k=2" in reason
    commit(sink_at(any_mysql), 1, rows)
    assert any_mysql.query("SELECT length(v) FROM t ORDER BY k") == [(0,), (longest // 2,)]


def test_a_server_that_forbids_streams_gets_statements(
    any_lone_mysql: MysqlPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object) -> None:
        raise AssertionError("it would be refused")

    with any_lone_mysql.with_global("local_infile", 0, 1):
        monkeypatch.setattr(Session, "load", load)
        commit(sink_at(any_lone_mysql, **UPSERT), 1, ROWS)
    assert any_lone_mysql.query("SELECT k, v FROM t ORDER BY k") == [(1, "a"), (2, "b")]


def test_the_row_of_a_number_that_the_server_gives(either_way: MysqlPlace) -> None:
    """A second unique key is fine if nothing that is written can meet it."""
    either_way.query(
        "CREATE TABLE t (id int AUTO_INCREMENT PRIMARY KEY, k bigint NOT NULL UNIQUE, v longtext,"
        " UNIQUE (k, id)) CHARSET utf8mb4"
    )
    commit(sink_at(either_way, **UPSERT), 1, ROWS)
    commit(sink_at(either_way, **UPSERT), 2, pa.table({"k": [2, 3], "v": ["B", "c"]}))
    assert either_way.query("SELECT k, v FROM t ORDER BY k") == [(1, "a"), (2, "B"), (3, "c")]
    assert either_way.query("SELECT id FROM t WHERE k = 2") == [(2,)]


@pytest.mark.parametrize("pads", [True, False])
def test_a_key_whose_collation_takes_two_texts_for_one_is_refused(
    any_mysql: MysqlPlace, pads: bool
) -> None:
    collation = "utf8mb4_general_ci" if pads else any_mysql.dialect.loose_collation
    any_mysql.query(
        f"CREATE TABLE t (k varchar(9) COLLATE {collation} PRIMARY KEY, v longtext) CHARSET utf8mb4"
    )
    rows = pa.table({"k": ["a", "A"], "v": ["1", "2"]})
    reason = refusal(sink_at(any_mysql, **UPSERT), rows)
    assert f"its collation {collation} takes different texts for one" in reason
    # Who appends is told by the server that they meet, and nothing is lost in silence.
    assert "Duplicate entry" in refusal(sink_at(any_mysql), rows)


def test_a_unique_beginning_of_a_text_is_no_key(any_mysql: MysqlPlace) -> None:
    collation = any_mysql.dialect.collation
    any_mysql.query(
        f"CREATE TABLE t (k varchar(99) COLLATE {collation}, v longtext, UNIQUE (k(3)))"
        " CHARSET utf8mb4"
    )
    rows = pa.table({"k": ["abc1", "abc2"], "v": ["1", "2"]})
    assert "is not unique" in refusal(sink_at(any_mysql, **UPSERT), rows)


def test_a_ledger_without_transactions_is_refused(any_mysql: MysqlPlace) -> None:
    commit(sink_at(any_mysql), 1, ROWS)
    engine = any_mysql.dialect.engine
    any_mysql.query(f"ALTER TABLE _laminar_ledger ENGINE = {engine}")
    told = f"`_laminar_ledger` is kept by the engine {engine}"
    with pytest.raises(InvalidConfig, match=told):
        sink_at(any_mysql).check(ROWS.schema)
    assert told in refusal(sink_at(any_mysql), epoch=2)


def test_a_ledger_that_does_not_move_publishes_nothing(any_mysql: MysqlPlace) -> None:
    commit(sink_at(any_mysql), 1, ROWS)
    any_mysql.query(
        "CREATE TRIGGER x BEFORE UPDATE ON _laminar_ledger FOR EACH ROW SET new.epoch = old.epoch,"
        " new.output_sha256 = old.output_sha256, new.committed_at = old.committed_at"
    )
    assert "0 rows of `_laminar_ledger` were moved, not one" in refusal(sink_at(any_mysql), epoch=2)
    assert len(any_mysql.query("SELECT * FROM t")) == 2


def test_a_server_that_is_too_old_is_refused(
    any_mysql: MysqlPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_COLLATIONS", "SELECT 1 FROM DUAL WHERE FALSE")
    assert "older than MySQL 8.0.17 and MariaDB 10.2" in refusal(sink_at(any_mysql))
    with pytest.raises(InvalidConfig, match="older than"):
        sink_at(any_mysql).check(ROWS.schema)


def test_a_trigger_that_refuses_a_row(either_way: MysqlPlace) -> None:
    either_way.query(PLAIN)
    either_way.query(
        "CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW IF new.k = 2 THEN"
        " SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no twos'; END IF"
    )
    for options in ({}, UPSERT):
        assert "no twos" in refusal(sink_at(either_way, **options))
    assert either_way.query("SELECT * FROM t") == []


def test_a_trigger_that_ends_the_transaction_cannot_be(either_way: MysqlPlace) -> None:
    """The server forbids it; what it says comes through."""
    either_way.query(PLAIN)
    either_way.query("CREATE PROCEDURE finish() COMMIT")
    either_way.query("CREATE TRIGGER x AFTER INSERT ON t FOR EACH ROW CALL finish()")
    assert "not allowed" in refusal(sink_at(either_way))
    assert either_way.query("SELECT * FROM t") == []


def test_what_holds_in_a_session(any_mysql: MysqlPlace) -> None:
    """Whatever the server's own settings are."""
    wanted = {
        "time_zone": "+00:00",
        any_mysql.dialect.isolation: "READ-COMMITTED",
        "autocommit": 0,
        "wait_timeout": 3,
        "net_read_timeout": 3,
        "innodb_lock_wait_timeout": 2,
        "lock_wait_timeout": 2,
        "character_set_client": "utf8mb4",
        "character_set_connection": "utf8mb4",
        **any_mysql.dialect.other_settings,
    }
    sink = any_mysql.sink(limits={"lock": 2, "statement": 2.5, "idle": 3})
    with sink._connected() as (session, facts):
        session.run("SELECT 1")
        ((modes, *found),) = session.run(
            f"SELECT @@sql_mode, {', '.join(f'@@{name}' for name in wanted)}"
        ).rows
    assert {"STRICT_ALL_TABLES", "NO_AUTO_VALUE_ON_ZERO"} <= {*modes.split(",")}
    assert dict(zip(wanted, found, strict=True)) == wanted
    assert facts.is_mariadb is isinstance(any_mysql, MariadbPlace)
    assert facts.collation == any_mysql.dialect.collation
    assert facts.takes_streams


@pytest.mark.parametrize("value", [0, 2])
def test_a_server_that_may_forget_a_commit_is_refused(
    any_lone_mysql: MysqlPlace, value: int
) -> None:
    with any_lone_mysql.with_global("innodb_flush_log_at_trx_commit", value, 1):
        assert f"`innodb_flush_log_at_trx_commit` is {value}: a crash could take an epoch back" in (
            refusal(sink_at(any_lone_mysql))
        )
        with pytest.raises(InvalidConfig, match="durability = 'relaxed'"):
            sink_at(any_lone_mysql).check(ROWS.schema)
        commit(sink_at(any_lone_mysql, durable=False), 1, ROWS)
