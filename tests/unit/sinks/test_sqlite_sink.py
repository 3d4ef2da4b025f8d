"""What is special about SQLite."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from laminar_dagster.core.errors import (
    CommitOutcomeUnknown,
    InvalidConfig,
    LaminarError,
    ServiceFailed,
    SinkUnavailable,
    WriteFailed,
)
from laminar_dagster.core.ids import EpochNumber, PipelineName, SinkId
from laminar_dagster.core.manifest import FileEntry
from laminar_dagster.core.ports import StagedOutput
from laminar_dagster.sinks.sqlite.sink import SqliteSink
from laminar_dagster.sinks.sqlite.table import delete_statement
from tests.unit.sinks.staging import SINK, staged

PIPELINE = PipelineName("clicks")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.db"


def sink_at(path: Path, **options: Any) -> SqliteSink:
    options.setdefault("busy_timeout", 0.2)
    return SqliteSink(SINK, PIPELINE, path, options.pop("table", "t"), **options)


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(sql).fetchall()


def commit(sink: SqliteSink, epoch: int, *tables: pa.Table) -> None:
    sink.commit(EpochNumber(epoch), staged(*tables))


# --- types ----------------------------------------------------------------------------------------

MOMENT = datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=UTC)

TYPES: list[tuple[pa.Array, str, Any]] = [
    (pa.array([-(2**63)], pa.int64()), "integer", -(2**63)),
    (pa.array([255], pa.uint8()), "integer", 255),
    (pa.array([2**63 - 1], pa.uint64()), "integer", 2**63 - 1),
    (pa.array([True]), "integer", 1),
    (pa.array([0.1]), "real", 0.1),
    (pa.array([0.1], pa.float32()), "real", 0.10000000149011612),
    (pa.array([float("-inf")]), "real", float("-inf")),
    (pa.array([-0.0]), "real", 0.0),
    (pa.array([Decimal("1.50")], pa.decimal128(38, 2)), "real", 1.5),
    (pa.array([Decimal("-2.00")], pa.decimal128(10, 2)), "integer", -2),
    (pa.array([Decimal(2**63 - 1)], pa.decimal128(38, 0)), "integer", 2**63 - 1),
    (pa.array([Decimal(10**70)], pa.decimal256(76, 0)), "real", 1e70),
    (pa.array(["007"]), "text", "007"),
    (pa.array(["a\0b'\";--é\U0001f600"], pa.large_string()), "text", "a\0b'\";--é\U0001f600"),
    (pa.array(["v"], pa.string_view()), "text", "v"),
    (pa.array(["d"]).dictionary_encode(), "text", "d"),
    (pa.array([b"\0\xff"]), "blob", b"\0\xff"),
    (pa.array([b"ab"], pa.binary(2)), "blob", b"ab"),
    (pa.array([date(2024, 2, 29)]), "text", "2024-02-29"),
    (pa.array([time(1, 2, 3, 4)]), "text", "01:02:03.000004"),
    (pa.array([MOMENT]), "text", "2024-02-29 23:59:59.123456Z"),
    (
        pa.array([MOMENT], pa.timestamp("us", "America/New_York")),
        "text",
        "2024-02-29 23:59:59.123456Z",
    ),
    (pa.array([1], pa.timestamp("ns")), "text", "1970-01-01 00:00:00.000000001"),
    (pa.array([-1], pa.timestamp("s", "UTC")), "text", "1969-12-31 23:59:59Z"),
    (pa.array([-5], pa.duration("us")), "integer", -5),
    (pa.array([[1, None]]), "text", "[1,null]"),
    (
        pa.array([{"d": Decimal("1.50"), "t": MOMENT, "b": b"\0"}]),
        "text",
        '{"d":"1.50","t":"2024-02-29 23:59:59.123456Z","b":"AA=="}',
    ),
    (pa.array([[("k", [1])]], pa.map_(pa.string(), pa.list_(pa.int64()))), "text", '{"k":[1]}'),
]


@pytest.mark.parametrize(("array", "storage", "value"), TYPES, ids=lambda each: str(each)[:40])
def test_how_a_type_is_held(path: Path, array: pa.Array, storage: str, value: Any) -> None:
    # A second file, with a null, goes through the same table.
    null = pa.nulls(1, array.type)
    commit(sink_at(path), 1, pa.table({"x": array}), pa.table({"x": null}))
    found = query(path, "SELECT typeof(x), x FROM t ORDER BY rowid")
    assert found == [(storage, value), ("null", None)]


def test_times_are_read_by_sqlite_and_sort_by_time(path: Path) -> None:
    micros = [253402300799000000, -62135596800000000, 0, 1, -1]
    commit(sink_at(path), 1, pa.table({"x": pa.array(micros, pa.timestamp("us", "UTC"))}))
    found = [row[0] for row in query(path, "SELECT x FROM t ORDER BY x")]
    parsed = [datetime.fromisoformat(text) for text in found]
    assert parsed == sorted(parsed)
    assert found[0] == "0001-01-01 00:00:00.000000Z"
    assert query(path, "SELECT count(*) FROM t WHERE julianday(x) IS NULL") == [(0,)]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([2**63], pa.uint64()),
        pa.array([1.0, float("nan")]),
        pa.array([float("nan")], pa.float16()),
        pa.array([b"\xff"]).cast(pa.large_binary()).view(pa.large_string()),
        pa.array([Decimal("9" * 38)], pa.decimal128(38, 0)),
        pa.array([Decimal("-9" + "1" * 70)], pa.decimal256(76, 0)),
        pa.array([Decimal("1234567890123.456")], pa.decimal128(20, 3)),
        pa.array([253402300800000000], pa.timestamp("us")),
        pa.array([-62135596800000001], pa.timestamp("us")),
        pa.array([2**62], pa.timestamp("us", "UTC")),
        pa.array([2**31 - 1], pa.date32()),
        pa.array([[2**62]], pa.list_(pa.timestamp("us"))),
        pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64())),
        pa.nulls(1),
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        pa.array([[(1, 2, 3)]], pa.list_(pa.month_day_nano_interval())),
    ],
    ids=str,
)
def test_what_has_no_lossless_form_is_refused(path: Path, array: pa.Array) -> None:
    sink, table = sink_at(path), pa.table({"x": array})
    # The gate refuses what the commit refuses: once it is prepared, an epoch stays as it is.
    with pytest.raises(InvalidConfig, match=r"`x[`.]"):
        sink.check(table.schema, staged(table))
    with pytest.raises(WriteFailed, match=r"`x[`.]"):
        commit(sink, 1, table)
    assert sink.ledger() is None
    assert query(path, "SELECT name FROM sqlite_master") == []


# --- tables ---------------------------------------------------------------------------------------


def test_names_are_quoted(path: Path) -> None:
    table = 'x"; DROP TABLE "y'
    names = ["a b", 'q"uote', "select", "größe", "'; --", "?", ":x", "[a]", "`b`"]
    row = pa.table({name: [number] for number, name in enumerate(names)})
    sink = sink_at(path, table=table, mode="upsert", key=tuple(names[:3]))
    commit(sink, 1, row)
    commit(sink, 2, row.append_column("_weight", pa.array([-1])))
    commit(sink, 3, row, row)
    quoted = table.replace('"', '""')
    assert query(path, f'SELECT * FROM "{quoted}"') == [tuple(range(len(names)))]


def test_many_columns_and_rows_that_do_not_fill_a_statement(path: Path) -> None:
    wide = pa.table({f"c{number}": list(range(130)) for number in range(600)})
    commit(sink_at(path), 1, wide, wide.slice(0, 1))
    assert query(path, "SELECT count(*), sum(c0), sum(c599) FROM t") == [(131, 8385, 8385)]


def test_a_column_that_the_view_gains_is_added(path: Path) -> None:
    sink = sink_at(path, mode="upsert", key=("k",))
    commit(sink, 1, pa.table({"k": [1, 2], "old": ["a", "b"]}))
    commit(sink, 2, pa.table({"k": [2], "new": [1.5]}))
    # What the view no longer has stays as it was.
    assert query(path, "SELECT k, old, new FROM t ORDER BY k") == [(1, "a", None), (2, "b", 1.5)]
    strict = sink_at(path, mode="upsert", key=("k",), create=False)
    with pytest.raises(WriteFailed, match="no column `newer`"):
        commit(strict, 3, pa.table({"k": [1], "newer": [1]}))
    assert sink.ledger() == 2


def test_without_create_nothing_is_made(tmp_path: Path, path: Path) -> None:
    sink = sink_at(path, create=False)
    with pytest.raises(SinkUnavailable, match="does not exist"):
        commit(sink, 1, pa.table({"k": [1]}))
    assert [*tmp_path.iterdir()] == []
    query(path, "CREATE TABLE other (k)")
    with pytest.raises(WriteFailed, match="no table `t`"):
        commit(sink, 1, pa.table({"k": [1]}))
    query(path, "CREATE TABLE T (K INTEGER)")
    commit(sink, 1, pa.table({"k": [1]}))
    assert query(path, "SELECT K FROM T") == [(1,)]


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        ("CREATE TABLE t (k TEXT, v TEXT)", "`k` of table `t` is declared TEXT"),
        ("CREATE TABLE t (k REAL, v TEXT)", "`k` of table `t` is declared REAL"),
        ("CREATE TABLE t (k INTEGER, v INTEGER)", "`v` of table `t` is declared INTEGER"),
        ("CREATE TABLE t (k INTEGER, v DECIMAL(9, 2))", "`v`"),
        ("CREATE TABLE t (k INTEGER, v BLOB) STRICT", "`v`"),
        ("CREATE TABLE t (k INTEGER, v TEXT, w TEXT NOT NULL)", "`w`.*must not be null"),
        ("CREATE TABLE t (k INTEGER, v TEXT AS ('x'))", "computed"),
        ("CREATE VIEW t AS SELECT 1 AS k, 'a' AS v", "is a view"),
    ],
)
def test_a_table_that_would_change_the_values_is_refused(
    path: Path, ddl: str, problem: str
) -> None:
    query(path, ddl)
    sink = sink_at(path)
    with pytest.raises(WriteFailed, match=problem):
        commit(sink, 1, pa.table({"k": [1], "v": ["007"]}))
    assert sink.ledger() is None


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE TABLE t (k INT, v VARCHAR(9), w TEXT NOT NULL DEFAULT 'w', d DATETIME)",
        "CREATE TABLE t (k, v, w DEFAULT 'w', d)",
        "CREATE TABLE t (k NUMERIC, v BLOB, w DEFAULT 'w', d TIMESTAMP)",
        "CREATE TABLE t (k ANY, v ANY, w TEXT DEFAULT 'w', d TEXT) STRICT",
    ],
)
def test_a_table_that_keeps_the_values_is_used(path: Path, ddl: str) -> None:
    query(path, ddl)
    moment = pa.array([MOMENT])
    commit(sink_at(path, create=False), 1, pa.table({"k": [2**60 + 1], "v": ["007"], "d": moment}))
    found = query(path, "SELECT k, v, w, d FROM t")
    assert found == [(2**60 + 1, "007", "w", "2024-02-29 23:59:59.123456Z")]


@pytest.mark.parametrize(
    ("ddl", "is_unique"),
    [
        ("CREATE TABLE t (a, b, v, PRIMARY KEY (b, a))", True),
        ("CREATE TABLE t (a, b, v); CREATE UNIQUE INDEX i ON t (a, b)", True),
        ("CREATE TABLE t (a, b, v)", False),
        ("CREATE TABLE t (a PRIMARY KEY, b, v)", False),
        ("CREATE TABLE t (a, b, v); CREATE INDEX i ON t (a, b)", False),
        ("CREATE TABLE t (a, b, v); CREATE UNIQUE INDEX i ON t (a, b) WHERE v > 0", False),
        ("CREATE TABLE t (a, b, v); CREATE UNIQUE INDEX i ON t (a, lower(b))", False),
    ],
)
def test_upsert_needs_a_unique_key(path: Path, ddl: str, is_unique: bool) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(ddl)
    sink = sink_at(path, mode="upsert", key=("a", "b"))
    rows = pa.table({"a": [1, 1], "b": ["x", "x"], "v": [1, 2]})
    if is_unique:
        commit(sink, 1, rows)
        assert query(path, "SELECT a, b, v FROM t") == [(1, "x", 2)]
        return
    with pytest.raises(WriteFailed, match="not unique"):
        commit(sink, 1, rows)
    assert query(path, "SELECT * FROM t") == []


@pytest.mark.parametrize(
    ("ddl", "collation"),
    [
        ("CREATE TABLE t (k TEXT COLLATE NOCASE PRIMARY KEY, v)", "NOCASE"),
        ("CREATE TABLE t (k TEXT COLLATE NOCASE PRIMARY KEY, v) WITHOUT ROWID", "NOCASE"),
        ("CREATE TABLE t (k TEXT, v); CREATE UNIQUE INDEX i ON t (k COLLATE rtrim)", "rtrim"),
        # Which of two SQLite takes depends on the order in which they were made.
        (
            "CREATE TABLE t (k PRIMARY KEY, v); CREATE UNIQUE INDEX i ON t (K COLLATE nocase)",
            "nocase",
        ),
        ("CREATE TABLE t (k, v); CREATE UNIQUE INDEX i ON t (k COLLATE binary)", None),
        (
            "CREATE TABLE t (k COLLATE NOCASE, v); CREATE UNIQUE INDEX i ON t (k COLLATE binary)",
            None,
        ),
    ],
)
def test_keys_that_are_one_to_the_table_are_refused(
    path: Path, ddl: str, collation: str | None
) -> None:
    """Else one row would stand for two keys of the view, and a delete would take both."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(ddl)
    sink = sink_at(path, mode="upsert", key=("k",))
    rows = pa.table({"k": ["A", "a", "b", "b "], "v": [1, 2, 3, 4]})
    if collation is None:
        sink.check(rows.schema)
        commit(sink, 1, rows)
        commit(sink, 2, pa.table({"k": ["a", "b "], "v": [0, 0], "_weight": [-1, -1]}))
        assert query(path, "SELECT k, v FROM t ORDER BY v") == [("A", 1), ("b", 3)]
        return
    problem = f"column `k` of table `t` is part of the key, .*collation {collation}"
    with pytest.raises(InvalidConfig, match=problem):
        sink.check(rows.schema)
    with pytest.raises(WriteFailed, match=problem):
        commit(sink, 1, rows)
    assert query(path, "SELECT * FROM t") == []


