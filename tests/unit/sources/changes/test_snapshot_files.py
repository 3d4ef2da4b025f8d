"""Files of a snapshot: rows and bad rows come back as they went in, from any row to any other."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from laminar_dagster.core.errors import ChecksumMismatch, SeekFailed
from laminar_dagster.core.ids import FileName, SourceId
from laminar_dagster.core.offsets import PostgresIdentity, PostgresPosition
from laminar_dagster.core.snapshot import SourceSnapshot
from laminar_dagster.runtime.snapshots import StoredSnapshots, file_key
from laminar_dagster.sources.changes.snapshot_files import file_bytes, read_snapshot
from laminar_dagster.sources.decoded import BadRecord, PlacedChunk
from laminar_dagster.testing.memory_store import MemoryStore

SOURCE = SourceId("orders")
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("_weight", pa.int8())])
IDENTITY = PostgresIdentity(system_id="1", timeline=1, slot="s")


def batch(*ids: int) -> pa.RecordBatch:
    columns = [pa.array(ids, pa.int64()), pa.array([1] * len(ids), pa.int8())]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def keeper(store: MemoryStore) -> StoredSnapshots:
    return StoredSnapshots(store, SOURCE)


@pytest.fixture
def snapshot(keeper: StoredSnapshots) -> SourceSnapshot:
    """Rows 0 to 6, of which 2 is bad, in two files with an empty one between them."""
    draft = keeper.begin(1)
    bad = [BadRecord(0, b"\x00broken", "no number")]
    files = (
        keeper.write(draft, FileName("a.arrow"), 4, file_bytes(batch(0, 1, 3), bad, [2])),
        keeper.write(draft, FileName("b.arrow"), 0, file_bytes(batch(), [], [])),
        keeper.write(draft, FileName("c.arrow"), 3, file_bytes(batch(4, 5, 6), [], [])),
    )
    return keeper.finish(draft, PostgresPosition(lsn=7, slot="s"), IDENTITY, files)


def chunks(
    keeper: StoredSnapshots, snapshot: SourceSnapshot, start: int, end: int
) -> list[PlacedChunk]:
    return [*read_snapshot("orders", SCHEMA, keeper, snapshot, start, end)]


def test_every_range_holds_its_rows(keeper: StoredSnapshots, snapshot: SourceSnapshot) -> None:
    for start in range(8):
        for end in range(start, 8):
            found = chunks(keeper, snapshot, start, end)
            rows = [row for each in found for row in each.rows.column("id").to_pylist()]
            bad = [place for each in found for place in each.bad.column("position").to_pylist()]
            assert rows == [each for each in range(start, end) if each != 2]
            assert rows == [place for each in found for place in each.positions.to_pylist()]
            assert bad == [each for each in range(start, end) if each == 2]
            assert sum(each.records for each in found) == end - start


def test_a_bad_row_keeps_its_bytes_and_its_reason(
    keeper: StoredSnapshots, snapshot: SourceSnapshot
) -> None:
    (chunk,) = chunks(keeper, snapshot, 2, 3)
    (letter,) = chunk.bad.to_pylist()
    assert chunk.set_aside is None, "a mirror would lack the row"
    assert (letter["raw"], letter["reason"]) == (b"\x00broken", "no number")
    assert (letter["partition"], letter["is_whole"]) == ("snapshot 1", True)


def test_a_keeper_travels_to_the_executors(
    keeper: StoredSnapshots, snapshot: SourceSnapshot
) -> None:
    other: StoredSnapshots = pickle.loads(pickle.dumps(keeper))
    assert other.source_id == keeper.source_id


def test_a_column_that_was_not_copied_is_named(
    keeper: StoredSnapshots, snapshot: SourceSnapshot
) -> None:
    wanted = SCHEMA.append(pa.field("price", pa.float64()))
    with pytest.raises(SeekFailed, match="without the column `price`"):
        list(read_snapshot("orders", wanted, keeper, snapshot, 0, 7))


def test_another_type_is_named(keeper: StoredSnapshots, snapshot: SourceSnapshot) -> None:
    wanted = pa.schema([pa.field("id", pa.list_(pa.int64())), SCHEMA.field("_weight")])
    with pytest.raises(SeekFailed, match="with other types"):
        list(read_snapshot("orders", wanted, keeper, snapshot, 0, 7))


def test_a_changed_file_is_noticed(
    store: MemoryStore, keeper: StoredSnapshots, snapshot: SourceSnapshot
) -> None:
    key = file_key(snapshot, snapshot.files[0])
    store.put(key, store.read(key)[:-1] + b"x")
    with pytest.raises(ChecksumMismatch):
        chunks(keeper, snapshot, 0, 1)
