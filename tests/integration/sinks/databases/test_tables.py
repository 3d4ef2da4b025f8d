"""Tables that are made, and that are there."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.core.ports import Sink
from laminar_dagster.sinks import portions
from laminar_dagster.sinks.mysql import loading
from tests.integration.sinks.databases.epochs import ROWS, UPSERT, commit, refusal, sink_at
from tests.integration.sinks.databases.place import DatabasePlace
from tests.integration.sinks.databases.servers import EITHER_WAY, on
from tests.unit.sinks.staging import staged


def test_a_table_is_made_with_its_key(every_way: DatabasePlace) -> None:
    commit(sink_at(every_way, **UPSERT), 1, ROWS)
    commit(sink_at(every_way, **UPSERT), 2, pa.table({"k": [2, 3], "v": ["B", "c"]}))
    assert every_way.query("SELECT k, v FROM t ORDER BY k") == [(1, "a"), (2, "B"), (3, "c")]


def test_the_ledger_tells_what_was_committed(place: DatabasePlace) -> None:
    output = staged(ROWS)
    sink_at(place).commit(EpochNumber(1), output)
    ((pipeline, sink, epoch, table, sha256, recent),) = place.query(
        "SELECT pipeline, sink, epoch, table_name, output_sha256,"
        f" {place.traits.recently} FROM _laminar_ledger"
    )
    assert (pipeline, sink, epoch, table, recent) == ("clicks", "table", 1, "t", True)
    assert sha256 == output.entry.output_sha256


def test_first_epochs_of_several_sinks_at_once(place: DatabasePlace) -> None:
    """All of them want to make the ledger."""
    sinks = [place.sink(f"t{each}", sink_id=SinkId(f"s{each}")) for each in range(6)]
    start = threading.Barrier(len(sinks))

    def first(sink: Sink) -> None:
        start.wait()
        sink.commit(EpochNumber(1), staged(ROWS, sink=sink.sink_id))

    with ThreadPoolExecutor(len(sinks)) as pool:
        for running in [pool.submit(first, sink) for sink in sinks]:
            running.result()
    assert [sink.ledger() for sink in sinks] == [1] * len(sinks)
    assert place.query("SELECT count(*) FROM _laminar_ledger") == [(len(sinks),)]


def test_names_are_quoted(every_way: DatabasePlace) -> None:
    """Whatever they hold, they are names."""
    names = every_way.traits.odd_names
    every_way.query("CREATE TABLE t (a int)")
    every_way.query(names.first)
    rows = pa.table({names.key: [1], names.column: ["v"], "_weight": pa.array([1], pa.int8())})
    sink = sink_at(every_way, names.table, mode="upsert", key=(names.key,), **names.options)
    commit(sink, 1, rows)
    commit(sink, 2, rows.set_column(2, "_weight", pa.array([-1], pa.int8())))
    commit(sink, 3, rows)
    assert every_way.query(f"SELECT * FROM {names.selected}") == [(1, "v")]
    assert every_way.query("SELECT count(*) FROM t") == [(0,)]
    assert sink.ledger() == 3


def test_columns_are_added_if_that_is_allowed(every_way: DatabasePlace) -> None:
    commit(sink_at(every_way), 1, ROWS)
    more = ROWS.append_column("new", pa.array([1.5, None]))
    most = more.append_column("é", pa.array(["x", "y"]))
    for rows, names in ((more, "`new`"), (most, "`new`, `é`")):
        assert f"has no column {names}; add it, or set create = 'true'" in refusal(
            sink_at(every_way, create=False), rows, 2
        )
    commit(sink_at(every_way), 2, most)
    commit(sink_at(every_way), 3, ROWS)
    assert every_way.query("SELECT count(*), count(new) FROM t") == [(6, 1)]


def test_columns_the_view_does_not_have_stay(every_way: DatabasePlace) -> None:
    every_way.query(
        "CREATE TABLE t"
        f" (k bigint PRIMARY KEY, note varchar(9) DEFAULT 'mine', v {every_way.traits.text})"
    )
    commit(sink_at(every_way, **UPSERT), 1, ROWS)
    every_way.query("UPDATE t SET note = 'changed' WHERE k = 1")
    commit(sink_at(every_way, **UPSERT), 2, pa.table({"k": [1, 3], "v": ["A", "c"]}))
    assert every_way.query("SELECT * FROM t ORDER BY k") == [
        (1, "changed", "A"),
        (2, "mine", "b"),
        (3, "mine", "c"),
    ]


@pytest.mark.parametrize("name", ["userId", "userid"])
def test_columns_can_have_other_names_in_the_table(place: DatabasePlace, name: str) -> None:
    quote, text = place.traits.quote, place.traits.text
    columns = f"{quote}userId{quote}", f"{quote}from{quote}"
    place.query(f"CREATE TABLE t ({columns[0]} bigint PRIMARY KEY, {columns[1]} {text})")
    options = {**UPSERT, "renamed": {"k": name, "v": "from"}, "create": False}
    commit(sink_at(place, **options), 1, ROWS)
    gone = ROWS.append_column("_weight", pa.array([-1, 1], pa.int8()))
    commit(sink_at(place, **options), 2, gone)
    assert place.query(f"SELECT {', '.join(columns)} FROM t") == [(2, "b")]
    assert "no column `vv`, which `column.vv` names; did you mean `v`?" in refusal(
        sink_at(place, renamed={"vv": "x"}), epoch=3
    )
    twice = pa.table({"a": ["x"], "b": ["y"]})
    assert "`a` and `b` both go to `from`" in refusal(
        sink_at(place, renamed={"a": "from", "b": "FROM"}), twice, 3
    )


def test_a_made_table_has_the_other_names_too(place: DatabasePlace) -> None:
    commit(sink_at(place, **UPSERT, renamed={"k": "id"}), 1, ROWS)
    assert place.query("SELECT id, v FROM t ORDER BY id") == [(1, "a"), (2, "b")]


def test_only_keys(every_way: DatabasePlace) -> None:
    keys = pa.table({"k": pa.array([1, 2, 2])})
    commit(sink_at(every_way, **UPSERT), 1, keys)
    commit(sink_at(every_way, **UPSERT), 2, keys)
    assert every_way.query("SELECT k FROM t ORDER BY k") == [(1,), (2,)]


@pytest.mark.parametrize(
    ("low", "high", "kind", "is_there"),
    [(1, 2, pa.int16(), True), (b"\0", b"\xff", pa.binary(), False)],
    ids=["a table that is there", "a table that is made"],
)
def test_keys_of_several_columns_in_any_order(
    every_way: DatabasePlace, low: object, high: object, kind: pa.DataType, is_there: bool
) -> None:
    rows = pa.table(
        {
            "v": ["x", "y", "z"],
            "b": pa.array([low, high, low], kind),
            "a": ["p", "q", "p"],
            "_weight": pa.array([1, 1, -1], pa.int64()),
        }
    )
    if is_there:
        text, key_text = every_way.traits.text, every_way.traits.key_text
        every_way.query(f"CREATE TABLE t (a {key_text}, b int, v {text}, UNIQUE (a, b))")
    sink = sink_at(every_way, mode="upsert", key=("b", "a"))
    commit(sink, 1, rows.slice(0, 2))
    found = every_way.query("SELECT a, b, v FROM t ORDER BY a")
    assert found == [("p", low, "x"), ("q", high, "y")]
    commit(sink, 2, rows)
    assert every_way.query("SELECT a, b, v FROM t ORDER BY a") == [("q", high, "y")]


def test_large_files_and_many_small_ones(
    every_way: DatabasePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several statements, and still in their order."""
    monkeypatch.setattr(portions, "_BYTES_PER_STATEMENT", 4000)
    monkeypatch.setattr(portions, "_ROWS_PER_BATCH", 100)
    monkeypatch.setattr(loading, "_BYTES_PER_INSERT", 300)
    files = [
        pa.table(
            {
                "k": pa.array([row % 500 for row in range(at, at + size)], pa.int64()),
                "v": pa.array([f"{row}" for row in range(at, at + size)], pa.string()),
            }
        )
        for at, size in ((0, 1000), (1000, 3), (1003, 0), (1003, 1), (1004, 700))
    ]
    commit(sink_at(every_way, **UPSERT), 1, *files)
    assert sorted(every_way.query("SELECT k, v FROM t")) == sorted(
        {row % 500: str(row) for row in range(1704)}.items()
    )
    traits = every_way.traits
    every_way.query(f"CREATE TABLE u ({traits.numbered}, k bigint, v {traits.text})")
    other = every_way.sink("u", sink_id=SinkId("other"))
    other.commit(EpochNumber(1), staged(*files, sink=SinkId("other")))
    assert every_way.query("SELECT v FROM u ORDER BY n") == [(str(row),) for row in range(1704)]