def test_a_collation_is_nothing_to_a_key_of_numbers(path: Path) -> None:
    query(path, "CREATE TABLE t (k INTEGER COLLATE NOCASE, v TEXT COLLATE NOCASE, UNIQUE (k))")
    sink = sink_at(path, mode="upsert", key=("k",))
    commit(sink, 1, pa.table({"k": [1, 2, 1], "v": ["A", "b", "a"]}))
    assert query(path, "SELECT k, v FROM t ORDER BY k") == [(1, "a"), (2, "b")]


def test_a_key_is_deleted_by_its_index(path: Path) -> None:
    commit(sink_at(path, mode="upsert", key=("k", "n")), 1, pa.table({"k": ["a"], "n": [1]}))
    query(path, "CREATE TABLE numbered (n INTEGER PRIMARY KEY)")
    for table, key in (("t", ("k", "n")), ("numbered", ("n",))):
        plan = f"EXPLAIN QUERY PLAN {delete_statement(table, key)}".replace("?", "1")
        ((_, _, _, step),) = query(path, plan)
        assert step.startswith("SEARCH")


def test_a_key_alone_is_a_row(path: Path) -> None:
    sink = sink_at(path, mode="upsert", key=("k",))
    commit(sink, 1, pa.table({"k": [1, 1]}))
    commit(sink, 2, pa.table({"k": [1, 2]}))
    assert query(path, "SELECT k FROM t ORDER BY k") == [(1,), (2,)]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (pa.table({"k": [1, None]}), "key column `k` is null in 1 rows"),
        (pa.table({"k": [1.5]}), "does not compare well"),
        (pa.table({"K": [1]}), "no key column `k`; did you mean `K`"),
        (pa.table({"k": [1], "a": [1], "A": [1]}), "differ in nothing but case"),
        (pa.table({"k": [1], "_weight": ["1"]}), "not a whole number"),
        (pa.table({"k": [1], "_weight": pa.nulls(1, pa.int8())}), "_weight"),
        (pa.table({"k": [1], "_weight": [2]}), "only 1 and -1"),
        (pa.table({"_weight": [1]}), "no columns"),
        (pa.table({"k": [1], "a\0": [1]}), "NUL"),
    ],
)
def test_rows_that_cannot_be_upserted_are_refused(
    path: Path, table: pa.Table, problem: str
) -> None:
    sink = sink_at(path, mode="upsert", key=("k",))
    with pytest.raises(WriteFailed, match=problem):
        commit(sink, 1, table)
    assert sink.ledger() is None


