"""Operators, sources and input that are not those of the checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pytest

from laminar_dagster.core.errors import (
    CannotRebuild,
    NotReproduced,
    OperatorMismatch,
    RetentionExpired,
    SourceReplaced,
    UnknownSource,
)
from laminar_dagster.core.ids import (
    SourceId,
)
from laminar_dagster.core.offsets import SourcePosition
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.recovery import (
    RecoveryConfig,
)
from laminar_dagster.runtime.recovery import RecoveryManager
from laminar_dagster.testing.memory_pipeline import MemorySource
from tests.unit.runtime.recovery.ruins import (
    Forgetful,
    Ruin,
    definition,
)


def test_other_operators_are_refused_unless_allowed(ruin: Ruin) -> None:
    pipeline = replace(ruin.pipeline(), definition=definition("sums"))
    with pytest.raises(OperatorMismatch) as caught:
        RecoveryManager(pipeline).recover()
    assert caught.value.missing_in_current == ("totals",)
    config = RecoveryConfig(allow_operator_mismatch=True)
    result = RecoveryManager(pipeline, config).recover()
    assert result.epoch == 7
    same = replace(ruin.pipeline(), definition=definition("totals"))
    assert RecoveryManager(same).recover().epoch == 7


def test_a_source_that_is_gone_is_refused_unless_allowed(ruin: Ruin) -> None:
    other = MemorySource(ruin.world.log, source_id=SourceId("letters"))
    pipeline = replace(ruin.pipeline(), sources=(other,))
    with pytest.raises(UnknownSource, match="numbers"):
        RecoveryManager(pipeline).recover()
    RecoveryManager(pipeline, RecoveryConfig(allow_operator_mismatch=True)).recover()


class Expired(MemorySource):
    """No longer holds what it held, from some place on."""

    def check_seek(self, position: SourcePosition) -> None:
        raise RetentionExpired(self.source_id, "offset 14", "offset 20")


def test_recovery_kafka_retention_expired(ruin: Ruin) -> None:
    """Where reading would go on is gone: refused before anything is mended."""
    ruin.flip(ruin.state_key(7))
    before = ruin.objects()
    pipeline = replace(ruin.pipeline(), sources=(Expired(ruin.world.log),))
    with pytest.raises(RetentionExpired):
        RecoveryManager(pipeline).recover()
    assert ruin.objects() == before


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_lost_file_whose_input_is_gone_cannot_be_made_again(ruin: Ruin, dry_run: bool) -> None:
    key = ruin.state_key(7)
    ruin.lose(key)
    before = ruin.objects()
    pipeline = replace(ruin.pipeline(), sources=(Forgetful(ruin.world.log),))
    with pytest.raises(CannotRebuild) as caught:
        RecoveryManager(pipeline).recover(dry_run=dry_run)
    error = caught.value
    assert error.lost == key
    assert "no longer holds offset 0" in error.reason
    assert error.ranges[0].startswith("numbers numbers/0: offset ")
    assert error.ranges[0] in error.advice()
    assert ruin.objects() == before


def test_a_source_that_was_replaced_cannot_make_it_again(ruin: Ruin) -> None:
    class Other(MemorySource):
        def verify(self, plan: SourcePlan) -> None:
            raise SourceReplaced(self.source_id, "the log", "another log")

    ruin.lose(ruin.state_key(7))
    pipeline = replace(ruin.pipeline(), sources=(Other(ruin.world.log),))
    with pytest.raises(CannotRebuild, match="another log"):
        RecoveryManager(pipeline).recover()


def test_another_version_of_the_pipeline_cannot_make_it_again(ruin: Ruin) -> None:
    ruin.lose(ruin.state_key(7))
    with pytest.raises(CannotRebuild, match="another version of the pipeline"):
        RecoveryManager(ruin.pipeline(fingerprint="mended")).recover()


def test_input_that_changed_is_noticed_by_its_hash(ruin: Ruin) -> None:
    key = ruin.state_key(7)
    ruin.lose(key)
    before = ruin.objects()
    ruin.world.log.partitions[0][-1] += 1
    with pytest.raises(NotReproduced):
        ruin.recover()
    assert ruin.objects() == before
