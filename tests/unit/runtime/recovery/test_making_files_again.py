"""Files that are lost are made again, on bases that may have to be made first."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from laminar_dagster.core import layout
from laminar_dagster.core.document import encode
from laminar_dagster.core.errors import (
    AllCheckpointsCorrupt,
    CannotRebuild,
    NotReproduced,
    StoreUnavailable,
)
from laminar_dagster.core.ids import (
    EpochNumber,
)
from laminar_dagster.core.ports import (
    EpochOutput,
)
from laminar_dagster.core.recovery import (
    RecoveryConfig,
)
from laminar_dagster.runtime.collector import Retention, collect
from laminar_dagster.runtime.recovery import RecoveryManager
from laminar_dagster.runtime.recovery.inspection import state_files
from laminar_dagster.testing.crash import Crash
from laminar_dagster.testing.faulty_store import Fault, FaultyStore
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.recovery.ruins import (
    Forgetful,
    LetteredEngine,
    Ruin,
)


@pytest.fixture
def collected() -> tuple[Ruin, str]:
    """One checkpoint is kept; its state has a file of an epoch whose base is collected."""
    ruin = Ruin(retain=1).run(6)
    manifest = ruin.manifest(6)
    old = next(part for part in manifest.operators[0].partitions if part.origin)
    assert manifest.origin_of(old).epoch == 4
    return ruin, layout.checkpoint_key(manifest.origin_of(old).checkpoint_id, old.path)


def test_a_base_that_was_collected_is_made_again_to_build_on(
    collected: tuple[Ruin, str],
) -> None:
    """The records of winners are kept for ever, and with them every plan and manifest."""
    ruin, key = collected
    before = ruin.objects()
    ruin.lose(key)
    pipeline = ruin.pipeline()
    result = RecoveryManager(pipeline).recover()
    assert isinstance(pipeline.engine, LetteredEngine)
    # Files of the first two are spared by the grace period; those of the third went at once.
    assert pipeline.engine.computed == [3, 4]
    assert [each.damage.key for each in result.repairs] == [key]
    assert ruin.objects() == before, "what was only built on is gone again"
    with pytest.raises(AllCheckpointsCorrupt, match="4 before the newest"):
        ruin.lose(key)
        ruin.recover(RecoveryConfig(max_fallback_attempts=3))
    assert ruin.objects() == {each: data for each, data in before.items() if each != key}


def test_what_was_built_on_stays_where_its_checkpoint_is_put_back() -> None:
    """Its manifest is lost as well, and comes back: it would name files that are not there."""
    ruin = Ruin().run(4)
    before = ruin.objects()
    only = {file.key for file in state_files(ruin.manifest(3))}
    only -= {file.key for file in state_files(ruin.manifest(4))}
    assert only
    manifest = layout.manifest_key(ruin.manifest(3).checkpoint_id)
    newest = ruin.manifest(4)
    own = [key for key, _, _ in newest.files() if newest.checkpoint_id in key]
    ruin.lose(manifest, *only, *own)
    ruin.recover()
    staged = {key for key in before if "/staged/" in key}
    assert {key for key in before if key not in ruin.objects()} <= staged
    assert ruin.recover(epoch=EpochNumber(3)).repairs == ()


def test_what_was_built_on_is_found_by_the_collector_after_a_crash(
    collected: tuple[Ruin, str],
) -> None:
    ruin, key = collected
    # The letters of collected checkpoints, and with them the records of their attempts, are gone.
    letters = {each for each in ruin.objects() if "/dead_letters/" in each}
    ruin.lose(*(letters - {each for each, _, _ in ruin.manifest(6).files()}))
    later = datetime.now(UTC) + timedelta(days=30)
    collect(ruin.checkpoints, Retention(checkpoints=1), later)
    before = set(ruin.objects())
    for operation in range(1, 400, 3):
        broken = ruin.copy()
        broken.lose(key)
        store = FaultyStore(broken.store, {operation: Fault.CRASH_AFTER})
        try:
            RecoveryManager(broken.pipeline(store)).recover()
        except Crash:
            pass
        else:
            break
        found = collect(broken.checkpoints, Retention(checkpoints=1), later)
        assert found.garbage.strangers == ()
        assert set(broken.objects()) <= before
    else:
        raise AssertionError("it never came to its end")
    assert operation > 30
    assert set(broken.objects()) == before


def test_what_another_recovery_built_on_may_go_meanwhile(collected: tuple[Ruin, str]) -> None:
    """It was there when this one decided, and was removed before it was read."""
    ruin, key = collected
    before = ruin.objects()
    ruin.lose(key)
    names = {file.key for file in state_files(ruin.manifest(6))}
    base = [file.key for file in state_files(ruin.manifest(3)) if file.key not in names]

    class Kept(MemoryStore):
        """Does not remove what was built on: the other recovery is not there yet."""

        def __getattribute__(self, name: str) -> object:
            if name == "delete":
                return lambda keys: ruin.store.delete([each for each in keys if each not in base])
            return getattr(ruin.store, name)

    RecoveryManager(ruin.pipeline(Kept())).recover()
    scaffold = [each for each in base if each not in before]
    assert scaffold
    ruin.lose(key)
    pipeline = ruin.pipeline()
    engine = pipeline.engine
    assert isinstance(engine, LetteredEngine)
    usual = engine.compute

    def removed(*given: object) -> EpochOutput:
        if not hasattr(engine, "computed"):
            ruin.lose(*scaffold)
        return usual(*given)  # type: ignore[arg-type]

    engine.compute = removed  # type: ignore[method-assign,assignment]
    result = RecoveryManager(pipeline).recover()
    assert engine.computed == [4, 3, 4]
    assert [each.damage.key for each in result.repairs] == [key]
    assert ruin.objects() == before


def test_what_was_built_on_goes_also_when_it_came_out_otherwise(
    collected: tuple[Ruin, str],
) -> None:
    ruin, key = collected
    ruin.lose(key)
    before = ruin.objects()
    # Read in the fourth epoch, on top of three that come out as they were.
    ruin.world.log.partitions[0][7] += 1
    with pytest.raises(NotReproduced) as caught:
        ruin.recover()
    assert caught.value.epoch == 4
    assert ruin.objects() == before


def test_a_record_of_an_older_release_has_no_plan(collected: tuple[Ruin, str]) -> None:
    ruin, key = collected
    ruin.lose(key)
    for epoch in range(1, 7):
        record = ruin.checkpoints.winner(EpochNumber(epoch))
        old = structs.replace(record, plan=None)
        ruin.store.put(layout.prepared_key(EpochNumber(epoch)), encode(old))
    with pytest.raises(CannotRebuild, match="the plan of the epoch is lost"):
        ruin.recover()


def test_output_that_every_sink_has_is_reported_and_left(ruin: Ruin) -> None:
    key = ruin.key(7, "staged/slow/rows.json")
    ruin.flip(key)
    pipeline = ruin.pipeline()
    result = RecoveryManager(pipeline).recover()
    assert [each.key for each in result.not_repaired] == [key]
    assert result.repairs == ()
    assert isinstance(pipeline.engine, LetteredEngine)
    assert not hasattr(pipeline.engine, "computed")


def test_dead_letters_are_made_again_where_that_can_be_done(ruin: Ruin) -> None:
    key = ruin.key(7, "dead_letters/numbers/bad-000000-0000.arrow")
    before = ruin.objects()
    ruin.lose(key)
    pipeline = replace(ruin.pipeline(), sources=(Forgetful(ruin.world.log),))
    result = RecoveryManager(pipeline).recover()
    assert [each.key for each in result.not_repaired] == [key], "missed, and no obstacle"
    assert [each.damage.key for each in ruin.recover().repairs] == [key]
    assert ruin.objects() == before


def test_dead_letters_that_come_out_otherwise_are_no_obstacle(ruin: Ruin) -> None:
    key = ruin.key(7, "dead_letters/numbers/bad-000000-0000.arrow")
    ruin.lose(key)
    before = ruin.objects()
    ruin.world.log.partitions[0][-1] += 1
    result = ruin.recover()
    assert [each.key for each in result.not_repaired] == [key]
    assert result.repairs == ()
    assert ruin.objects() == before


def test_dead_letters_that_cannot_be_made_now_hold_up_nothing_else() -> None:
    """Their epoch needs a base that only they need, and the engine is away."""
    ruin = Ruin().run(4)
    bases = [file.key for file in state_files(ruin.manifest(3))]
    only = set(bases) - {file.key for file in state_files(ruin.manifest(4))}
    assert only
    key = ruin.key(4, "dead_letters/numbers/bad-000000-0000.arrow")
    attempt = layout.attempt_key(ruin.manifest(4).checkpoint_id)
    ruin.lose(key, attempt, *only)
    pipeline = ruin.pipeline()
    engine = pipeline.engine
    assert isinstance(engine, LetteredEngine)

    def away(*_given: object) -> EpochOutput:
        raise StoreUnavailable("spark://", "no workers")

    engine.compute = away  # type: ignore[method-assign,assignment]
    result = RecoveryManager(pipeline).recover()
    assert [each.damage.key for each in result.repairs] == [attempt]
    assert {each.key for each in result.not_repaired} >= {key, *only}
    ruin.run_on()
    ruin.check_answer()