def test_a_constraint_of_the_table_publishes_nothing(path: Path) -> None:
    query(path, "CREATE TABLE t (k INTEGER CHECK (k < 150))")
    sink = sink_at(path)
    commit(sink, 1, pa.table({"k": [1]}))
    with pytest.raises(WriteFailed, match="CHECK constraint failed"):
        commit(sink, 2, pa.table({"k": range(200)}))
    assert sink.ledger() == 1
    assert query(path, "SELECT k FROM t") == [(1,)]


def test_a_table_that_is_gone_is_not_made_again(path: Path) -> None:
    """Else the ledger would count epochs whose rows are lost."""
    sink = sink_at(path)
    commit(sink, 1, pa.table({"k": [1]}))
    with pytest.raises(WriteFailed, match="are in table `t`"):
        commit(sink_at(path, table="u"), 2, pa.table({"k": [1]}))
    query(path, "DROP TABLE t")
    with pytest.raises(WriteFailed, match="is gone"):
        commit(sink, 2, pa.table({"k": [1]}))
    assert sink.ledger() == 1


def test_pipelines_do_not_share_a_ledger(path: Path) -> None:
    commit(sink_at(path), 1, pa.table({"k": [1]}))
    other = SqliteSink(SINK, PipelineName("other"), path, "u")
    assert other.ledger() is None
    other.commit(EpochNumber(5), staged(pa.table({"k": [1]}), joined_at=5))
    assert (sink_at(path).ledger(), other.ledger()) == (1, 5)
    found = query(path, "SELECT pipeline, sink, epoch, table_name FROM _laminar_ledger")
    assert sorted(found) == [("clicks", "table", 1, "t"), ("other", "table", 5, "u")]


