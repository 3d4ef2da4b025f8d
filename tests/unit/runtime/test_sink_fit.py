"""Rows that a sink cannot take are refused while the epoch can still be computed otherwise."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.errors import GateFailed
from laminar_dagster.core.ids import CheckpointId, EpochNumber, FileName, PipelineName, SinkId
from laminar_dagster.core.manifest import FileEntry, SinkEntry
from laminar_dagster.core.ports import StagedOutput
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.sinks.sqlite.sink import SqliteSink
from laminar_dagster.sinks.staged import staged_columns
from laminar_dagster.testing.memory_pipeline import MemoryEngine
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.conditions import World

SINK = SinkId("s")


@dataclass
class ArrowEngine(MemoryEngine):
    """Stages the offsets that it has read, as keys; one of them is lost in a query's mistake."""

    lost: int | None = None

    def _stage(
        self,
        attempt: CheckpointId,
        sink: SinkId,
        joined_at: EpochNumber,
        rows: list[tuple[int, int, int, int]],
    ) -> SinkEntry:
        keys = [None if row[1] == self.lost else row[1] for row in rows if row[0] == 0]
        data = encoded(pa.table({"k": pa.array(keys, pa.int64())}))
        path = layout.staged_path(sink, FileName("rows.arrow"))
        self.store.put(layout.checkpoint_key(attempt, path), data)
        return SinkEntry(
            sink_id=sink,
            joined_at=joined_at,
            files=(entry(path, data, len(keys)),),
            output_sha256=hashlib.sha256(data).hexdigest(),
        )


def encoded(table: pa.Table) -> bytes:
    made = io.BytesIO()
    with pa.ipc.new_file(made, table.schema) as writer:
        writer.write_table(table)
    return made.getvalue()


def entry(path: str, data: bytes, rows: int) -> FileEntry:
    digest = hashlib.sha256(data).hexdigest()
    return FileEntry(path=path, size_bytes=len(data), sha256=digest, rows=rows)


def test_a_null_key_is_refused_before_the_commit_point_and_a_mended_query_goes_on(
    tmp_path: Path,
) -> None:
    world = World()
    world.log.partitions[0].extend([1, 2, 3])
    store = MemoryStore()
    sink = SqliteSink(
        SINK, PipelineName("memory"), tmp_path / "x.db", "t", mode="upsert", key=("k",)
    )
    made = world.pipeline(store, sinks=(sink,))
    wrong = replace(made, engine=ArrowEngine(store, world.log, lost=0))
    for _ in range(2):
        with pytest.raises(GateFailed, match="`k` is null in 1 rows") as caught:
            EpochRunner(wrong).run()
        assert (caught.value.check, caught.value.subject) == ("sink fit", "s")
    assert made.checkpoints.prepared(EpochNumber(1)) is None
    planned = made.checkpoints.plan(EpochNumber(1))
    mended = replace(made, engine=ArrowEngine(store, world.log))
    assert EpochRunner(mended).run().epoch == 1
    assert sink.ledger() == 1
    assert made.checkpoints.plan(EpochNumber(1)) == planned


def test_of_a_large_file_only_the_columns_that_are_asked_for_are_read() -> None:
    count = 300_000
    table = pa.table(
        {"k": pa.array(range(count), pa.int32()), "text": pa.array(["x" * 40] * count)}
    )
    data = encoded(table)
    file = entry("staged/s/a", data, count)
    read = 0

    class Counted(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            nonlocal read
            found = super().read(size)
            read += len(found)
            return found

    def whole(_file: FileEntry) -> bytes:
        raise AssertionError("the file is large")

    staged = StagedOutput(
        SinkEntry(sink_id=SINK, joined_at=EpochNumber(1), files=(file,), output_sha256="0" * 64),
        whole,
        open=lambda _file: Counted(data),
    )
    (found,) = staged_columns(staged, lambda _schema: ["k"])
    assert found.equals(table.select(["k"]))
    assert read < 2 * found.nbytes
    assert len(data) > 5 * found.nbytes
