"""Epochs that have no winner yet, or lost the record of it."""

from __future__ import annotations

import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.document import encode
from laminar_dagster.core.errors import (
    CannotRebuild,
    ChecksumMismatch,
    FencedError,
    LaminarError,
    LedgerMismatch,
    ObjectExists,
    ObjectMissing,
)
from laminar_dagster.core.ids import (
    EpochNumber,
)
from laminar_dagster.core.ports import (
    EpochOutput,
)
from laminar_dagster.core.protocol import Compute, WriteManifest
from laminar_dagster.core.recovery import (
    RepairKind,
)
from laminar_dagster.runtime import steps
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.recovery import RecoveryManager
from tests.unit.runtime.recovery.ruins import (
    LetteredEngine,
    Ruin,
)


def test_an_epoch_that_is_prepared_is_left_to_the_next_run(ruin: Ruin) -> None:
    ruin.arrive()
    EpochRunner(ruin.pipeline()).prepare(EpochNumber(8))
    result = ruin.recover()
    assert (result.epoch, result.repairs) == (7, ())
    assert isinstance(result.unfinished[0].next_step, WriteManifest)


def test_files_of_an_epoch_that_is_only_prepared_are_mended(ruin: Ruin) -> None:
    ruin.arrive()
    EpochRunner(ruin.pipeline()).prepare(EpochNumber(8))
    before = ruin.objects()
    manifest = ruin.manifest(8)
    own = [key for key, _, _ in manifest.files() if manifest.checkpoint_id in key]
    ruin.lose(*own)
    assert {each.damage.key for each in ruin.recover().repairs} == set(own)
    assert ruin.objects() == before
    ruin.run_on()
    ruin.check_answer()


def test_a_damaged_plan_of_which_nothing_came_is_made_anew(ruin: Ruin) -> None:
    ruin.arrive()
    steps.plan(ruin.pipeline(), EpochNumber(8))
    late = ruin.pipeline()
    attempt = steps.compute(late, EpochNumber(8))
    ruin.flip(layout.plan_key(EpochNumber(8)))
    with pytest.raises(LaminarError):
        EpochRunner(ruin.pipeline()).run()
    ruin.arrive()
    (repair,) = ruin.recover().repairs
    assert (repair.kind, repair.damage.epoch) == (RepairKind.MADE_ANEW, 8)
    # Whoever still has the old plan in mind must not win.
    with pytest.raises(ObjectExists) as caught:
        steps.prepare(late, attempt)
    assert isinstance(caught.value, FencedError)
    assert ruin.checkpoints.prepared(EpochNumber(8)) is None
    ruin.run_on()
    ruin.check_answer()


def test_a_plan_that_vanished_is_no_plan_to_win_with(ruin: Ruin) -> None:
    ruin.arrive()
    pipeline = ruin.pipeline()
    steps.plan(pipeline, EpochNumber(8))
    attempt = steps.compute(pipeline, EpochNumber(8))
    ruin.lose(layout.plan_key(EpochNumber(8)))
    with pytest.raises(ObjectMissing):
        steps.prepare(pipeline, attempt)


def test_both_records_of_the_newest_epoch_are_lost_and_no_sink_has_it(ruin: Ruin) -> None:
    ruin.arrive()
    EpochRunner(ruin.pipeline()).prepare(EpochNumber(8))
    ruin.lose(layout.prepared_key(EpochNumber(8)))
    result = ruin.recover()
    assert result.epoch == 7
    assert isinstance(result.unfinished[0].next_step, Compute)
    ruin.run_on()
    ruin.check_answer()


def test_a_damaged_record_of_a_winner_that_nobody_has_is_computed_again(ruin: Ruin) -> None:
    ruin.arrive()
    EpochRunner(ruin.pipeline()).prepare(EpochNumber(8))
    ruin.flip(layout.prepared_key(EpochNumber(8)))
    (repair,) = ruin.recover().repairs
    assert repair.kind is RepairKind.MADE_ANEW
    ruin.run_on()
    ruin.check_answer()


def test_whoever_prepared_the_lost_record_commits_the_one_that_was_made_anew(ruin: Ruin) -> None:
    """A daemon that was paused before the manifest, and still has its own record in mind."""
    ruin.arrive()
    late = ruin.pipeline()
    EpochRunner(late).prepare(EpochNumber(8))
    own = ruin.manifest(8).checkpoint_id
    ruin.flip(layout.prepared_key(EpochNumber(8)))
    before = ruin.objects()
    with pytest.raises(ChecksumMismatch):
        steps.write_manifest(late, EpochNumber(8))
    assert ruin.objects() == before
    ruin.recover()
    winner = ruin.manifest(8).checkpoint_id
    assert winner != own
    steps.write_manifest(late, EpochNumber(8))
    assert ruin.store.read(layout.manifest_key(winner))
    with pytest.raises(ObjectMissing):
        ruin.store.read(layout.manifest_key(own))
    ruin.run_on()
    ruin.check_answer()


