"""A table that would drop, change or add rows in silence is refused, and nothing is published."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from laminar_dagster.core.errors import InvalidConfig, WriteFailed
from laminar_dagster.core.ids import EpochNumber, PipelineName
from laminar_dagster.sinks.sqlite.sink import SqliteSink
from tests.unit.sinks.staging import SINK, staged

ROWS = pa.table({"k": [*range(150)], "v": [*range(150)]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.db"


def sink_at(path: Path, **options: Any) -> SqliteSink:
    return SqliteSink(SINK, PipelineName("shop"), path, "t", busy_timeout=1, **options)


def upserting(path: Path) -> SqliteSink:
    return sink_at(path, mode="upsert", key=("k",))


def run(path: Path, *statements: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection, connection:
        found: list[tuple[Any, ...]] = []
        for statement in statements:
            found = connection.execute(statement).fetchall()
        return found


def commit(sink: SqliteSink, epoch: int, table: pa.Table) -> None:
    sink.commit(EpochNumber(epoch), staged(table))


def deletes(*keys: int) -> pa.Table:
    weights = pa.array([-1] * len(keys), pa.int8())
    return pa.table({"k": [*keys], "v": [0] * len(keys), "_weight": weights})


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        ("CREATE TABLE t (k INTEGER PRIMARY KEY ON CONFLICT IGNORE, v)", "UNIQUE.*t.k"),
        ("CREATE TABLE t (k INTEGER PRIMARY KEY ON CONFLICT REPLACE, v)", "UNIQUE.*t.k"),
        ("CREATE TABLE t (k, v, UNIQUE (k) ON CONFLICT IGNORE)", "UNIQUE.*t.k"),
        ("CREATE TABLE t (k, v, UNIQUE (k) ON CONFLICT REPLACE)", "UNIQUE.*t.k"),
        ("CREATE TABLE t (k UNIQUE ON CONFLICT ROLLBACK, v)", "UNIQUE.*t.k"),
        ("CREATE TABLE t (k UNIQUE ON CONFLICT FAIL, v)", "UNIQUE.*t.k"),
    ],
)
def test_an_appended_row_that_meets_another_is_an_error(path: Path, ddl: str, problem: str) -> None:
    run(path, ddl)
    sink = sink_at(path)
    commit(sink, 1, ROWS)
    again = pa.table({"k": [200, 149, 201], "v": [1, 1, 1]})
    with pytest.raises(WriteFailed, match=problem):
        commit(sink, 2, again)
    assert run(path, "SELECT count(*), sum(v) FROM t") == [(150, sum(range(150)))]
    assert sink.ledger() == 1


@pytest.mark.parametrize("clause", ["IGNORE", "REPLACE"])
def test_an_upserted_row_takes_the_place_of_no_row_of_another_key(path: Path, clause: str) -> None:
    run(
        path,
        f"CREATE TABLE t (k INTEGER PRIMARY KEY ON CONFLICT {clause}, v, UNIQUE (v) "
        f"ON CONFLICT {clause})",
    )
    sink = upserting(path)
    commit(sink, 1, ROWS)
    commit(sink, 2, pa.table({"k": [3], "v": [1000]}))
    for values in ({"k": [500], "v": [7]}, {"k": [3], "v": [7]}):
        with pytest.raises(WriteFailed, match=r"UNIQUE.*t\.v"):
            commit(sink, 3, pa.table(values))
    assert run(path, "SELECT count(*), sum(v) FROM t") == [(150, sum(range(150)) - 3 + 1000)]


@pytest.mark.parametrize("clause", ["IGNORE", "REPLACE"])
def test_a_null_is_neither_left_out_nor_made_something_else(path: Path, clause: str) -> None:
    run(path, f"CREATE TABLE t (k, v INTEGER NOT NULL ON CONFLICT {clause} DEFAULT 7)")
    sink = sink_at(path)
    with pytest.raises(WriteFailed, match="NOT NULL"):
        commit(sink, 1, pa.table({"k": [1, 2], "v": [1, None]}))
    assert run(path, "SELECT * FROM t") == []


def test_sqlite_makes_up_no_number_for_a_null(path: Path) -> None:
    run(path, "CREATE TABLE t (k INTEGER PRIMARY KEY, v)")
    sink = sink_at(path)
    rows = pa.table({"k": [1, None], "v": [1, 2]})
    problem = "column `k` has 1 values that are null, for which SQLite would make up a row number"
    with pytest.raises(InvalidConfig, match=problem):
        sink.check(rows.schema, staged(rows))
    with pytest.raises(WriteFailed, match=problem):
        commit(sink, 1, rows)
    commit(sink, 1, rows.slice(0, 1))
    # A view without the column leaves it to SQLite, which is what the column is for.
    commit(sink, 2, pa.table({"v": [3]}))
    assert run(path, "SELECT k, v FROM t ORDER BY k") == [(1, 1), (2, 3)]


PLAIN = "CREATE TABLE t (k INTEGER PRIMARY KEY, v)"


@pytest.mark.parametrize("is_upsert", [False, True])
@pytest.mark.parametrize("count", [1, 150])
def test_rows_that_a_trigger_leaves_out_are_counted(
    path: Path, is_upsert: bool, count: int
) -> None:
    run(
        path,
        PLAIN,
        "CREATE TRIGGER picky BEFORE INSERT ON t WHEN NEW.k = 0 BEGIN SELECT RAISE(IGNORE); END",
    )
    sink = upserting(path) if is_upsert else sink_at(path)
    rows = ROWS.slice(0, count)
    # What a trigger decides by value is seen when it does.
    sink.check(rows.schema)
    with pytest.raises(WriteFailed, match=f"took {count - 1} of {count} rows; a trigger"):
        commit(sink, 1, rows)
    assert run(path, "SELECT * FROM t") == []
    assert sink.ledger() is None
    commit(sink, 1, ROWS.slice(1))
    assert run(path, "SELECT count(*) FROM t") == [(149,)]


@pytest.mark.parametrize("columns", [["k", "v"], ["k"]])
def test_updates_that_a_trigger_leaves_out_are_counted(path: Path, columns: list[str]) -> None:
    run(
        path,
        PLAIN,
        "CREATE TRIGGER fixed BEFORE UPDATE ON t BEGIN SELECT RAISE(IGNORE); END",
    )
    sink = upserting(path)
    commit(sink, 1, ROWS)
    with pytest.raises(WriteFailed, match="took 1 of 2 rows; a trigger"):
        commit(sink, 2, pa.table({"k": [3, 1000], "v": [0, 0]}).select(columns))
    assert run(path, "SELECT count(*), sum(v) FROM t") == [(150, sum(range(150)))]


def test_a_row_that_is_all_key_is_put_again(path: Path) -> None:
    sink = upserting(path)
    keys = pa.table({"k": [1, 2, 1]})
    commit(sink, 1, keys)
    commit(sink, 2, keys)
    assert run(path, "SELECT k FROM t ORDER BY k") == [(1,), (2,)]


def test_rows_that_a_trigger_keeps_are_found(path: Path) -> None:
    run(
        path,
        PLAIN,
        "CREATE TRIGGER kept BEFORE DELETE ON t WHEN OLD.k = 3 BEGIN SELECT RAISE(IGNORE); END",
    )
    sink = upserting(path)
    commit(sink, 1, ROWS)
    # Of a key that came and went within its epoch there is no row.
    commit(sink, 2, deletes(1, 1000))
    with pytest.raises(WriteFailed, match="keeps 1 of 3 rows that were deleted; a trigger"):
        commit(sink, 3, deletes(2, 3, 1000))
    assert run(path, "SELECT count(*) FROM t") == [(149,)]
    assert sink.ledger() == 2


@pytest.mark.parametrize(
    ("trigger", "problem"),
    [
        ("AFTER INSERT ON t BEGIN DELETE FROM t WHERE k = NEW.k; END", "delete rows of table `t`"),
        ("AFTER INSERT ON t BEGIN DELETE FROM T WHERE k < 5; END", "delete rows of table `t`"),
        ("AFTER UPDATE ON t BEGIN DELETE FROM t WHERE k = NEW.k; END", "delete rows of table `t`"),
        ("AFTER DELETE ON t BEGIN INSERT INTO t VALUES (OLD.k, 0); END", "add rows to table `t`"),
        ("AFTER INSERT ON t BEGIN UPDATE t SET v = 0 WHERE k = NEW.k; END", "change column `v`"),
        # By way of another table and its trigger.
        ("AFTER INSERT ON t BEGIN INSERT INTO log VALUES (NEW.k); END", "delete rows of table `t`"),
    ],
)
def test_a_trigger_that_changes_the_rows_is_refused_before(
    path: Path, trigger: str, problem: str
) -> None:
    run(
        path,
        PLAIN,
        "CREATE TABLE log (k)",
        "CREATE TRIGGER chained AFTER INSERT ON log BEGIN DELETE FROM t WHERE k = NEW.k; END",
        f"CREATE TRIGGER busy {trigger}",
    )
    sink = upserting(path)
    with pytest.raises(InvalidConfig, match=f"trigger `(busy|chained)` may {problem}"):
        sink.check(ROWS.schema)
    with pytest.raises(WriteFailed, match=f"trigger `(busy|chained)` may {problem}"):
        commit(sink, 1, ROWS)
    assert run(path, "SELECT * FROM t") == []


def test_a_trigger_that_writes_elsewhere_is_left_alone(path: Path) -> None:
    run(
        path,
        "CREATE TABLE t (k INTEGER PRIMARY KEY, v, changed)",
        "CREATE TABLE seen (v UNIQUE)",
        "CREATE TRIGGER noted AFTER INSERT ON t"
        " BEGIN INSERT OR IGNORE INTO seen VALUES (NEW.v % 10);"
        " UPDATE t SET changed = 1 WHERE k = NEW.k; END",
        "CREATE TRIGGER forgotten AFTER DELETE ON t BEGIN DELETE FROM seen WHERE v = OLD.v; END",
    )
    sink = sink_at(path)
    sink.check(ROWS.schema)
    commit(sink, 1, ROWS)
    assert run(path, "SELECT count(*), sum(changed) FROM t") == [(150, 150)]
    assert run(path, "SELECT count(*) FROM seen") == [(10,)]
    # Of the columns that the view has, the table may have none yet.
    sink.check(pa.schema([("new", pa.int64())]))


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_lenient_clause_and_a_trigger_together_are_refused(path: Path, is_refused: bool) -> None:
    """The clause can only be overridden for the triggers' own statements as well."""
    clause = "ON /* */ conflict\n Replace" if is_refused else "/* ON CONFLICT IGNORE */"
    run(
        path,
        f"CREATE TABLE t (k, v DEFAULT 'ON CONFLICT REPLACE', UNIQUE (k) {clause})",
        "CREATE TABLE log (k)",
        "CREATE TRIGGER noted AFTER INSERT ON t BEGIN INSERT INTO log VALUES (NEW.k); END",
    )
    sink = upserting(path)
    if is_refused:
        with pytest.raises(InvalidConfig, match="made with ON CONFLICT REPLACE"):
            sink.check(ROWS.schema)
    else:
        commit(sink, 1, ROWS)
        assert run(path, "SELECT count(*) FROM log") == [(150,)]
