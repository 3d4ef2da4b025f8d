"""Decimals in SQLite compare as numbers, or they are refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.core.errors import InvalidConfig, WriteFailed
from laminar_dagster.core.ids import EpochNumber, PipelineName
from laminar_dagster.core.ports import Searchable
from laminar_dagster.sinks.bad_values import BadValues
from laminar_dagster.sinks.sqlite.decimals import numbers_of, refuse_inexact
from laminar_dagster.sinks.sqlite.sink import SqliteSink
from tests.unit.sinks.staging import SINK, staged

EXACT = Context(prec=200)
PIPELINE = PipelineName("shop")
MONEY = pa.decimal128(20, 2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.db"


def sink_at(path: Path, **options: Any) -> SqliteSink:
    return SqliteSink(SINK, PIPELINE, path, options.pop("table", "t"), busy_timeout=1, **options)


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(sql).fetchall()


def money(*amounts: str | None, kind: pa.DataType = MONEY) -> pa.Array:
    return pa.array([None if each is None else Decimal(each) for each in amounts], kind)


def commit(sink: SqliteSink, epoch: int, *tables: pa.Table) -> None:
    sink.commit(EpochNumber(epoch), staged(*tables))


def test_the_obvious_query_gives_the_right_answer(path: Path) -> None:
    amounts = money("5000.01", "99.99", "199.99", "10000.00", "5000.00", "-3.10", None)
    commit(sink_at(path), 1, pa.table({"amount": amounts}))
    assert query(path, "SELECT count(*) FROM t WHERE amount > 5000") == [(2,)]
    assert query(path, "SELECT max(amount), min(amount) FROM t") == [(10000, -3.1)]
    assert query(path, "SELECT count(*) FROM t WHERE amount = 199.99") == [(1,)]
    assert query(path, "SELECT count(*) FROM t WHERE amount BETWEEN 99.99 AND 5000") == [(3,)]
    found = query(path, "SELECT amount FROM t WHERE amount IS NOT NULL ORDER BY amount")
    assert found == [(-3.1,), (99.99,), (199.99,), (5000,), (5000.01,), (10000,)]


@st.composite
def columns_of_decimals(draw: st.DrawFn) -> pa.Array:
    width = draw(st.sampled_from([9, 15, 16, 18, 38, 76]))
    precision = draw(st.integers(1, width))
    scale = draw(st.integers(0, precision))
    make = {9: pa.decimal32, 18: pa.decimal64, 76: pa.decimal256}.get(width, pa.decimal128)
    most = 10**precision - 1
    unscaled = st.integers(-most, most) | st.integers(-(10**14), 10**14).map(
        lambda number: max(-most, min(most, number))
    )
    # Zeros at the end are what makes a long number short.
    rounded = st.tuples(unscaled, st.integers(0, precision)).map(
        lambda both: both[0] // 10 ** both[1] * 10 ** both[1] if both[0] > 0 else both[0]
    )
    values = draw(st.lists(st.none() | unscaled | rounded, min_size=1, max_size=12))
    array = pa.array(
        [None if each is None else Decimal(each).scaleb(-scale, EXACT) for each in values],
        make(precision, scale),
    )
    return array.slice(draw(st.integers(0, len(values) - 1)))


@given(columns_of_decimals())
def test_a_decimal_reads_back_and_sorts_or_is_refused(array: pa.Array) -> None:
    exact: list[Decimal | None] = []
    for place in range(len(array)):
        one = array.slice(place, 1)
        (value,) = one.to_pylist()
        try:
            refuse_inexact(one)
        except BadValues:
            assert value is not None
            digits = str(int(value.scaleb(76, EXACT))).strip("-0")
            assert len(digits) > 15
            assert value != int(value) or not -(2**63) <= value < 2**63
            continue
        exact.append(value)
    whole = pa.array(exact, array.type)
    refuse_inexact(whole)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (x NUMERIC)")
        connection.executemany("INSERT INTO t VALUES (?)", [(each,) for each in numbers_of(whole)])
        read = [each for (each,) in connection.execute("SELECT x FROM t ORDER BY rowid")]
        ordered = [each for (each,) in connection.execute("SELECT x FROM t ORDER BY x")]
        distinct = connection.execute("SELECT count(DISTINCT x) FROM t").fetchone()[0]
    assert [None if each is None else Decimal(repr(each)) for each in read] == exact
    values = sorted(each for each in exact if each is not None)
    assert [Decimal(repr(each)) for each in ordered if each is not None] == values
    assert distinct == len({*values})


@given(st.integers(-(10**15) + 1, 10**15 - 1), st.integers(0, 4))
def test_a_literal_meets_the_number_that_is_stored(unscaled: int, scale: int) -> None:
    """SQLite reads the literal; it need not round as the sink does."""
    value = Decimal(unscaled).scaleb(-scale)
    (number,) = numbers_of(pa.array([value], pa.decimal128(20, scale)))
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (x NUMERIC)")
        connection.execute("INSERT INTO t VALUES (?)", (number,))
        found = connection.execute(f"SELECT count(*) FROM t WHERE x = {value:f}").fetchone()
    assert found == (1,)


def test_a_decimal_with_a_negative_scale_is_a_whole_number(path: Path) -> None:
    values = ["12300", "-100", None, "9007199254740993000"]
    array = money(*values, kind=pa.decimal128(20, -2))
    commit(sink_at(path), 1, pa.table({"v": array}))
    assert query(path, "SELECT v FROM t") == [
        (None if each is None else int(each),) for each in values
    ]


def test_what_is_not_exact_is_refused_by_the_gate_and_by_the_commit(path: Path) -> None:
    sink = sink_at(path, mode="upsert", key=("k",))
    rows = pa.table({"k": [1, 2], "v": money("123456789012345.67", "1.50")})
    problem = r"column `v` has 1 values that have more than 15 .*decimals = 'text'.*k=1, v="
    with pytest.raises(InvalidConfig, match=problem):
        sink.check(rows.schema, staged(rows))
    with pytest.raises(WriteFailed, match=problem):
        commit(sink, 1, rows)
    assert not query(path, "SELECT name FROM sqlite_master")


def test_a_row_that_is_replaced_in_its_epoch_is_refused_by_both_or_by_none(path: Path) -> None:
    """Else an epoch could be published that can never be committed."""
    bad, good = money("123456789012345.67"), money("1.00")
    sink = sink_at(path, mode="upsert", key=("k",))
    plus, both = pa.array([1], pa.int8()), pa.array([1, 1], pa.int8())
    one_file = pa.table({"k": [1, 1], "v": pa.concat_arrays([bad, good]), "_weight": both})
    sink.check(one_file.schema, staged(one_file))
    commit(sink, 1, one_file)
    files = [pa.table({"k": [1], "v": value, "_weight": plus}) for value in (bad, good)]
    with pytest.raises(InvalidConfig, match="column `v`"):
        sink.check(files[0].schema, staged(*files))
    with pytest.raises(WriteFailed, match="column `v`"):
        commit(sink, 2, *files)
    # So is a key that goes without ever having been there.
    keyed = sink_at(path.with_name("keyed.db"), mode="upsert", key=("k",))
    gone = pa.table({"k": bad, "_weight": pa.array([-1], pa.int8())})
    with pytest.raises(InvalidConfig, match="column `k`"):
        keyed.check(gone.schema, staged(gone))


def test_a_decimal_key_is_one_key_however_it_is_written(path: Path) -> None:
    sink = sink_at(path, mode="upsert", key=("k",))
    keys = money("1.10", "9007199254740993.00", "0.10", "3.00")
    commit(sink, 1, pa.table({"k": keys, "v": [1, 2, 3, 4]}))
    # The view's type grew: other digits, the same numbers.
    wider = pa.decimal128(30, 6)
    again = money("1.1", "9007199254740993", "0.1", kind=wider)
    weights = pa.array([1, -1, -1], pa.int8())
    rows = pa.table({"k": again, "v": [5, 0, 0], "_weight": weights})
    assert isinstance(sink, Searchable)
    assert sink.held_keys(rows.schema, rows.select(["k"])).count == 3
    commit(sink, 2, rows)
    assert query(path, "SELECT k, v FROM t ORDER BY k") == [(1.1, 5), (3, 4)]


def test_text_keeps_all_digits_where_it_is_asked_for(path: Path) -> None:
    sink = sink_at(path, decimals="text")
    commit(
        sink, 1, pa.table({"v": money("9" * 36 + ".10", "1.50", None, kind=pa.decimal128(38, 2))})
    )
    found = query(path, "SELECT typeof(v), v FROM t")
    assert found == [("text", "9" * 36 + ".10"), ("text", "1.50"), ("null", None)]
    with pytest.raises(WriteFailed, match="keeps text in column `v`"):
        commit(sink_at(path), 2, pa.table({"v": money("1.50")}))


@pytest.mark.parametrize(
    ("declared", "is_taken"),
    [
        ("NUMERIC", True),
        ("DECIMAL(10, 2)", True),
        ("INT", True),
        ("TEXT", False),
        ("", False),
        ("BLOB", False),
        ("REAL", False),
        ("DOUBLE PRECISION", False),
    ],
)
def test_a_column_that_was_made_takes_decimals_if_it_compares_them(
    path: Path, declared: str, is_taken: bool
) -> None:
    query(path, f"CREATE TABLE t (v {declared})")
    if is_taken:
        commit(sink_at(path), 1, pa.table({"v": money("1.50", "2.00")}))
        assert query(path, "SELECT typeof(v), v FROM t") == [("real", 1.5), ("integer", 2)]
        return
    with pytest.raises(InvalidConfig, match="NUMERIC"):
        sink_at(path).check(pa.schema([("v", MONEY)]))


# --- tables from before ---------------------------------------------------------------------------

_MADE = "SELECT sql FROM sqlite_master WHERE type <> 'table' AND sql IS NOT NULL ORDER BY sql"

Client = Callable[[Path, str], None]


def stops(path: Path, script: str) -> None:
    """A client that stops at the first error."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        try:
            connection.executescript(script)
        except sqlite3.Error as error:
            assert "no exact number" in str(error) or "UNIQUE" in str(error)


