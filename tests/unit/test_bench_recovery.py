"""The benchmarks of recovery, with next to no state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import recovery
from bench.measure import QUICK
from bench.surroundings import Surroundings
from laminar_dagster.runtime.recovery import RecoveryManager
from laminar_dagster.testing.memory_store import MemoryStore

TINY = replace(QUICK, rounds=2, scale=0.002)


def test_the_checkpoint_is_real_and_as_large_as_it_is_meant_to_be() -> None:
    made = recovery.write_checkpoint(MemoryStore(), 1_000_000, operators=3, sources=2)
    result = RecoveryManager(made.pipeline).recover()
    assert (result.repairs, result.not_repaired) == ((), ())
    assert len(result.operator_results) == 3
    assert len(result.source_offsets) == 2
    assert made.megabytes == pytest.approx(1.0, rel=0.25)
    assert result.bytes_downloaded == made.manifest.total_size_bytes
    assert all(each.rows for each in result.operator_results)


def test_state_is_cut_into_files() -> None:
    made = recovery.write_checkpoint(MemoryStore(), 9_000_000, operators=1)
    assert len(made.keys()) == 4


@pytest.mark.parametrize("name", ["recovery-local", "recovery-parts", "recovery-progress"])
def test_every_benchmark_runs(name: str) -> None:
    (benchmark,) = [each for each in recovery.BENCHMARKS if each.name == name]
    with Surroundings(TINY) as surroundings:
        figures = list(benchmark.run(surroundings))
    assert figures
    assert all(each.sample for each in figures)
    assert len({each.name for each in figures}) == len(figures)
