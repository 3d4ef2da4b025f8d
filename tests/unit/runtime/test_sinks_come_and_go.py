"""A plan is carried out by any version of the pipeline, also by one that has other sinks."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.errors import LedgerMismatch
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.upkeep import Rescale
from laminar_dagster.runtime import steps
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.recovery import RecoveryManager
from laminar_dagster.runtime.rerun import rerun
from laminar_dagster.runtime.upkeep import plan_upkeep
from laminar_dagster.testing.memory_pipeline import MemorySink, MemoryTable
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.conditions import World

SECOND = SinkId("second")


@dataclass
class Versions:
    """Two versions of a pipeline with one fingerprint: the newer has a second sink."""

    store: MemoryStore = field(default_factory=MemoryStore)
    world: World = field(default_factory=World)
    table: MemoryTable = field(default_factory=MemoryTable)

    def __post_init__(self) -> None:
        self.world.log.partitions = [list(range(30)), list(range(30))]

    def without(self) -> Pipeline:
        return self.world.pipeline(self.store, retain=6)

    def with_second(self) -> Pipeline:
        sinks = (MemorySink(self.world.table), MemorySink(self.table, SECOND))
        return self.world.pipeline(self.store, sinks=sinks, retain=6)

    def manifest(self, epoch: int) -> CheckpointManifest:
        return self.without().checkpoints.winner(EpochNumber(epoch)).manifest

    def names(self, epoch: int) -> list[str]:
        return [str(entry.sink_id) for entry in self.manifest(epoch).sinks]


@pytest.fixture
def versions() -> Versions:
    return Versions()


def test_a_new_sink_that_the_computing_version_lacks_joins_an_epoch_later(
    versions: Versions,
) -> None:
    """Planned by the newer version, computed by the older: nothing was staged for the sink."""
    EpochRunner(versions.without()).run()
    steps.plan(versions.with_second(), EpochNumber(2))
    EpochRunner(versions.without()).prepare(EpochNumber(2))
    for _ in range(3):
        EpochRunner(versions.with_second()).run()
    assert versions.names(2) == ["table"]
    assert versions.table.epochs == [3, 4]
    joined = {entry.sink_id: entry.joined_at for entry in versions.manifest(4).sinks}
    assert joined[SECOND] == 3
    assert versions.table.rows == [row for row in versions.world.table.rows if row[1] >= 6]


def test_a_sink_that_was_gone_while_an_epoch_was_computed_is_refused(versions: Versions) -> None:
    """It has the epochs before, and would miss this one."""
    EpochRunner(versions.with_second()).run()
    steps.plan(versions.with_second(), EpochNumber(2))
    EpochRunner(versions.without()).prepare(EpochNumber(2))
    back = EpochRunner(versions.with_second())
    back.run()
    assert versions.table.epochs == [1]
    with pytest.raises(LedgerMismatch, match="second"):
        back.run()
    assert versions.without().checkpoints.plan(EpochNumber(3)) is None


def test_a_sink_misses_nothing_by_upkeep_whoever_carries_it_out(versions: Versions) -> None:
    EpochRunner(versions.with_second()).run()
    epoch = plan_upkeep(versions.with_second(), Rescale(buckets_before=8, buckets_after=4))
    EpochRunner(versions.without()).prepare(epoch)
    for _ in range(2):
        EpochRunner(versions.with_second()).run()
    assert versions.table.epochs == [1, 2, 3]
    assert versions.table.rows == versions.world.table.rows


def test_an_epoch_is_verified_without_a_sink_that_is_gone(versions: Versions) -> None:
    both = EpochRunner(versions.with_second())
    for _ in range(3):
        both.run()
    full = rerun(versions.with_second(), EpochNumber(3))
    assert full.is_identical
    assert full.absent == ()
    found = rerun(versions.without(), EpochNumber(3))
    assert found.differences == ()
    assert found.absent == (SECOND,)
    assert 0 < found.compared < full.compared


def test_an_epoch_is_verified_by_a_version_with_a_sink_that_took_no_part(
    versions: Versions,
) -> None:
    EpochRunner(versions.without()).run()
    steps.plan(versions.with_second(), EpochNumber(2))
    EpochRunner(versions.without()).run()
    found = rerun(versions.with_second(), EpochNumber(2))
    assert found.differences == ()
    assert found.absent == ()


def test_state_is_made_again_without_a_sink_that_is_gone(versions: Versions) -> None:
    both = EpochRunner(versions.with_second())
    for _ in range(3):
        both.run()
    manifest = versions.manifest(3)
    part = manifest.operators[0].partitions[-1]
    key = layout.checkpoint_key(manifest.origin_of(part).checkpoint_id, part.path)
    before = versions.store.read(key)
    versions.store.delete([key])
    result = RecoveryManager(versions.without()).recover()
    assert [each.damage.key for each in result.repairs] == [key]
    assert versions.store.read(key) == before
