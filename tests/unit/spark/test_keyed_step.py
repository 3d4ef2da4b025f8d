"""Keyed state without Spark: any story of epochs gives what a plain computation gives."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_dagster.core import layout
from laminar_dagster.core.errors import ChecksumMismatch
from laminar_dagster.spark import state_cache
from laminar_dagster.spark.columns import END, FIRST
from laminar_dagster.spark.keyed_rows import WEIGHT
from laminar_dagster.spark.state_files import MAX_FILES
from laminar_dagster.spark.window_assignment import WindowAssignment
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.spark.keyed_operator import Operator, Record, shape_of_sums

GAP = 10
KEYS = st.sampled_from(["a", "b", "c", None])
VALUES = st.none() | st.integers(-9, 9)
STORIES = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 40), KEYS, VALUES, st.just(1)), max_size=6),
        st.integers(0, 15),
    ),
    min_size=1,
    max_size=20,
)
# Few hashes, so that keys meet in one; and many.
HASHES = st.sampled_from([2, 2**62])

Row = tuple[object, ...]


def applied(table: Counter[Row], rows: list[dict[str, Any]], names: list[str]) -> None:
    """Changes on a table: what is taken back is there, and what stays the same is not told."""
    told = [(tuple(row[name] for name in names), row[WEIGHT]) for row in rows]
    assert all(told.count((row, -weight)) == 0 for row, weight in told)
    for row, weight in told:
        table[row] += weight
        assert table[row] in (0, 1)
    for row in [row for row, count in table.items() if not count]:
        del table[row]


def sums(records: list[Record]) -> tuple[int, int | None, int | None]:
    known = [value for _, _, value, _ in records if value is not None]
    return len(records), sum(known) if known else None, max(known, default=None)


def sessions(records: list[Record]) -> dict[str | None, list[list[Record]]]:
    """The stretches of each key's records that no gap cuts."""
    found: dict[str | None, list[list[Record]]] = defaultdict(list)
    for each in sorted(records, key=lambda record: record[0]):
        mine = found[each[1]]
        if not mine or each[0] >= mine[-1][-1][0] + GAP:
            mine.append([])
        mine[-1].append(each)
    return found


