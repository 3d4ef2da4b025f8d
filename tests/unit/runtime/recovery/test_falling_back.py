"""Damage in the newest checkpoint, and what older ones are good for."""

from __future__ import annotations

import pytest

from laminar_dagster.core.errors import (
    AllCheckpointsCorrupt,
    EpochNotCommitted,
    NoCheckpointAvailable,
)
from laminar_dagster.core.ids import (
    EpochNumber,
)
from laminar_dagster.core.recovery import (
    RecoveryConfig,
    RepairKind,
)
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.recovery import RecoveryManager
from tests.unit.runtime.recovery.ruins import (
    LetteredEngine,
    Ruin,
    restored,
    totals_of,
)


def test_recovery_with_corrupt_snapshot(ruin: Ruin) -> None:
    key = ruin.state_key(7)
    before = ruin.objects()
    ruin.flip(key)
    result = ruin.recover()
    (repair,) = result.repairs
    assert (repair.kind, repair.damage.key) == (RepairKind.REBUILT, key)
    assert repair.damage.problem.kind == "checksum_mismatch"
    assert repair.origin == f"epoch {repair.damage.epoch} run again"
    assert result.fallback_attempts == 7 - (int(repair.damage.epoch or 0) - 1)
    assert ruin.objects() == before, "the same bytes under the same keys, and nothing else"
    assert restored(ruin).totals == totals_of(ruin)


def test_recovery_from_second_oldest_checkpoint(ruin: Ruin) -> None:
    """The newest checkpoint's own files are lost: it is made again from the one before."""
    manifest = ruin.manifest(7)
    own = [key for key, _, _ in manifest.files() if manifest.checkpoint_id in key]
    assert len(own) > 3
    ruin.lose(*own)
    pipeline = ruin.pipeline()
    result = RecoveryManager(pipeline).recover()
    assert result.fallback_attempts == 1
    assert isinstance(pipeline.engine, LetteredEngine)
    assert pipeline.engine.computed == [7]
    assert {each.damage.key for each in result.repairs} >= set(own) - {
        key for key in own if "staged" in key
    }
    ruin.run_on()
    ruin.check_answer()


def test_all_checkpoints_corrupt() -> None:
    """What is needed was written by an epoch that is further back than is allowed."""
    ruin = Ruin().run(6)
    oldest = min(
        (ruin.manifest(6).origin_of(part).epoch, part.path)
        for part in ruin.manifest(6).operators[0].partitions
    )
    key = ruin.key(oldest[0], oldest[1])
    ruin.lose(key)
    back = 6 - (oldest[0] - 1)
    assert back == 3
    before = ruin.objects()
    with pytest.raises(AllCheckpointsCorrupt) as caught:
        ruin.recover(RecoveryConfig(max_fallback_attempts=back - 1))
    assert caught.value.attempted == back
    assert key in caught.value.last_reason
    assert f"{back} before the newest" in caught.value.last_reason
    assert ruin.objects() == before
    assert ruin.recover(RecoveryConfig(max_fallback_attempts=back)).fallback_attempts == back


def test_a_snapshot_many_epochs_back_is_mended_without_an_option() -> None:
    """A partition to which nothing comes keeps the file of the last epoch that brought it some."""
    ruin = Ruin().run(1)
    before = ruin.pipeline()
    for epoch in range(2, 9):
        ruin.world.log.partitions[0].append(epoch)
        EpochRunner(before).run(EpochNumber(epoch))
    key = ruin.state_key(8, partition=1)
    assert key == ruin.state_key(1, partition=1)
    ruin.flip(key)
    result = ruin.recover()
    assert [each.damage.key for each in result.repairs] == [key]
    assert result.fallback_attempts == 8
    assert restored(ruin).totals == totals_of(ruin)


def test_bases_are_mended_before_what_builds_on_them(ruin: Ruin) -> None:
    """A file of the checkpoint that a re-run needs is lost as well."""
    keys = [ruin.state_key(7, 1), ruin.state_key(6, 1), ruin.state_key(5, 1)]
    assert len(set(keys)) == 3
    for key in keys:
        ruin.flip(key)
    pipeline = ruin.pipeline()
    RecoveryManager(pipeline).recover()
    assert isinstance(pipeline.engine, LetteredEngine)
    assert pipeline.engine.computed == sorted(pipeline.engine.computed)
    assert len(pipeline.engine.computed) >= 2
    assert restored(ruin).totals == totals_of(ruin)


def test_no_checkpoint_available() -> None:
    with pytest.raises(NoCheckpointAvailable):
        Ruin().recover()


def test_an_older_checkpoint_can_be_restored(ruin: Ruin) -> None:
    state = restored(ruin, epoch=EpochNumber(5))
    wanted = {
        partition: sum(values[:10]) for partition, values in enumerate(ruin.world.log.partitions)
    }
    assert state.totals == wanted
    for epoch in (8, 99):
        with pytest.raises(EpochNotCommitted):
            ruin.recover(epoch=EpochNumber(epoch))
    ruin.run_on()
    ruin.check_answer()
