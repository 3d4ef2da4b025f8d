"""How often, how long, and what is told meanwhile."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.errors import (
    RecoveryTimeout,
)
from laminar_dagster.core.ports import (
    EpochOutput,
    VersionedObject,
)
from laminar_dagster.core.recovery import (
    RecoveryConfig,
    RecoveryPhase,
    RecoveryProgress,
)
from laminar_dagster.runtime.clock import SystemClock
from laminar_dagster.runtime.recovery import RecoveryManager
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.recovery.ruins import (
    LetteredEngine,
    Ruin,
    restored,
    totals_of,
)


def test_recovery_idempotent(ruin: Ruin) -> None:
    ruin.flip(ruin.state_key(7))
    ruin.lose(layout.LATEST)
    first = restored(ruin)
    after = ruin.objects()
    second = restored(ruin)
    assert first.totals == second.totals == totals_of(ruin)
    assert ruin.objects() == after
    assert ruin.recover().repairs == ()


def test_a_dry_run_changes_nothing_and_says_what_would_be_done(ruin: Ruin) -> None:
    key = ruin.state_key(7)
    ruin.lose(key, layout.LATEST)
    before = ruin.objects()
    pipeline = ruin.pipeline()
    told = RecoveryManager(pipeline).recover(dry_run=True)
    assert told.is_dry_run
    assert ruin.objects() == before
    assert isinstance(pipeline.engine, LetteredEngine)
    assert not hasattr(pipeline.engine, "computed")
    done = ruin.recover()
    assert [each.damage.key for each in told.repairs] == [each.damage.key for each in done.repairs]
    assert told.fallback_attempts == done.fallback_attempts


def test_recovery_progress_reporting(ruin: Ruin) -> None:
    ruin.flip(ruin.state_key(7))
    told: list[RecoveryProgress] = []
    config = RecoveryConfig(progress_report_interval=0.0)
    RecoveryManager(ruin.pipeline(), config).recover(progress=told.append)
    assert told[0].phase is RecoveryPhase.READING_MANIFEST
    assert told[-1].phase is RecoveryPhase.COMPLETE
    assert (told[0].progress, told[-1].progress) == (0.0, 1.0)
    assert told[-1].estimated_remaining == 0.0
    parts = [each.progress for each in told]
    assert parts == sorted(parts)
    read = [each.bytes_downloaded for each in told]
    assert read == sorted(read)
    assert RecoveryPhase.REBUILDING in {each.phase for each in told}
    assert any(
        each.estimated_remaining is not None
        for each in told
        if each.phase is RecoveryPhase.DOWNLOADING_SNAPSHOTS
    )
    order = list(dict.fromkeys(each.phase for each in told))
    assert order == [phase for phase in RecoveryPhase if phase in order]
    assert told[-1].total_operators == told[-1].operators_restored == 1


def test_progress_is_told_now_and_then(ruin: Ruin) -> None:
    """Each phase as it begins; within a phase, once in an interval. The clock stands still."""
    told: list[RecoveryProgress] = []
    RecoveryManager(ruin.pipeline()).recover(progress=told.append)
    phases = [each.phase for each in told]
    assert len(phases) == len(set(phases)) == 5


class Slow(MemoryStore):
    """Takes its time for the files of the state."""

    seconds = 5.0

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        if "/operators/" in key:
            time.sleep(self.seconds)
        return super().read(key, limit=limit)


def test_recovery_timeout(ruin: Ruin) -> None:
    store = Slow()
    store.seconds = 1.0
    for key, data in ruin.objects().items():
        store.put(key, data)
    pipeline = replace(ruin.pipeline(store), clock=SystemClock())
    begun = time.monotonic()
    with pytest.raises(RecoveryTimeout) as caught:
        RecoveryManager(pipeline, RecoveryConfig(recovery_timeout=0.2)).recover()
    assert time.monotonic() - begun < 0.9, "nobody waits for the reads that are under way"
    assert caught.value.seconds == 0.2


@pytest.mark.parametrize("kind", ["plan.json", "attempt.json"])
def test_records_take_time_as_well(ruin: Ruin, kind: str) -> None:
    """Those that are discovered, and those that are looked at to be mended."""
    asked: list[str] = []

    class Distant(MemoryStore):
        def read_versioned(self, key: str, *, limit: int | None = None) -> VersionedObject | None:
            if key.endswith(kind):
                asked.append(key)
                ruin.world.clock.sleep(100)
            return super().read_versioned(key, limit=limit)

    store = Distant()
    for key, data in ruin.objects().items():
        store.put(key, data)
    with pytest.raises(RecoveryTimeout):
        RecoveryManager(ruin.pipeline(store), RecoveryConfig(recovery_timeout=150)).recover()
    assert len(asked) == 2


def test_no_epoch_is_run_again_after_the_time_is_up(ruin: Ruin) -> None:
    ruin.lose(ruin.state_key(7, 0), ruin.state_key(6, 1))
    pipeline = ruin.pipeline()
    engine = pipeline.engine
    assert isinstance(engine, LetteredEngine)
    usual = engine.compute

    def slow(*given: object) -> EpochOutput:
        ruin.world.clock.sleep(1000)
        return usual(*given)  # type: ignore[arg-type]

    engine.compute = slow  # type: ignore[method-assign,assignment]
    with pytest.raises(RecoveryTimeout):
        RecoveryManager(pipeline).recover()
    assert len(engine.computed) == 1
    assert ruin.recover().epoch == 7, "what was mended stays, and the rest is mended now"