# --- failures -------------------------------------------------------------------------------------


def test_a_lock_that_is_held_is_waited_for_and_then_reported(path: Path) -> None:
    sink = sink_at(path)
    commit(sink, 1, pa.table({"k": [1]}))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SinkUnavailable, match="holds its lock"):
            commit(sink, 2, pa.table({"k": [2]}))
        assert sink.ledger() == 1
        other.execute("ROLLBACK")
    commit(sink, 2, pa.table({"k": [2]}))
    assert sink.ledger() == 2


def test_a_reader_in_the_middle_of_its_work_holds_nobody_up(path: Path) -> None:
    sink = sink_at(path)
    commit(sink, 1, pa.table({"k": [1]}))
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM t").fetchone() == (1,)
        commit(sink, 2, pa.table({"k": [2]}))
        assert reader.execute("SELECT count(*) FROM t").fetchone() == (1,)
        assert sink.ledger() == 2


def test_a_database_with_a_rollback_journal_and_a_reader(path: Path) -> None:
    """It cannot be switched while it is read; the commit waits, gives up and publishes nothing."""
    query(path, "CREATE TABLE t (k INTEGER)")
    sink = sink_at(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM t").fetchone()
        with pytest.raises(SinkUnavailable, match="holds its lock"):
            commit(sink, 1, pa.table({"k": [1]}))
        reader.execute("ROLLBACK")
    assert sink.ledger() is None
    commit(sink, 1, pa.table({"k": [1]}))
    assert query(path, "SELECT k FROM t") == [(1,)]
    assert query(path, "PRAGMA journal_mode") == [("wal",)]


def _no_database(path: Path) -> None:
    path.write_bytes(b"this is no database, whatever its name may be" * 100)


def _damaged(path: Path) -> None:
    commit(sink_at(path), 1, pa.table({"k": range(2000)}))
    query(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    data[100:] = b"\xff" * (len(data) - 100)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "kind", "problem"),
    [
        (_no_database, WriteFailed, "not a SQLite database"),
        (_damaged, WriteFailed, "damaged"),
        (Path.mkdir, WriteFailed, "is a folder"),
    ],
)
def test_a_file_that_is_no_database(
    path: Path, spoil: Callable[[Path], None], kind: type[LaminarError], problem: str
) -> None:
    spoil(path)
    before = None if path.is_dir() else path.read_bytes()
    sink = sink_at(path)
    with pytest.raises(kind, match=problem):
        commit(sink, 2, pa.table({"k": [1]}))
    with pytest.raises(ServiceFailed, match=problem):
        sink.ledger()
    assert before is None or path.read_bytes() == before


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ServiceFailed):
        commit(sink_at(tmp_path / "file" / "below" / "out.db"), 1, pa.table({"k": [1]}))


