"""An epoch from start to end, and from wherever a crash or a fault left it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec import structs

from laminar_dagster.core import layout
from laminar_dagster.core.errors import (
    AuthFailed,
    EpochNotPrepared,
    EpochOutOfOrder,
    EpochTaken,
    EpochWaits,
    GateFailed,
    InvalidManifest,
    LedgerMismatch,
    NoCheckpointAvailable,
    OutputMismatch,
    SinkUnavailable,
)
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import EpochOutput, ObjectStore, Violation
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.rerun import rerun
from laminar_dagster.runtime.survey import survey
from laminar_dagster.stores.local import LocalStore
from laminar_dagster.testing.memory_pipeline import (
    MemoryEngine,
    MemorySink,
    MemorySource,
    MemoryTable,
)
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.conditions import World
from tests.unit.runtime.observed import READING, ReadingEngine

STEPS = (
    "Plan",
    "Compute",
    "Gate",
    "Prepare",
    "WriteManifest",
    "CommitSinks",
    "MoveLatest",
    "Acknowledge",
    "Collect",
)


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path)


@pytest.fixture
def world() -> World:
    world = World()
    world.log.partitions = [[1, 2, 3, 4], [10, 20]]
    return world


def test_an_epoch_takes_every_step_once_and_in_order(world: World, store: ObjectStore) -> None:
    report = world.runner(store).run()
    assert tuple(step.name for step in report.steps) == STEPS
    assert report.epoch == 1
    assert world.table.ledger == 1


def test_epochs_add_up_to_the_answer(world: World, store: ObjectStore) -> None:
    runner = world.runner(store)
    for _ in range(3):
        runner.run()
    assert sorted(world.table.rows) == world.log.expected()
    assert world.table.epochs == [1, 2, 3]


def test_a_finished_epoch_is_not_run_again(world: World, store: ObjectStore) -> None:
    runner = world.runner(store)
    runner.run()
    runner.run()
    before = list(world.table.rows)
    report = runner.run(EpochNumber(1))
    assert report.steps == ()
    assert world.table.rows == before


def test_an_epoch_needs_the_one_before(world: World, store: ObjectStore) -> None:
    with pytest.raises(EpochOutOfOrder) as caught:
        world.runner(store).run(EpochNumber(2))
    assert caught.value.missing == 1


def test_sources_are_told_last_and_only_of_the_newest(world: World, store: ObjectStore) -> None:
    pipeline = world.pipeline(store)
    EpochRunner(pipeline).run()
    EpochRunner(pipeline).run()
    (source,) = pipeline.sources
    assert isinstance(source, MemorySource)
    told = source.acknowledged
    manifest = survey(pipeline.checkpoints).latest
    assert manifest
    EpochRunner(pipeline).run(EpochNumber(1))
    assert source.acknowledged == told
    assert [position.offset for position in told] == [4, 2]  # type: ignore[union-attr]


# --- the gate -----------------------------------------------------------------------------------


def refuse(_plan: EpochPlan) -> tuple[Violation, ...]:
    return (Violation("contract", "totals", "a column is null"),)


def test_a_failed_gate_publishes_nothing_and_the_epoch_waits(
    world: World, store: ObjectStore
) -> None:
    pipeline = world.pipeline(store)
    refusing = dataclasses.replace(pipeline, engine=MemoryEngine(store, world.log, refuse))
    with pytest.raises(GateFailed, match="contract: totals: a column is null") as caught:
        EpochRunner(refusing).run()
    assert caught.value.subject == "totals"
    assert world.table.rows == []
    assert survey(pipeline.checkpoints).newest_epoch == 0
    assert survey(pipeline.checkpoints).unfinished == (1,)
    plan = pipeline.checkpoints.plan(EpochNumber(1))
    world.log.partitions[0].append(5)
    EpochRunner(pipeline).run()
    assert pipeline.checkpoints.plan(EpochNumber(1)) == plan, "a retry must not plan again"
    assert world.table.ledger == 1


def test_records_that_do_not_add_up_fail_the_gate(world: World, store: ObjectStore) -> None:
    class Miscounting(MemoryEngine):
        def compute(self, *arguments: object) -> EpochOutput:
            output = super().compute(*arguments)  # type: ignore[arg-type]
            counts = type(output.counts)(read=output.counts.read + 1, processed=output.counts.read)
            return dataclasses.replace(output, counts=counts)

    engine = Miscounting(store, world.log)
    with pytest.raises(GateFailed, match="record accounting"):
        EpochRunner(dataclasses.replace(world.pipeline(store), engine=engine)).run()
    assert world.table.rows == []


# --- sinks --------------------------------------------------------------------------------------


def two_sinks() -> tuple[MemorySink, MemorySink]:
    return (
        MemorySink(MemoryTable(), SinkId("first")),
        MemorySink(MemoryTable(), SinkId("second")),
    )


def test_a_lost_reply_is_looked_up_in_the_ledger(world: World, store: ObjectStore) -> None:
    world.table.lose_next_reply = True
    world.runner(store).run()
    assert world.table.epochs == [1]
    assert len(world.table.rows) == 5


def test_a_sink_that_is_away_holds_back_no_other(world: World, store: ObjectStore) -> None:
    first, second = two_sinks()
    runner = EpochRunner(world.pipeline(store, sinks=(first, second)))
    second.table.is_away = True
    with pytest.raises(SinkUnavailable, match="second"):
        runner.run()
    assert (first.table.ledger, second.table.ledger) == (1, None)
    assert survey(CheckpointStore(store)).latest is None
    second.table.is_away = False
    report = runner.run()
    assert report.steps[0].name == "CommitSinks"
    assert (first.table.epochs, second.table.epochs) == ([1], [1])


def test_a_sink_that_refuses_the_credentials_holds_back_no_other(
    world: World, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = two_sinks()
    runner = EpochRunner(world.pipeline(store, sinks=(first, second)))
    first.table.is_away = second.table.is_away = True
    with pytest.raises(SinkUnavailable):
        runner.run()
    first.table.is_away = second.table.is_away = False

    def refuse() -> None:
        raise AuthFailed("sink second", "wrong password")

    with monkeypatch.context() as patch:
        patch.setattr(second, "ledger", refuse)
        with pytest.raises(AuthFailed, match="second"):
            EpochRunner(world.pipeline(store, sinks=(first, second))).run()
    assert (first.table.ledger, second.table.ledger) == (1, None)
    runner.run()
    assert (first.table.epochs, second.table.epochs) == ([1], [1])


def test_the_next_epoch_may_be_computed_while_a_sink_is_behind(
    world: World, store: ObjectStore
) -> None:
    first, second = two_sinks()
    runner = EpochRunner(world.pipeline(store, sinks=(first, second)))
    second.table.is_away = True
    for epoch in (1, 2):
        with pytest.raises(SinkUnavailable):
            runner.run(EpochNumber(epoch))
    assert (first.table.ledger, second.table.ledger) == (2, None)
    assert survey(CheckpointStore(store)).unfinished == (1, 2)
    second.table.is_away = False
    with pytest.raises(EpochWaits) as caught:
        runner.run(EpochNumber(2))
    assert caught.value.behind == 1
    runner.run()
    runner.run()
    assert sorted(second.table.rows) == sorted(first.table.rows) == world.log.expected()


def test_a_sink_that_joins_later_starts_there(world: World, store: ObjectStore) -> None:
    first, second = two_sinks()
    EpochRunner(world.pipeline(store, sinks=(first,))).run()
    EpochRunner(world.pipeline(store, sinks=(first, second))).run()
    assert first.table.epochs == [1, 2]
    assert second.table.epochs == [2]
    assert len(second.table.rows) == 1


def test_a_removed_sink_leaves_its_ledger_where_it_was(world: World, store: ObjectStore) -> None:
    first, second = two_sinks()
    second.table.is_away = True
    with pytest.raises(SinkUnavailable):
        EpochRunner(world.pipeline(store, sinks=(first, second))).run()
    without = EpochRunner(world.pipeline(store, sinks=(first,)))
    without.run()
    without.run()
    assert (first.table.ledger, second.table.ledger) == (2, None)


def test_a_sink_that_would_miss_epochs_is_refused_before_anything_is_planned(
    world: World, store: ObjectStore
) -> None:
    first, second = two_sinks()
    both = world.pipeline(store, sinks=(first, second))
    EpochRunner(both).run()
    EpochRunner(world.pipeline(store, sinks=(first,))).run()
    with pytest.raises(LedgerMismatch, match="second"):
        EpochRunner(both).run()
    assert both.checkpoints.plan(EpochNumber(3)) is None
    EpochRunner(world.pipeline(store, sinks=(first,))).run()
    assert first.table.epochs == [1, 2, 3]


def test_a_sink_that_went_on_with_another_process_is_no_mismatch(
    world: World, store: ObjectStore
) -> None:
    """The other commits the next epoch between our look at the store and at the ledger."""
    world.log.partitions[0].extend([5, 6, 7])
    fast = world.runner(store)

    class Overtaken(MemorySink):
        def ledger(self) -> EpochNumber | None:
            if self.table.ledger == 0 or self.table.ledger is None:
                fast.run()
                fast.run()
            return super().ledger()

    pipeline = world.pipeline(store)
    with pytest.raises(SinkUnavailable):
        world.table.is_away = True
        EpochRunner(pipeline).run()
    world.table.is_away = False
    slow = dataclasses.replace(pipeline, sinks=(Overtaken(world.table),))
    EpochRunner(slow).run(EpochNumber(1))
    assert world.table.epochs == [1, 2]


@pytest.mark.parametrize("ledger", [5, 0])
def test_a_ledger_that_no_history_explains_stops_everything(
    world: World, store: ObjectStore, ledger: int
) -> None:
    runner = world.runner(store)
    runner.run()
    runner.run()
    world.table.ledger = EpochNumber(ledger)
    before = list(world.table.rows)
    with pytest.raises(LedgerMismatch):
        runner.run()
    assert world.table.rows == before


# --- other processes ----------------------------------------------------------------------------


@pytest.mark.parametrize("has_more", [True, False])
def test_an_epoch_that_took_a_lost_ones_number_is_not_taken_for_it(
    world: World, store: ObjectStore, has_more: bool
) -> None:
    """The sink that has the lost one is away while the other is planned, so nobody notices then."""
    first, second = two_sinks()
    second.table.is_away = True
    with pytest.raises(SinkUnavailable):
        EpochRunner(world.pipeline(store, sinks=(first, second))).run()
    held = list(first.table.rows)
    lost = CheckpointStore(store).winner(EpochNumber(1)).checkpoint_id
    for folder in (layout.epoch_start(EpochNumber(1)), layout.checkpoint_folder(lost)):
        store.delete([info.key for info in store.list(folder)])
    if has_more:
        world.log.partitions[1].append(30)
    first.table.is_away, second.table.is_away = True, False
    with pytest.raises(SinkUnavailable):
        EpochRunner(world.pipeline(store, sinks=(first, second))).run()
    assert second.table.ledger == 1
    first.table.is_away = False
    runner = EpochRunner(world.pipeline(store, sinks=(first, second)))
    if not has_more:
        # The same ranges came out the same: it is no other epoch.
        assert runner.run().epoch == 1
        assert first.table.rows == second.table.rows == held
        return
    with pytest.raises(OutputMismatch) as caught:
        runner.run()
    assert (caught.value.sink_id, caught.value.epoch) == (first.sink_id, 1)
    assert first.table.rows == held
    assert survey(CheckpointStore(store)).latest is None


def test_a_slower_attempt_stops(world: World, store: ObjectStore) -> None:
    pipeline = world.pipeline(store)

    def overtaken(_plan: EpochPlan) -> tuple[Violation, ...]:
        EpochRunner(pipeline).run()
        return ()

    slow = dataclasses.replace(pipeline, engine=MemoryEngine(store, world.log, overtaken))
    with pytest.raises(EpochTaken) as caught:
        EpochRunner(slow).run()
    prepared = pipeline.checkpoints.prepared(EpochNumber(1))
    assert prepared
    assert caught.value.winner == prepared.checkpoint_id
    assert world.table.epochs == [1]


def test_the_code_may_be_mended_between_attempts(world: World, store: ObjectStore) -> None:
    broken = dataclasses.replace(
        world.pipeline(store, fingerprint="old"), engine=MemoryEngine(store, world.log, refuse)
    )
    with pytest.raises(GateFailed):
        EpochRunner(broken).run()
    mended = world.pipeline(store, fingerprint="new")
    EpochRunner(mended).run()
    prepared = mended.checkpoints.prepared(EpochNumber(1))
    assert prepared
    assert prepared.manifest.fingerprint == "new"


# --- a lost pointer, and a damaged store --------------------------------------------------------


def test_without_a_pointer_the_listing_is_used(world: World, store: ObjectStore) -> None:
    runner = world.runner(store)
    for _ in range(5):
        world.log.partitions[0].append(7)
        runner.run()
    store.delete([layout.LATEST])
    for _ in range(3):
        runner.run()
    assert sorted(world.table.rows) == world.log.expected()


def test_a_damaged_pointer_is_replaced(world: World, store: ObjectStore) -> None:
    runner = world.runner(store)
    runner.run()
    runner.run()
    store.put(layout.LATEST, b"nonsense")
    for _ in range(3):
        runner.run()
    latest = CheckpointStore(store).latest()
    assert latest
    assert latest.epoch == world.table.ledger


def test_a_store_that_lost_its_checkpoints_does_not_start_over(
    world: World, store: ObjectStore
) -> None:
    runner = world.runner(store)
    runner.run()
    runner.run()
    store.delete([info.key for info in store.list(layout.CHECKPOINTS)])
    with pytest.raises(NoCheckpointAvailable):
        runner.run()


def test_a_manifest_that_was_swapped_is_noticed(world: World, store: ObjectStore) -> None:
    pipeline = world.pipeline(store)
    EpochRunner(pipeline).run()
    EpochRunner(pipeline).run()
    first, second = sorted(pipeline.checkpoints.checkpoint_ids())
    store.put(layout.manifest_key(second), store.read(layout.manifest_key(first)))
    with pytest.raises(InvalidManifest):
        world.runner(store).run()


def test_an_epoch_in_two_halves(world: World, store: ObjectStore) -> None:
    """As two jobs of Dagster do it, in two processes."""
    with pytest.raises(EpochNotPrepared):
        world.runner(store).commit(EpochNumber(1))
    first = world.runner(store).prepare(EpochNumber(1))
    assert tuple(step.name for step in first.steps) == STEPS[:4]
    assert world.table.epochs == []
    assert survey(CheckpointStore(store)).newest_epoch == 0
    # Prepared already: nothing to do, and another attempt is not begun.
    assert world.runner(store).prepare(EpochNumber(1)).steps == ()
    second = world.runner(store).commit(EpochNumber(1))
    assert tuple(step.name for step in second.steps) == STEPS[4:]
    assert second.checkpoint_id == first.checkpoint_id
    assert world.table.epochs == [1]
    assert world.runner(store).prepare(EpochNumber(1)).steps == ()


def test_half_an_epoch_is_refused_out_of_order(world: World, store: ObjectStore) -> None:
    with pytest.raises(EpochOutOfOrder):
        world.runner(store).prepare(EpochNumber(2))
    with pytest.raises(EpochOutOfOrder):
        world.runner(store).commit(EpochNumber(2))


def test_epochs_are_prepared_while_a_sink_is_away(world: World, store: ObjectStore) -> None:
    world.runner(store).prepare(EpochNumber(1))
    world.table.is_away = True
    with pytest.raises(SinkUnavailable):
        world.runner(store).commit(EpochNumber(1))
    world.runner(store).prepare(EpochNumber(2))
    world.table.is_away = False
    for epoch in (1, 2):
        world.runner(store).commit(EpochNumber(epoch))
    assert world.table.epochs == [1, 2]


# --- running a committed epoch again --------------------------------------------------------------


def test_how_long_reading_took_is_no_difference(world: World, store: ObjectStore) -> None:
    """A run that fetched more slowly has read the same."""

    class Timed(ReadingEngine):
        turns = 0

        def compute(self, plan, parent, attempt):  # type: ignore[no-untyped-def]
            output = super().compute(plan, parent, attempt)
            self.turns += 1
            reading = structs.replace(READING, fetch_micros=self.turns)
            source = structs.replace(output.sources[0], reading=reading)
            return dataclasses.replace(output, sources=(source,))

    pipeline = dataclasses.replace(world.pipeline(store), engine=Timed(store, world.log))
    EpochRunner(pipeline).run()
    assert rerun(pipeline, EpochNumber(1)).is_identical


def test_a_damaged_history_holds_up_no_epoch(world: World, store: ObjectStore) -> None:
    """What it reaches is not known, so nothing is collected; the epoch is finished all the same."""
    runner = EpochRunner(world.pipeline(store, retain=5))
    first = runner.run()
    runner.run()
    store.put(layout.manifest_key(first.checkpoint_id), b"damaged")
    before = {info.key for info in store.list("checkpoints/")}
    report = EpochRunner(world.pipeline(store, retain=5)).run()
    assert report.steps[-1].name == "Collect"
    assert before < {info.key for info in store.list("checkpoints/")}
