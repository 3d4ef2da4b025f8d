"""A table of MySQL's that changes meanwhile: what is done to it there is a commit of its own."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pymysql
import pytest

from laminar_dagster.sinks.mysql import writing
from laminar_dagster.sinks.mysql.table import check_rights, fit
from tests.integration.sinks.databases.epochs import ROWS, UPSERT, commit, refusal, sink_at
from tests.integration.sinks.databases.mysql_place import PLAIN, MysqlPlace


def test_two_who_add_the_same_column(
    any_mysql: MysqlPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One looks, the other adds, and then the first wants to."""
    commit(sink_at(any_mysql), 1, ROWS)
    looked = check_rights

    def look_and_lose(*arguments: Any) -> None:
        looked(*arguments)
        monkeypatch.undo()
        any_mysql.query("ALTER TABLE t ADD COLUMN new double")

    monkeypatch.setattr(writing, "check_rights", look_and_lose)
    commit(sink_at(any_mysql), 2, ROWS.append_column("new", pa.array([1.5, 2.5])))
    assert any_mysql.query("SELECT count(new) FROM t") == [(2,)]


def test_two_who_make_different_tables(
    any_mysql: MysqlPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = check_rights

    def look_and_lose(*arguments: Any) -> None:
        looked(*arguments)
        monkeypatch.undo()
        any_mysql.query("CREATE TABLE t (k int, v longtext) CHARSET utf8mb4")

    monkeypatch.setattr(writing, "check_rights", look_and_lose)
    shown = any_mysql.dialect.int_type
    assert f"column `k` of table `t` is of type {shown}," in refusal(sink_at(any_mysql))


def test_a_table_that_others_take_away_again_and_again(
    any_mysql: MysqlPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose_and_look(*arguments: Any) -> Any:
        any_mysql.query("DROP TABLE IF EXISTS t")
        return fit(*arguments)

    monkeypatch.setattr(writing, "fit", lose_and_look)
    assert "is changed by others again and again" in refusal(sink_at(any_mysql))


CHANGES = [
    ("ALTER TABLE t DROP COLUMN v", "Unknown column 'v'"),
    ("ALTER TABLE t MODIFY v varchar(1)", "do not have at most 1 characters"),
    ("ALTER TABLE t ENGINE = MyISAM", "ALTER TABLE … ENGINE = InnoDB"),
    ("ALTER TABLE t DROP PRIMARY KEY", "is not unique"),
]


@pytest.mark.parametrize(("change", "reason"), CHANGES)
def test_a_table_that_is_changed_before_the_transaction(
    either_way: MysqlPlace, monkeypatch: pytest.MonkeyPatch, change: str, reason: str
) -> None:
    either_way.query(PLAIN)
    hold = writing.RowWriter.hold

    def change_and_hold(writer: writing.RowWriter) -> None:
        either_way.query(change)
        hold(writer)

    monkeypatch.setattr(writing.RowWriter, "hold", change_and_hold)
    rows = pa.table({"k": [1, 2], "v": ["a", "bb"]})
    assert reason in refusal(sink_at(either_way, **UPSERT), rows)
    assert either_way.query("SELECT count(*) FROM t") == [(0,)]


def test_nobody_changes_the_table_while_rows_are_written(
    any_mysql: MysqlPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    any_mysql.query(PLAIN)
    hold = writing.RowWriter.hold

    def hold_and_try(writer: writing.RowWriter) -> None:
        hold(writer)
        with any_mysql.other() as other:
            other.execute("SET SESSION lock_wait_timeout = 1")
            with pytest.raises(pymysql.err.OperationalError, match="Lock wait timeout"):
                other.execute("ALTER TABLE t ADD COLUMN late int")

    monkeypatch.setattr(writing.RowWriter, "hold", hold_and_try)
    commit(sink_at(any_mysql), 1, ROWS)
    assert any_mysql.query("SELECT * FROM t ORDER BY k") == [(1, "a"), (2, "b")]
