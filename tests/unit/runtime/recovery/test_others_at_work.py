"""A recovery beside a running pipeline, another recovery, or its own killed self."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.errors import (
    RecoveryOvertaken,
)
from laminar_dagster.core.ids import (
    EpochNumber,
)
from laminar_dagster.core.offsets import SourcePosition
from laminar_dagster.core.ports import (
    ObjectStore,
)
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.recovery import RecoveryManager
from laminar_dagster.runtime.survey import survey
from laminar_dagster.stores.local import LocalStore
from laminar_dagster.testing.crash import Crash
from laminar_dagster.testing.faulty_store import Fault, FaultyStore
from laminar_dagster.testing.memory_pipeline import MemorySource
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.recovery.ruins import (
    Ruin,
)


def test_recovering_beside_a_running_pipeline_is_harmless() -> None:
    ruin = Ruin(retain=2).run(3)
    failures: list[BaseException] = []
    done = threading.Event()

    def run_epochs() -> None:
        try:
            pipeline = ruin.pipeline()
            for _ in range(40):
                ruin.arrive(1)
                EpochRunner(pipeline).run()
        except BaseException as error:
            failures.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=run_epochs)
    thread.start()
    recoveries = 0
    while not done.is_set() or recoveries == 0:
        # Without any input or output, the pipeline is at times faster than five looks.
        with contextlib.suppress(RecoveryOvertaken):
            ruin.recover()
        recoveries += 1
    thread.join()
    assert failures == []
    assert recoveries > 1
    result = ruin.recover()
    assert (result.epoch, result.repairs, result.not_repaired) == (43, (), ())
    ruin.run_on()
    ruin.check_answer()


@pytest.mark.parametrize("looks", [3, 100])
def test_nothing_is_mended_while_the_pipeline_goes_on(ruin: Ruin, looks: int) -> None:
    """What seems damaged may have been collected by then."""
    ruin.flip(ruin.key(7, "sources/numbers.offsets"))
    damaged = ruin.store.read(ruin.key(7, "sources/numbers.offsets"))
    seen: list[int] = []

    class Asked(MemorySource):
        def check_seek(self, position: SourcePosition) -> None:
            newest = survey(ruin.checkpoints).newest_epoch
            if newest not in seen and len(seen) < looks:
                seen.append(newest)
                ruin.arrive(1)
                ruin.run(1)

    ruin.retain = 30
    pipeline = replace(ruin.pipeline(), sources=(Asked(ruin.world.log),))
    if looks == 3:
        (repair,) = RecoveryManager(pipeline).recover().repairs
        assert repair.damage.key == ruin.key(7, "sources/numbers.offsets")
        return
    with pytest.raises(RecoveryOvertaken) as caught:
        RecoveryManager(pipeline).recover()
    assert caught.value.epoch >= 11
    assert ruin.store.read(ruin.key(7, "sources/numbers.offsets")) == damaged


def test_two_recoveries_at_once_mend_the_same(ruin: Ruin) -> None:
    before = ruin.objects()
    ruin.lose(ruin.state_key(7), layout.LATEST, layout.manifest_key(ruin.manifest(7).checkpoint_id))
    failures: list[BaseException] = []

    def recover() -> None:
        try:
            ruin.recover()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=recover) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert ruin.objects() == before


def test_a_recovery_that_was_killed_is_done_again(ruin: Ruin) -> None:
    """Whatever it had mended stays mended; the rest is mended by the next one."""
    before = ruin.objects()
    lost = ruin.state_key(7), layout.LATEST, layout.prepared_key(EpochNumber(7))
    for operation in range(1, 400, 3):
        broken = ruin.copy()
        broken.lose(*lost)
        store = FaultyStore(broken.store, {operation: Fault.CRASH_AFTER})
        try:
            RecoveryManager(broken.pipeline(store)).recover()
        except Crash:
            pass
        else:
            break
        broken.recover()
        # The folder of the run that died goes when the collector comes by.
        assert {key: broken.objects()[key] for key in before} == before
    else:
        raise AssertionError("it never came to its end")
    assert operation > 30


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path)


def test_exactly_once_end_to_end(store: ObjectStore) -> None:
    """Run, lose all kinds of objects, recover, run on: every record once, in both sinks."""
    ruin = Ruin()
    pipeline = ruin.pipeline(store)
    for _ in range(4):
        ruin.arrive()
        EpochRunner(pipeline).run()
    manifest = ruin_manifest = survey(pipeline.checkpoints).latest
    assert manifest and ruin_manifest
    whole = pipeline.checkpoints.parent(manifest.as_parent())
    store.delete([key for key, _, _ in whole.files() if whole.checkpoint_id in key])
    store.delete([layout.LATEST, layout.manifest_key(whole.checkpoint_id)])
    result = RecoveryManager(ruin.pipeline(store)).recover()
    assert result.epoch == 4
    for _ in range(2):
        ruin.arrive()
        EpochRunner(ruin.pipeline(store)).run()
    ruin.check_answer()
