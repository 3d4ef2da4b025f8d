"""Plans and definitions that are lost, damaged or misplaced."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from laminar_dagster.core import layout
from laminar_dagster.core.errors import (
    CannotRebuild,
    MalformedDocument,
    ObjectMissing,
)
from laminar_dagster.core.ids import (
    EpochNumber,
)
from laminar_dagster.core.offsets import CustomIdentity, Gap
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.recovery import RecoveryManager
from laminar_dagster.testing.memory_pipeline import MemoryEngine, MemorySource
from tests.unit.runtime.recovery.ruins import (
    Ruin,
    definition,
)


def test_without_the_last_plan_no_epoch_is_planned(ruin: Ruin) -> None:
    """It pins what the sources are: without it, another one would be read in their place."""

    class Replaced(MemorySource):
        def identity(self) -> CustomIdentity:
            return CustomIdentity(source_type="memory", identity="another log")

    ruin.lose(layout.plan_key(EpochNumber(7)))
    ruin.arrive()
    pipeline = replace(ruin.pipeline(), sources=(Replaced(ruin.world.log),))
    with pytest.raises(ObjectMissing, match=r"7/plan\.json"):
        EpochRunner(pipeline).run()
    (repair,) = ruin.recover().repairs
    assert repair.damage.key == layout.plan_key(EpochNumber(7))
    assert repair.origin == "from the record of the winner"
    ruin.lose(layout.plan_key(EpochNumber(7)), layout.prepared_key(EpochNumber(7)))
    before = ruin.objects()
    with pytest.raises(CannotRebuild, match="what the sources were"):
        ruin.recover()
    assert ruin.objects() == before


def test_a_plan_in_anothers_place_is_noticed(ruin: Ruin) -> None:
    one, two = layout.plan_key(EpochNumber(6)), layout.plan_key(EpochNumber(7))
    ruin.store.put(two, ruin.store.read(one))
    ruin.arrive()
    with pytest.raises(MalformedDocument, match="the one of epoch 6"):
        EpochRunner(ruin.pipeline()).run()


def test_a_lost_plan_of_the_history_is_reported(ruin: Ruin) -> None:
    key, record = layout.plan_key(EpochNumber(5)), layout.prepared_key(EpochNumber(5))
    ruin.lose(key, record)
    result = ruin.recover()
    assert [each.key for each in result.not_repaired] == [key]
    assert [each.damage.key for each in result.repairs] == [record]
    ruin.run_on()
    ruin.check_answer()


def test_a_gap_that_was_accepted_is_told_for_ever() -> None:
    """It is in the plan and in every manifest since, and a recovery does not lose it."""
    ruin = Ruin()

    class Gapped(MemorySource):
        def plan(self, previous, start, limits, clock):  # type: ignore[no-untyped-def]
            made = super().plan(previous, start, limits, clock)
            if previous is None:
                gap = Gap(lost=made.ranges[0], reason="retention expired; on_gap: earliest")
                return structs.replace(made, gaps=(gap,))
            return made

    class Telling(MemoryEngine):
        def compute(self, plan, parent, attempt):  # type: ignore[no-untyped-def]
            output = super().compute(plan, parent, attempt)
            before = parent.sources[0].gaps if parent else ()
            entry = structs.replace(output.sources[0], gaps=(*before, *plan.sources[0].gaps))
            return replace(output, sources=(entry,))

    pipeline = replace(
        ruin.pipeline(),
        sources=(Gapped(ruin.world.log),),
        engine=Telling(ruin.store, ruin.world.log),
    )
    for _ in range(3):
        ruin.arrive()
        EpochRunner(pipeline).run()
    gaps = ruin.manifest(3).sources[0].gaps
    assert len(gaps) == 1
    ruin.lose(layout.manifest_key(ruin.manifest(3).checkpoint_id), ruin.state_key(3))
    RecoveryManager(pipeline).recover()
    assert ruin.manifest(3).sources[0].gaps == gaps
    ruin.arrive()
    EpochRunner(pipeline).run()
    assert ruin.manifest(4).sources[0].gaps == gaps
    planned = ruin.checkpoints.plan(EpochNumber(1))
    assert planned and planned.sources[0].gaps == gaps


def test_what_stands_behind_the_fingerprint_is_put_back() -> None:
    ruin = Ruin()
    pipeline = replace(ruin.pipeline(), definition=definition("totals"))
    ruin.arrive()
    EpochRunner(pipeline).run()
    key = layout.definition_key("code")
    before = ruin.objects()
    for damage in (ruin.lose, ruin.flip):
        damage(key)
        (repair,) = RecoveryManager(pipeline).recover().repairs
        assert repair.damage.key == key
        assert ruin.objects() == before
    ruin.flip(key)
    changed = replace(
        pipeline,
        fingerprint="other",
        definition=structs.replace(definition("totals"), fingerprint="other"),
    )
    with pytest.raises(CannotRebuild, match="the pipeline has changed since"):
        RecoveryManager(changed).recover()