def test_a_file_that_is_taken_away_during_the_commit(path: Path) -> None:
    """The rows would go to a file that nobody can find again."""
    sink = sink_at(path)
    query(path, "CREATE TABLE t (k INTEGER)")
    output = staged(pa.table({"k": [1]}), pa.table({"k": [2]}))

    def read(file: FileEntry) -> bytes:
        if file == output.entry.files[1]:
            path.unlink()
        return output.read(file)

    try:
        sink.commit(EpochNumber(1), StagedOutput(output.entry, read))
    except LaminarError as error:
        assert isinstance(error, WriteFailed | SinkUnavailable | CommitOutcomeUnknown)
    # Whatever was said, the ledger tells the truth: the file is gone, and the epoch with it.
    assert sink.ledger() is None


_FILL_THE_DISK = """
import resource, sys
from pathlib import Path
import pyarrow as pa
from laminar_dagster.core.errors import SinkUnavailable, CommitOutcomeUnknown
from tests.unit.sinks.test_sqlite_sink import commit, sink_at

sink = sink_at(Path(sys.argv[1]))
commit(sink, 1, pa.table({"k": [1]}))
# The kernel refuses to let any file grow beyond this, as a full disk does.
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    commit(sink, 2, pa.table({"k": range(60_000)}))
except (SinkUnavailable, CommitOutcomeUnknown) as error:
    print(type(error).__name__, error)
else:
    print("committed")
"""