@pytest.mark.parametrize("has_sink", [False, True])
def test_no_record_is_made_anew_over_one_that_was_committed_meanwhile(
    ruin: Ruin, has_sink: bool
) -> None:
    """The daemon had read its record just before it was damaged."""
    ruin.arrive()
    late = ruin.pipeline()
    EpochRunner(late).prepare(EpochNumber(8))
    record = ruin.checkpoints.winner(EpochNumber(8))
    ruin.flip(layout.prepared_key(EpochNumber(8)))
    damaged = ruin.store.read(layout.prepared_key(EpochNumber(8)))
    pipeline = ruin.pipeline()
    engine = pipeline.engine
    assert isinstance(engine, LetteredEngine)
    usual = engine.compute

    def overtaken(*given: object) -> EpochOutput:
        late.checkpoints.write_manifest(record)
        if has_sink:
            EpochRunner(late).run(EpochNumber(8))
            ruin.lose(layout.manifest_key(record.checkpoint_id))
        return usual(*given)  # type: ignore[arg-type]

    engine.compute = overtaken  # type: ignore[method-assign,assignment]
    with pytest.raises(LedgerMismatch if has_sink else ObjectExists):
        RecoveryManager(pipeline).recover()
    assert ruin.store.read(layout.prepared_key(EpochNumber(8))) == damaged
    if has_sink:
        ruin.store.put(layout.manifest_key(record.checkpoint_id), encode(record.manifest))
    ruin.recover()
    assert ruin.manifest(8) == record.manifest
    ruin.run_on()
    ruin.check_answer()


def test_both_records_are_lost_and_a_sink_has_the_epoch(ruin: Ruin) -> None:
    """What the sink has cannot be proved to be what would come out."""
    manifest = ruin.manifest(7)
    ruin.lose(
        layout.prepared_key(EpochNumber(7)),
        layout.manifest_key(manifest.checkpoint_id),
        layout.LATEST,
    )
    before = ruin.objects()
    with pytest.raises(LedgerMismatch) as caught:
        ruin.recover()
    assert (caught.value.epoch, caught.value.ledger) == (7, 7)
    assert "has lost what epoch 7 was" in caught.value.advice()
    with pytest.raises(LedgerMismatch):
        ruin.run_on()
    assert ruin.objects() == before
    # Nor is the epoch planned again when its plan is lost as well: it could read another range.
    ruin.lose(layout.plan_key(EpochNumber(7)))
    with pytest.raises(LedgerMismatch):
        ruin.run_on()
    with pytest.raises(LedgerMismatch):
        ruin.recover()


def test_an_epoch_below_the_newest_that_lost_both_records_is_no_obstacle(ruin: Ruin) -> None:
    lost = layout.prepared_key(EpochNumber(5)), layout.manifest_key(ruin.manifest(5).checkpoint_id)
    ruin.lose(layout.LATEST, *lost)
    result = ruin.recover()
    assert result.epoch == 7
    assert lost[0] in [each.key for each in result.not_repaired]
    ruin.run_on()
    ruin.check_answer()


def test_the_pointer_holds_where_its_own_epoch_lost_both_records() -> None:
    """Both sinks have it, and the epochs after it stand alone."""
    ruin = Ruin().run(6, behind=2)
    lost = layout.prepared_key(EpochNumber(4)), layout.manifest_key(ruin.manifest(4).checkpoint_id)
    ruin.lose(*lost)
    result = ruin.recover()
    assert result.epoch == 6
    assert [each.key for each in result.not_repaired] == [lost[0]]
    ruin.run_on()
    ruin.check_answer()


def test_a_line_with_a_hole_that_a_sink_still_needs_is_refused() -> None:
    ruin = Ruin().run(6, behind=3)
    winner = ruin.manifest(4).checkpoint_id
    ruin.lose(layout.prepared_key(EpochNumber(4)), layout.manifest_key(winner))
    before = ruin.objects()
    with pytest.raises(CannotRebuild, match="neither its manifest nor the record"):
        ruin.recover()
    # A run does not compute it again either: a later epoch builds on it.
    with pytest.raises(ObjectMissing, match=r"4/prepared\.json"):
        ruin.run_on()
    assert ruin.objects() == before