class Story:
    """Records that are on time, and how far event time has come."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.watermark = 0

    def go_on(self, rows: list[Record], step: int) -> list[Record]:
        coming = [(self.watermark + time, *rest) for time, *rest in rows]
        self.records += coming  # type: ignore[arg-type]
        self.watermark += step
        return coming  # type: ignore[return-value]


SUMS = ["count(*)", "sum(x)", "max(x)"]


@given(STORIES, HASHES)
@settings(max_examples=60)
def test_groups_are_always_what_all_records_give(
    story: list[tuple[list[Record], int]], hashes: int
) -> None:
    operator, told = Operator(shape_of_sums(weighed=False), hashes=hashes), Story()
    table: Counter[Row] = Counter()
    for rows, step in story:
        coming = told.go_on(rows, step)
        applied(table, operator.run(coming, told.watermark), ["_k0", *SUMS])
        keys = {key for _, key, _, _ in told.records}
        mine = {key: [each for each in told.records if each[1] == key] for key in keys}
        assert set(table) == {(key, *sums(rows)) for key, rows in mine.items()}
        assert len(operator.files) <= MAX_FILES


@given(STORIES, HASHES)
@settings(max_examples=60)
def test_a_group_leaves_when_it_was_silent_for_long(
    story: list[tuple[list[Record], int]], hashes: int
) -> None:
    operator = Operator(shape_of_sums("group", GAP, weighed=False), hashes=hashes)
    told, table = Story(), Counter[Row]()
    for rows, step in story:
        coming = told.go_on(rows, step)
        applied(table, operator.run(coming, told.watermark), ["_k0", *SUMS])
        newest = {key: each[-1] for key, each in sessions(told.records).items()}
        assert set(table) == {
            (key, *sums(rows)) for key, rows in newest.items() if rows[-1][0] + GAP > told.watermark
        }


@given(STORIES, HASHES)
@settings(max_examples=60)
def test_sessions_close_once_with_everything_that_came(
    story: list[tuple[list[Record], int]], hashes: int
) -> None:
    shape = shape_of_sums("session", GAP, weighed=False)
    operator, told = Operator(shape, "close", hashes=hashes), Story()
    emitted: Counter[Row] = Counter()
    for rows, step in story:
        coming = told.go_on(rows, step)
        found = operator.run(coming, told.watermark)
        assert all(row[WEIGHT] == 1 for row in found)
        applied(emitted, found, ["_k0", FIRST, END, *SUMS])
        for entry in operator.files:
            assert entry.event_time and entry.event_time[1] > told.watermark
    assert set(emitted) == {
        (key, rows[0][0], rows[-1][0] + GAP, *sums(rows))
        for key, stretches in sessions(told.records).items()
        for rows in stretches
        if rows[-1][0] + GAP <= told.watermark
    }


@given(STORIES, HASHES)
@settings(max_examples=40)
def test_sessions_that_change_are_always_what_all_records_give(
    story: list[tuple[list[Record], int]], hashes: int
) -> None:
    operator = Operator(shape_of_sums("session", GAP, weighed=False), hashes=hashes)
    told, table = Story(), Counter[Row]()
    for rows, step in story:
        coming = told.go_on(rows, step)
        applied(table, operator.run(coming, told.watermark), ["_k0", FIRST, END, *SUMS])
        assert set(table) == {
            (key, rows[0][0], rows[-1][0] + GAP, *sums(rows))
            for key, stretches in sessions(told.records).items()
            for rows in stretches
        }


@given(STORIES, HASHES)
@settings(max_examples=40)
def test_windows_that_change_stay_as_they_closed(
    story: list[tuple[list[Record], int]], hashes: int
) -> None:
    shape = shape_of_sums("window", weighed=False)
    operator = Operator(shape, windows=WindowAssignment(10, 5), hashes=hashes)
    told, table = Story(), Counter[Row]()
    for rows, step in story:
        coming = told.go_on(rows, step)
        applied(table, operator.run(coming, told.watermark), ["_k0", END, *SUMS])
    expected: dict[tuple[str | None, int], list[Record]] = defaultdict(list)
    for each in told.records:
        for end in (each[0] // 5 * 5 + 5, each[0] // 5 * 5 + 10):
            expected[each[1], end].append(each)
    assert set(table) == {(*window, *sums(rows)) for window, rows in expected.items()}


@given(
    st.lists(
        st.lists(st.tuples(st.booleans(), KEYS, VALUES, st.integers(0, 99)), max_size=6),
        max_size=25,
    ),
    HASHES,
)
@settings(max_examples=60)
def test_what_is_taken_back_was_never_there(
    story: list[list[tuple[bool, str | None, int | None, int]]], hashes: int
) -> None:
    """Deletes pick a row that is there; a key without rows is gone, and can come back."""
    operator = Operator(shape_of_sums(weighed=True), hashes=hashes)
    present: list[tuple[str | None, int | None]] = []
    table: Counter[Row] = Counter()
    names = ["_k0", "count(*) by weight", "sum(x) by weight", "count(x) by weight"]
    for epoch in story:
        records: list[Record] = []
        for deletes, key, value, pick in epoch:
            if deletes and present:
                key, value = present.pop(pick % len(present))
                records.append((0, key, value, -1))
            elif not deletes:
                present.append((key, value))
                records.append((0, key, value, 1))
        applied(table, operator.run(records, 0), names)
        expected = set()
        for key in {key for key, _ in present}:
            known = [value for each, value in present if each == key and value is not None]
            count = sum(each == key for each, _ in present)
            expected.add((key, count, sum(known), len(known)))
        assert set(table) == expected
    assert len(operator.files) <= MAX_FILES


def test_a_weight_that_is_none_is_refused() -> None:
    operator = Operator(shape_of_sums(weighed=True))
    with pytest.raises(Exception, match="has to be 1 or -1"):
        operator.run([(0, "a", 1, 2)], 0)


def test_only_files_of_keys_that_come_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key's newest file decides: older ones are not opened."""
    operator = Operator(shape_of_sums(weighed=False))
    for _ in range(3):
        operator.run([(0, "a", 1, 1)], 0)
    opened: list[str] = []
    real = MemoryStore.read

    def read(store: MemoryStore, key: str, *, limit: int | None = None) -> bytes:
        opened.append(key)
        return real(store, key, limit=limit)

    monkeypatch.setattr(MemoryStore, "read", read)
    assert [row["count(*)"] for row in operator.run([(0, "a", 1, 1)], 0)] == [3, 4]
    assert len(opened) == 1


def test_a_large_state_is_mapped_and_a_damaged_copy_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(state_cache, "SMALL", 0)
    monkeypatch.setattr(state_cache, "cache_folder", lambda: tmp_path)
    operator = Operator(shape_of_sums(weighed=False))
    operator.run([(0, f"k{n}", n, 1) for n in range(5000)], 0)
    rows = operator.run([(0, "k77", 1, 1), (0, "new", 1, 1)], 0)
    assert sorted((row["_k0"], row[WEIGHT], row["sum(x)"]) for row in rows) == [
        ("k77", -1, 77),
        ("k77", 1, 78),
        ("new", 1, 1),
    ]
    (copy,) = tmp_path.glob("*.arrow")
    (entry, *_) = operator.files
    assert copy.stem == entry.sha256
    monkeypatch.setattr(state_cache, "_checked", set())
    copy.write_bytes(copy.read_bytes()[:-1] + b"?")
    with pytest.raises(ChecksumMismatch):
        operator.run([(0, "k78", 1, 1)], 0)
    assert operator.run([(0, "k78", 1, 1)], 0), "the bad copy is gone, the file is not"


def test_damage_in_the_store_is_reported_by_name() -> None:
    operator = Operator(shape_of_sums(weighed=False))
    operator.run([(0, "a", 1, 1)], 0)
    (entry,) = operator.files
    assert entry.origin
    key = layout.checkpoint_key(entry.origin.checkpoint_id, entry.path)
    operator.store.put(key, operator.store.read(key)[:-1])
    with pytest.raises(ChecksumMismatch):
        operator.run([(0, "a", 1, 1)], 0)


def test_a_copy_makes_room_for_newer_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(state_cache, "SMALL", 0)
    monkeypatch.setattr(state_cache, "MAX_BYTES", 1)
    monkeypatch.setattr(state_cache, "cache_folder", lambda: tmp_path)
    operator = Operator(shape_of_sums(weighed=False))
    for _ in range(3):
        operator.run([(0, "a", 1, 1)], 0)
    assert len([*tmp_path.glob("*.arrow")]) == 1
