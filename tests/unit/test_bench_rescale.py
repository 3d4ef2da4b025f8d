"""The benchmark of a rescale, on a state of a few rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from bench import __main__ as bench
from bench.rescale import BENCHMARK, copy_raw, store_state
from laminar_dagster.spark.arrow_files import file_table
from laminar_dagster.spark.rescale import ChainStep
from laminar_dagster.stores.local import LocalStore


def test_the_state_has_every_row_once_in_files_that_a_rescale_reads(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    state = store_state(store, 100, 3)
    tables = [file_table(store.read(key)) for key in state.keys()]
    assert sum(table.num_rows for table in tables) == 100
    assert len(set(pa.concat_tables(tables).column("_k0").to_pylist())) == 100
    assert state.size_bytes == sum(len(store.read(key)) for key in state.keys())
    step = ChainStep(state.step)
    places = pa.RecordBatch.from_pydict({"id": [0, 1, 2]})
    rows = pa.Table.from_batches(step([places]), step.schema)  # type: ignore[arg-type]
    moved = rows.column("_control").drop_null().to_pylist()
    assert len(moved) == 3
    assert rows.num_rows == 100 + len(moved)


def test_the_peer_copies_every_byte(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    state = store_state(store, 10, 2)
    (tmp_path / "copy").mkdir()
    copy_raw(store, state.keys(), tmp_path / "copy")
    copies = sorted((tmp_path / "copy").iterdir())
    assert [path.read_bytes() for path in copies] == [store.read(key) for key in state.keys()]


def test_it_is_one_of_the_engine() -> None:
    assert BENCHMARK in bench.GROUPS["engine"]