@pytest.mark.parametrize("limit", [60_000, 400_000])
def test_a_full_disk_publishes_nothing(path: Path, limit: int) -> None:
    child = subprocess.run(
        [sys.executable, "-c", _FILL_THE_DISK, str(path), str(limit)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert child.stdout.startswith(("SinkUnavailable", "CommitOutcomeUnknown")), child.stdout
    sink = sink_at(path)
    assert sink.ledger() == 1
    assert query(path, "SELECT k FROM t") == [(1,)]
    commit(sink, 2, pa.table({"k": range(60_000)}))
    assert query(path, "SELECT count(*) FROM t") == [(60_001,)]


class _LosesReply(sqlite3.Connection):
    """Commits, and then reports that the disk failed."""

    commits_first = True

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql != "COMMIT":
            return super().execute(sql, *parameters)
        if self.commits_first:
            super().execute(sql)
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR | (4 << 8)
        error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
        raise error


class _FailsToCommit(_LosesReply):
    commits_first = False


@pytest.mark.parametrize(("kind", "ledger"), [(_LosesReply, 1), (_FailsToCommit, None)])
def test_a_commit_without_a_reply_is_unknown(
    path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[sqlite3.Connection], ledger: int | None
) -> None:
    connect = sqlite3.connect
    sink = sink_at(path)
    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, factory=kind, **k))
        with pytest.raises(CommitOutcomeUnknown, match="IOERR_FSYNC"):
            commit(sink, 1, pa.table({"k": [1]}))
    assert sink.ledger() == ledger
    commit(sink, 1, pa.table({"k": [1]}))
    assert query(path, "SELECT k FROM t") == [(1,)]


def test_an_epoch_is_flushed_before_the_commit_returns(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []

    class Watched(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            if sql == "COMMIT":
                journal = super().execute("PRAGMA journal_mode").fetchone()[0]
                asked.append((journal, super().execute("PRAGMA synchronous").fetchone()[0]))
            return super().execute(sql, *parameters)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, factory=Watched, **k))
    commit(sink_at(path), 1, pa.table({"k": [1]}))
    assert asked == [("wal", 3)]


def test_asking_for_the_ledger_makes_no_file(tmp_path: Path) -> None:
    assert sink_at(tmp_path / "no" / "such.db").ledger() is None
    assert [*tmp_path.iterdir()] == []
    (tmp_path / "empty.db").touch()
    assert sink_at(tmp_path / "empty.db").ledger() is None
    assert sink_at(tmp_path / "empty.db").sink_id == SinkId("table")


# --- asked before ---------------------------------------------------------------------------------


def test_a_check_says_what_a_commit_would_refuse(path: Path) -> None:
    columns = pa.schema([("k", pa.int64()), ("v", pa.string())])
    with pytest.raises(InvalidConfig, match="there is no such file"):
        sink_at(path, create=False).check(columns)
    sink_at(path).check(columns)
    assert not path.exists()
    commit(sink_at(path), 1, pa.table({"k": [1]}))
    sink_at(path).check(columns)
    with pytest.raises(InvalidConfig, match="has no column `v`"):
        sink_at(path, create=False).check(columns)
    with pytest.raises(InvalidConfig, match="its epochs so far are in table `t`"):
        sink_at(path, table="other").check(columns)
    with pytest.raises(InvalidConfig, match="would change the values"):
        sink_at(path).check(pa.schema([("k", pa.string())]))
    assert [name for _, name, *_ in query(path, "PRAGMA table_info(t)")] == ["k"]


def test_a_check_of_a_file_that_is_no_database_says_so(path: Path) -> None:
    path.write_bytes(b"no database" * 100)
    with pytest.raises(ServiceFailed, match="not a database"):
        sink_at(path).check(pa.schema([("k", pa.int64())]))