@pytest.mark.slow
def test_rows_and_deletes_of_a_portion_are_not_applied_again_by_the_next(
    every_way: DatabasePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch that takes several statements, each of which stages its rows anew."""
    monkeypatch.setattr(portions, "_BYTES_PER_STATEMENT", 4000)
    rows = 2000
    # Every key stands four times. Those that are even are deleted by the first row of each two.
    keys = [row % 500 for row in range(rows)]
    weights = [-1 if row // 500 % 2 == 0 and row % 2 == 0 else 1 for row in range(rows)]
    # At last, a few keys are deleted and the rest stays.
    keys += list(range(10))
    weights += [-1] * 10
    table = pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "v": pa.array([str(row) for row in range(len(keys))], pa.string()),
            "_weight": pa.array(weights, pa.int8()),
        }
    )
    commit(every_way.sink(**UPSERT), 1, table)
    expected: dict[int, str] = {}
    for key, value, weight in zip(keys, table.column("v").to_pylist(), weights, strict=True):
        if weight > 0:
            expected[key] = value
        else:
            expected.pop(key, None)
    assert sorted(every_way.query("SELECT k, v FROM t")) == sorted(expected.items())
    assert len(expected) == 490


@pytest.mark.parametrize(
    ("every_way", "statements", "high", "reason"),
    [
        *on(
            "postgres",
            cases=[
                (
                    (
                        "CREATE TABLE t (k bigint PRIMARY KEY, v text) PARTITION BY RANGE (k)",
                        "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (2)",
                        "CREATE TABLE high PARTITION OF t FOR VALUES FROM (2) TO (10)",
                    ),
                    "high",
                    "no partition of relation",
                )
            ],
        ),
        *on(
            *EITHER_WAY,
            cases=[
                (
                    (
                        "CREATE TABLE t (k bigint PRIMARY KEY, v longtext) CHARACTER SET utf8mb4"
                        " PARTITION BY RANGE (k) (PARTITION low VALUES LESS THAN (2),"
                        " PARTITION high VALUES LESS THAN (10))",
                    ),
                    "t PARTITION (high)",
                    "no partition for value 99",
                )
            ],
        ),
    ],
    indirect=["every_way"],
)
def test_partitions_take_rows(
    every_way: DatabasePlace, statements: tuple[str, ...], high: str, reason: str
) -> None:
    for statement in statements:
        every_way.query(statement)
    commit(sink_at(every_way, **UPSERT), 1, ROWS)
    assert every_way.query(f"SELECT k FROM {high}") == [(2,)]
    for options in (UPSERT, {}):
        rows = pa.table({"k": [5, 99], "v": ["", ""]})
        assert reason in refusal(sink_at(every_way, **options), rows, 2)


def test_looking_changes_nothing(place: DatabasePlace) -> None:
    sink = sink_at(place, **UPSERT)
    sink.check(ROWS.schema)
    assert place.relations() == []
    commit(sink, 1, ROWS)
    sink.check(ROWS.schema)
    sink.check(ROWS.schema, staged(ROWS))
    sink.check(pa.schema([*ROWS.schema, pa.field("more", pa.int8())]))
    assert len(place.columns_of("t")) == 2
    assert place.relations() == ["_laminar_ledger", "t"]


def test_a_table_that_held_epochs_must_be_there(place: DatabasePlace) -> None:
    commit(sink_at(place), 1, ROWS)
    assert "its epochs so far are in table `t`" in refusal(sink_at(place, "u"), epoch=2)
    place.query("DROP TABLE t")
    assert "table `t`, which held its epochs so far, is gone" in refusal(sink_at(place), epoch=2)
    with pytest.raises(InvalidConfig, match="is gone"):
        sink_at(place).check(ROWS.schema)
    assert place.relations() == ["_laminar_ledger"]