def goes_on(path: Path, script: str) -> None:
    """A client that runs every statement, whatever became of those before."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        statement = ""
        for line in script.splitlines(keepends=True):
            statement += line
            if sqlite3.complete_statement(statement):
                with suppress(sqlite3.Error):
                    connection.execute(statement)
                statement = ""
        assert not connection.in_transaction


def script_for(sink: SqliteSink, schema: pa.Schema) -> str:
    with pytest.raises(InvalidConfig, match="text does not compare as a number") as caught:
        sink.check(schema)
    before, script = str(caught.value).split("\n\n", 1)
    assert "decimals = 'text'" in before
    assert script.startswith("BEGIN;") and script.rstrip().endswith("COMMIT;")
    return script


GOOD = ("1.50", "-0.07", "0.00", "-12.00", "9007199254740993.00", "9999999999999.99", None)


@pytest.mark.parametrize("run", [stops, goes_on])
def test_a_table_from_before_is_mended_by_the_sql_of_the_refusal(path: Path, run: Client) -> None:
    """With all that people have made of it: indexes, views and triggers."""
    keys, amounts = [*range(len(GOOD))], money(*GOOD)
    wide = pa.decimal128(30, 8)
    # SQLite 3.40 reads the text of the last one as the number beside it.
    rates = money("0.12345678", "0", "-1", "1E+3", None, "0.000001", "37595.98651780", kind=wide)
    view = pa.table({"k": keys, "v": amounts, "r": rates})
    before = sink_at(path, mode="upsert", key=("k",), decimals="text")
    commit(before, 1, view)
    for statement in (
        "CREATE TABLE other AS SELECT 1 AS one",
        "CREATE INDEX dear ON t (v DESC) WHERE k > 2",
        "CREATE VIEW large AS SELECT k, v FROM t WHERE v > 5000",
        "CREATE VIEW larger AS SELECT k FROM large WHERE v > 7000",
        'CREATE TRIGGER "into" INSTEAD OF INSERT ON larger'
        " BEGIN INSERT INTO other VALUES (NEW.k); END",
        "CREATE TRIGGER noted AFTER UPDATE ON t BEGIN INSERT INTO other VALUES (NEW.v); END",
        "CREATE TRIGGER foreign_one AFTER DELETE ON other"
        " BEGIN INSERT INTO other SELECT v FROM t WHERE v = OLD.one; END",
    ):
        query(path, statement)
    made = query(path, _MADE)
    assert query(path, "SELECT typeof(v) FROM t WHERE k = 0") == [("text",)]
    sink = sink_at(path, mode="upsert", key=("k",))
    with pytest.raises(WriteFailed, match="text does not compare"):
        commit(sink, 2, view)
    run(path, script_for(sink, view.schema))
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
    assert query(path, _MADE) == made
    assert query(path, "SELECT * FROM other") == [(1,)]
    columns = query(path, "SELECT name, type FROM pragma_table_info('t') ORDER BY name")
    assert columns == [("k", "INTEGER"), ("r", "NUMERIC"), ("v", "NUMERIC")]
    found = query(path, "SELECT k, v, r FROM t ORDER BY k")
    # Exactly what the sink would have written.
    fresh = path.with_name("fresh.db")
    commit(sink_at(fresh, mode="upsert", key=("k",)), 1, view)
    assert found == query(fresh, "SELECT k, v, r FROM t ORDER BY k")
    assert found[4] == (4, 9007199254740993, None)
    # The ledger is where it was, and the pipeline goes on.
    assert sink.ledger() == 1
    commit(sink, 2, pa.table({"k": [0], "v": money("7000.25"), "r": money("2", kind=wide)}))
    assert query(path, "SELECT k, v FROM large WHERE v < 8000") == [(0, 7000.25)]
    assert (0,) in query(path, "SELECT k FROM larger")


@pytest.mark.parametrize("run", [stops, goes_on])
@pytest.mark.parametrize(
    "kind", [pa.decimal128(20, 2), pa.decimal128(38, 0), pa.decimal128(38, 25)]
)
def test_what_has_no_exact_number_leaves_the_table_as_it_was(
    path: Path, run: Client, kind: pa.DataType
) -> None:
    value = Decimal("1234567890123456789").scaleb(-kind.scale, EXACT)
    value = value if kind.scale else value * 100
    view = pa.table({"k": [1, 2], "v": pa.array([Decimal(1), value], kind)})
    commit(sink_at(path, decimals="text"), 1, view)
    query(path, "CREATE VIEW large AS SELECT v FROM t")
    query(path, "CREATE INDEX by_v ON t (v)")
    before = query(path, "SELECT k, v FROM t ORDER BY k")
    definition = query(path, "SELECT sql FROM sqlite_master")
    run(path, script_for(sink_at(path), view.schema))
    assert query(path, "SELECT k, v FROM t ORDER BY k") == before
    assert query(path, "SELECT sql FROM sqlite_master") == definition


@pytest.mark.parametrize("run", [stops, goes_on])
def test_a_key_from_before_is_mended_too(path: Path, run: Client) -> None:
    view = pa.table({"k": money(*GOOD[:6]), "n": [*range(6)], "v": money(*GOOD[:6])})
    commit(sink_at(path, mode="upsert", key=("k", "n"), decimals="text"), 1, view)
    query(path, "CREATE TABLE log (n)")
    query(path, "CREATE INDEX by_v ON t (v, n)")
    query(path, "CREATE VIEW large AS SELECT k FROM t WHERE k > 5000")
    query(
        path,
        "CREATE TRIGGER noted AFTER INSERT ON t BEGIN INSERT INTO log VALUES (NEW.n); END",
    )
    made = query(path, _MADE)
    sink = sink_at(path, mode="upsert", key=("k", "n"))
    run(path, script_for(sink, view.schema))
    names = query(path, "SELECT name FROM sqlite_master WHERE tbl_name = 't' ORDER BY name")
    assert names == [("by_v",), ("noted",), ("sqlite_autoindex_t_1",), ("t",)]
    assert query(path, _MADE) == made
    assert query(path, "SELECT count(*) FROM large") == [(2,)]
    assert query(path, "SELECT * FROM log") == []
    commit(sink, 2, view.append_column("_weight", pa.array([-1] * 6, pa.int8())))
    assert query(path, "SELECT * FROM t") == []


def test_a_key_of_text_is_not_written_in_two_ways(path: Path) -> None:
    """1.1 and 1.10 are one key of the view, and would be two of the table."""
    sink = sink_at(path, mode="upsert", key=("k",), decimals="text")
    commit(sink, 1, pa.table({"k": money("0", "1.10", kind=pa.decimal128(20, 8)), "v": [0, 1]}))
    for scale in (2, 0):
        other = pa.schema([("k", pa.decimal128(20, scale)), ("v", pa.int64())])
        problem = rf"such as 1\.10000000, and .* has {scale} digits .* DECIMAL\(…, 8\)"
        with pytest.raises(InvalidConfig, match=problem):
            sink.check(other)
    # More digits before the point are no other text.
    commit(sink, 2, pa.table({"k": money("1.1", kind=pa.decimal128(30, 8)), "v": [2]}))
    assert query(path, "SELECT v FROM t ORDER BY v") == [(0,), (2,)]


@pytest.mark.parametrize("run", [stops, goes_on])
@pytest.mark.parametrize(("first", "second"), [("1.10", "1.1"), ("0.00", "0")])
def test_two_texts_of_one_number_are_not_merged(
    path: Path, run: Client, first: str, second: str
) -> None:
    """The first is refused because nobody knows its digits, the other because it is there."""
    sink = sink_at(path, mode="upsert", key=("k",))
    before = sink_at(path, mode="upsert", key=("k",), decimals="text")
    commit(before, 1, pa.table({"k": money(first), "v": [1]}))
    query(path, f"INSERT INTO t VALUES ('{second}', 2)")
    for kind in (MONEY, pa.decimal128(20, 1)):
        run(path, script_for(sink, pa.schema([("k", kind), ("v", pa.int64())])))
        assert query(path, "SELECT k, v FROM t ORDER BY v") == [(first, 1), (second, 2)]
    assert sink.ledger() == 1


@pytest.mark.parametrize("run", [stops, goes_on])
@pytest.mark.parametrize("text", ["ab.cd", "abc", "", "1.5e3", "1.5", "1.500", "1.00E-7"])
def test_a_text_that_the_sink_has_not_written_is_left(path: Path, run: Client, text: str) -> None:
    query(path, "CREATE TABLE t (v TEXT)")
    query(path, f"INSERT INTO t VALUES ('1.50'), ('{text}')")
    run(path, script_for(sink_at(path), pa.schema([("v", MONEY)])))
    assert query(path, "SELECT v FROM t") == [("1.50",), (text,)]


def test_a_table_that_others_refer_to_is_not_made_anew(path: Path) -> None:
    query(path, "CREATE TABLE t (k TEXT PRIMARY KEY)")
    query(path, "CREATE TABLE child (k REFERENCES t (k))")
    with pytest.raises(InvalidConfig, match="make the table anew with these columns NUMERIC"):
        sink_at(path, mode="upsert", key=("k",)).check(pa.schema([("k", MONEY)]))


def test_a_table_that_people_made_is_not_made_anew(path: Path) -> None:
    query(path, "CREATE TABLE t (k TEXT PRIMARY KEY CHECK (k <> ''), v INTEGER)")
    sink = sink_at(path, mode="upsert", key=("k",))
    with pytest.raises(InvalidConfig, match="make the table anew with these columns NUMERIC"):
        sink.check(pa.schema([("k", MONEY), ("v", pa.int64())]))
