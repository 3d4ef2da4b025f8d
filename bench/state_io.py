"""How fast state is written and read back, beside the disk itself and beside plain Arrow."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.figures import Benchmark, Figure
from bench.measure import Sample, call, one_by_one
from bench.surroundings import Surroundings
from laminar_dagster.core import layout
from laminar_dagster.core.ids import OperatorId, PartitionId
from laminar_dagster.runtime.clock import mint_checkpoint_id

_NAME: Final = "state-io"
_ROWS: Final = 1_000_000
_WINDOWS: Final = 60
_MINUTE: Final = 60_000_000
_MEGABYTE: Final = 1e6
_KEY: Final = "_k0"


def state_io(surroundings: Surroundings) -> Iterator[Figure]:
    """One partition of a window operator's state."""
    # Imported here: other benchmarks need no Spark.
    from laminar_dagster.spark.aggregates import PartialColumn
    from laminar_dagster.spark.columns import END
    from laminar_dagster.spark.state_chain import Closing, StateChain
    from laminar_dagster.spark.state_files import StateFiles
    from laminar_dagster.spark.state_shape import KeyColumn, StateShape

    columns = (
        PartialColumn("_a0", None, "count", "sum", pa.int64()),
        PartialColumn("_a1", "_x1", "sum", "sum", pa.float64()),
    )
    key = KeyColumn(_KEY, "page", pa.string())
    shape = StateShape(OperatorId("clicks"), (key,), columns)
    rows = _rows(surroundings.effort.scaled(_ROWS), END, [column.name for column in columns])
    never, always = Closing(None, None), Closing(None, 2**62)
    store, folder = surroundings.local_store(), surroundings.folder()

    def write() -> StateChain:
        attempt = mint_checkpoint_id()
        home = StateFiles(store, attempt, shape.operator, PartitionId(0))
        chain = StateChain(home, shape, ())
        return StateChain(home, shape, chain.advance(rows, never))

    full = write()
    data = store.read(layout.checkpoint_key(full.home.attempt, full.files[0].path))
    size = len(data) / _MEGABYTE
    raw, plain = folder / "raw", folder / "plain"
    own, disk, arrow = one_by_one(
        surroundings.effort,
        call(write),
        call(lambda: _write_raw(raw, data)),
        call(lambda: _write_arrow(plain, rows)),
    )
    what = f"write the state of a partition: {rows.num_rows:,} rows, {size:.0f} MB"
    note = "canonical bytes, SHA-256, synced with their name"
    yield from _figures("write", what, size, (own, disk, arrow), ("write, fsync", note))
    own, disk, arrow = one_by_one(
        surroundings.effort,
        call(lambda: full.close(always)),
        call(raw.read_bytes),
        call(lambda: pa.ipc.open_file(pa.py_buffer(plain.read_bytes())).read_all()),
    )
    what = f"read the state of a partition: {rows.num_rows:,} rows, {size:.0f} MB"
    note = "SHA-256; all three from the cache of the system"
    yield from _figures("read", what, size, (own, disk, arrow), ("read", note))
    (digest,) = one_by_one(surroundings.effort, call(lambda: hashlib.sha256(data).digest()))
    yield Figure(f"{_NAME}/sha256", "SHA-256 of the same bytes", _rate(size, digest), unit="MB/s")


BENCHMARK: Final = Benchmark(_NAME, "state written and read, beside the disk", state_io)


def _rows(count: int, end: str, partials: list[str]) -> pa.Table:
    """Windows and keys as a state has them, sorted."""
    places = np.arange(count)
    keys = pc.utf8_lpad(pa.array(places % max(1, count // _WINDOWS)).cast(pa.string()), 8, "0")
    ends = places // max(1, count // _WINDOWS) * _MINUTE
    return pa.table(
        {
            end: pa.array(ends),
            _KEY: pc.binary_join_element_wise("/page/", keys, ""),
            partials[0]: pa.array(places % 17),
            partials[1]: pa.array(places * 0.25),
        }
    )


def _write_raw(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _write_arrow(path: Path, rows: pa.Table) -> None:
    with open(path, "wb") as file:
        with pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_table(rows)
        file.flush()
        os.fsync(file.fileno())


def _figures(
    name: str,
    what: str,
    size: float,
    samples: tuple[Sample, Sample, Sample],
    words: tuple[str, str],
) -> Iterator[Figure]:
    own, disk, arrow = (_rate(size, sample) for sample in samples)
    peer, note = words
    for suffix, words_of_peer, sample in (("", peer, disk), ("/arrow", "plain Arrow IPC", arrow)):
        yield Figure(
            f"{_NAME}/{name}{suffix}",
            what,
            own,
            unit="MB/s",
            peer=words_of_peer,
            peer_sample=sample,
            note=note,
        )


def _rate(size: float, seconds: Sample) -> Sample:
    return Sample(tuple(size / each for each in seconds.values))
