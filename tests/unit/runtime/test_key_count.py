"""Two rows of one key are refused by name before anything is published."""

from __future__ import annotations

import hashlib
import random
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.errors import EpochTaken, GateFailed, SinkUnavailable
from laminar_dagster.core.ids import CheckpointId, EpochNumber, FileName, PipelineName, SinkId
from laminar_dagster.core.manifest import SinkEntry
from laminar_dagster.core.ports import HeldKeys
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import CountedKey, Pipeline
from laminar_dagster.sinks.sqlite.sink import SqliteSink
from laminar_dagster.testing.memory_pipeline import MemoryEngine
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.conditions import World
from tests.unit.runtime.test_sink_fit import encoded, entry

SINK = SinkId("s")
COUNTED = {SINK: CountedKey("v", ("k",), "sinks.sql:3")}


class ChangesEngine(MemoryEngine):
    """Stages a row of key 5 for a record 5, and takes it back for -5."""

    def _stage(
        self,
        attempt: CheckpointId,
        sink: SinkId,
        joined_at: EpochNumber,
        rows: list[tuple[int, int, int, int]],
    ) -> SinkEntry:
        values = [row[2] for row in rows]
        columns = {
            "k": pa.array([abs(each) for each in values], pa.int64()),
            "_weight": pa.array([1 if each > 0 else -1 for each in values], pa.int8()),
        }
        data = encoded(pa.table(columns))
        path = layout.staged_path(sink, FileName("rows.arrow"))
        self.store.put(layout.checkpoint_key(attempt, path), data)
        return SinkEntry(
            sink_id=sink,
            joined_at=joined_at,
            files=(entry(path, data, len(values)),),
            output_sha256=hashlib.sha256(data).hexdigest(),
        )


@dataclass
class Keys:
    """A pipeline that counts the keys of its table."""

    folder: Path
    world: World
    pipeline: Pipeline

    def put(self, *records: int) -> None:
        self.world.log.partitions[0].extend(records)

    def run(self, *records: int) -> None:
        self.put(*records)
        EpochRunner(self.pipeline).run()

    @property
    def rows(self) -> list[int]:
        with closing(sqlite3.connect(self.folder / "x.db")) as database:
            return [key for (key,) in database.execute("SELECT k FROM t ORDER BY k")]


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    world, store = World(), MemoryStore()
    sink = SqliteSink(
        SINK, PipelineName("memory"), tmp_path / "x.db", "t", mode="upsert", key=("k",)
    )
    made = world.pipeline(store, sinks=(sink,), max_records=None)
    engine = ChangesEngine(store, world.log)
    return Keys(tmp_path, world, replace(made, engine=engine, counted=COUNTED))


def refusal(keys: Keys) -> str:
    with pytest.raises(GateFailed) as caught:
        EpochRunner(keys.pipeline).run()
    error = caught.value
    assert (error.check, error.subject) == ("key_not_unique", "s")
    assert keys.pipeline.checkpoints.prepared(EpochNumber(error.epoch)) is None
    return error.reason


def test_two_rows_of_one_epoch(keys: Keys) -> None:
    keys.put(7, 3, 7, 4, 4, 4)
    assert refusal(keys) == (
        "s: rows of view `v` would overwrite each other, because `k` is not a key of them: 2 keys,"
        " such as k=7, have more than one row in this epoch; name more columns in the key"
        " (sinks.sql:3), or choose one row of each in the view: ROW_NUMBER() OVER (PARTITION BY k"
        " ORDER BY … DESC) = 1"
    )


def test_a_row_of_a_key_that_the_sink_holds(keys: Keys) -> None:
    keys.run(1, 2, 3)
    keys.put(4, 2)
    assert "the key k=2 has a row already, which is not taken back before" in refusal(keys)
    assert keys.rows == [1, 2, 3]


def test_rows_that_take_the_place_of_those_that_go(keys: Keys) -> None:
    keys.run(1, 2)
    keys.run(-2, 2, -1)
    keys.run(1, 5, -5)
    keys.run(-1, 5)
    assert keys.rows == [2, 5]
    keys.put(-2, 2, 2)
    assert "the key k=2 has more than one row in this epoch" in refusal(keys)


def test_keys_that_change_places_would_leave_neither(keys: Keys) -> None:
    """The sink takes rows in their order: what is taken back last would be gone."""
    keys.run(1, 2)
    keys.put(-1, 2, -2, 1)
    assert "the key k=2 has a row already" in refusal(keys)


def test_without_a_word_nothing_is_counted(keys: Keys) -> None:
    keys.pipeline = replace(keys.pipeline, counted={})
    keys.run(1, 1)
    keys.run(1)
    assert keys.rows == [1]


def test_a_sink_that_is_behind_counts_with_what_it_will_hold(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys.run(1, 2)
    keys.put(-1, 3)

    def away(*_: object) -> None:
        raise SinkUnavailable(SINK, "away")

    with monkeypatch.context() as patched:
        patched.setattr(SqliteSink, "commit", away)
        with pytest.raises(SinkUnavailable):
            EpochRunner(keys.pipeline).run(EpochNumber(2))
    keys.put(1, 3)
    with pytest.raises(GateFailed, match="the key k=3 has a row already"):
        EpochRunner(keys.pipeline).prepare(EpochNumber(3))
    assert keys.rows == [1, 2]


def test_a_sink_that_cannot_be_searched_holds_the_epoch_back(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys.run(1)

    def away(*_: object) -> HeldKeys:
        raise SinkUnavailable(SINK, "away")

    keys.put(2)
    with monkeypatch.context() as patched:
        patched.setattr(SqliteSink, "held_keys", away)
        with pytest.raises(SinkUnavailable):
            EpochRunner(keys.pipeline).run()
    assert keys.pipeline.checkpoints.prepared(EpochNumber(2)) is None
    keys.run()
    assert keys.rows == [1, 2]


def test_an_attempt_that_lost_does_not_take_the_winners_rows_for_others(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While this process counts, another one commits the same epoch."""
    keys.run(1)
    keys.put(2)
    search = SqliteSink.held_keys
    left = [1]

    def late(sink: SqliteSink, schema: pa.Schema, wanted: pa.Table) -> HeldKeys:
        if left:
            left.pop()
            EpochRunner(keys.pipeline).run()
        return search(sink, schema, wanted)

    monkeypatch.setattr(SqliteSink, "held_keys", late)
    with pytest.raises(EpochTaken):
        EpochRunner(replace(keys.pipeline)).run(EpochNumber(2))
    assert keys.rows == [1, 2]


@pytest.mark.parametrize("seed", range(12))
def test_the_table_is_the_dictionary_or_the_epoch_is_refused(keys: Keys, seed: int) -> None:
    chance = random.Random(seed)
    rows: Counter[int] = Counter()
    for _ in range(12):
        records = [chance.choice([each, -each]) for each in chance.choices(range(1, 9), k=3)]
        after = rows.copy()
        records = [each for each in records if each > 0 or rows[-each] > 0]
        records = [
            *dict.fromkeys(each for each in records if each < 0),
            *(each for each in records if each > 0),
        ]
        for each in records:
            after[abs(each)] += 1 if each > 0 else -1
        if not records:
            continue
        keys.put(*records)
        if max(after.values()) > 1:
            refusal(keys)
            return
        EpochRunner(keys.pipeline).run()
        rows = +after
        assert keys.rows == sorted(rows)
