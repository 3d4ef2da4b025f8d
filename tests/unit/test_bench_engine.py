"""What the benchmarks of the engine work out from what they saw."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs

from bench.checkpoint_overhead import ForgetfulStore
from bench.epoch_overhead import Marks, cut
from bench.samples import manifest
from bench.spark_watch import Process, ProcessorTime, Stage, parse_stat, processor_time, sum_up
from bench.state_growth import files_read
from laminar_dagster.core import layout
from laminar_dagster.core.errors import ObjectMissing
from laminar_dagster.core.ids import CheckpointId, FileName, OperatorId, PartitionId, SinkId
from laminar_dagster.core.manifest import CheckpointManifest, PartitionSnapshotEntry

TICKS = os.sysconf("SC_CLK_TCK")


# --- processor time -------------------------------------------------------------------------------


def test_a_name_in_proc_may_hold_brackets_and_spaces() -> None:
    numbers = " ".join(str(number) for number in (1, 1, 0, -1, 0, 0, 0, 0, 0))
    line = f"12 (a) b (c) S 7 {numbers} {3 * TICKS} {TICKS} {5 * TICKS} {2 * TICKS} 20 0"
    assert parse_stat(line) == Process(parent=7, name="a) b (c", own=4.0, ended_children=7.0)


def test_only_what_is_below_counts_and_ended_workers_do() -> None:
    processes = {
        1: Process(0, "init", 1000.0, 1000.0),
        10: Process(1, "python", 100.0, 100.0),
        11: Process(10, "java", 8.0, 50.0),
        12: Process(11, "python", 2.0, 3.0),
        13: Process(12, "python", 1.0, 0.0),
        20: Process(1, "java", 500.0, 0.0),
    }
    assert sum_up(processes, 10) == ProcessorTime(jvm=8.0, python=56.0)


def test_a_child_of_this_process_is_seen() -> None:
    before = processor_time()
    work = "import sys, time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout
        child.stdout.readline()
        used = processor_time().since(before)
        child.communicate(b"\n")
    assert used.python >= 0.25
    assert used.both >= used.python


# --- what is within Compute -----------------------------------------------------------------------


def stage(begun: float, ended: float) -> Stage:
    return Stage(begun, ended, tasks=2, run_seconds=1.0, shuffled_bytes=0)


def test_compute_is_cut_into_parts_that_add_up() -> None:
    within = cut(2.0, Marks(100.0, 100.25), [stage(100.5, 101.0), stage(101.0, 101.5)])
    assert within.building == pytest.approx(0.25)
    assert within.planning == pytest.approx(0.25)
    assert within.stages == pytest.approx((0.5, 0.5))
    assert within.rest == pytest.approx(0.5)


def test_a_stage_that_seems_to_begin_too_early_makes_no_negative_planning() -> None:
    within = cut(1.0, Marks(100.0, 100.0009), [stage(100.0, 100.5)])
    assert within.planning == 0.0


def test_an_epoch_without_a_job_is_all_rest() -> None:
    within = cut(1.0, Marks(), [])
    assert (within.planning, within.stages, within.rest) == (0.0, (), 1.0)


# --- which state files were read ------------------------------------------------------------------


def entry(digest: str, first: int, last: int) -> PartitionSnapshotEntry:
    return PartitionSnapshotEntry(
        partition_id=PartitionId(0),
        path=f"operators/o/{digest}.delta",
        size_bytes=1,
        sha256=digest * 64,
        event_time=(first, last),
    )


def with_state(watermark: int | None, *entries: PartitionSnapshotEntry) -> CheckpointManifest:
    base = manifest(sources=1, operators=1)
    operator = structs.replace(base.operators[0], partitions=entries)
    return structs.replace(base, operators=(operator,), watermark=watermark)


@pytest.mark.parametrize(
    ("before", "watermark", "after", "read"),
    [
        ([entry("a", 50, 60)], 40, [entry("a", 50, 60)], 0),
        ([entry("a", 30, 60)], 40, [entry("a", 30, 60)], 1),
        ([entry("a", 30, 40)], 40, [], 1),
        ([entry("a", 50, 60), entry("b", 50, 60)], 40, [entry("c", 50, 60)], 2),
        ([entry("a", 50, 60)], None, [entry("a", 50, 60)], 0),
    ],
    ids=["open", "some windows close", "all windows close", "folded", "no watermark"],
)
def test_files_with_closing_windows_and_folded_files_are_read(
    before: list[PartitionSnapshotEntry],
    watermark: int | None,
    after: list[PartitionSnapshotEntry],
    read: int,
) -> None:
    assert files_read(with_state(None, *before), with_state(watermark, *after)) == read


# --- a store that keeps no state ------------------------------------------------------------------


def test_state_is_forgotten_and_output_is_kept(tmp_path: Path) -> None:
    store = pickle.loads(pickle.dumps(ForgetfulStore(tmp_path)))
    checkpoint = CheckpointId.from_parts(1_767_225_600_000, 2)
    state = layout.snapshot_path(OperatorId("operators"), PartitionId(0))
    output = layout.staged_path(SinkId("operators"), FileName("operators-1.arrow"))
    for path in (state, output):
        store.put(layout.checkpoint_key(checkpoint, path), b"data")
    with pytest.raises(ObjectMissing):
        store.read(layout.checkpoint_key(checkpoint, state))
    assert store.read(layout.checkpoint_key(checkpoint, output)) == b"data"
