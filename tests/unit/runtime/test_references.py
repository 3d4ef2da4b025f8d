"""Reference tables: pinned by the plan, copied once, kept as long as a checkpoint names them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.errors import (
    ChecksumMismatch,
    PipelineChanged,
    ReferenceUnavailable,
    ReferenceUnfit,
)
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import ReferenceFreshness
from laminar_dagster.core.recovery import RepairKind
from laminar_dagster.core.reference import ReferencePin
from laminar_dagster.core.upkeep import Rescale
from laminar_dagster.runtime import steps
from laminar_dagster.runtime.collector import collect
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.recovery import RecoveryManager
from laminar_dagster.runtime.references import copy_pins
from laminar_dagster.runtime.rerun import rerun
from laminar_dagster.runtime.upkeep import plan_upkeep
from laminar_dagster.runtime.verification import verify_checkpoint
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.conditions import World
from tests.unit.runtime.memory_reference import NAME, MemoryReference


@dataclass
class Place:
    """A pipeline with a reference table, on a store."""

    world: World = field(default_factory=World)
    table: MemoryReference = field(default_factory=MemoryReference)

    def __post_init__(self) -> None:
        self.store = MemoryStore(now=self.world.clock.now)

    def pipeline(self, *, retain: int = 2) -> Pipeline:
        pipeline = self.world.pipeline(self.store, retain=retain)
        return replace(pipeline, references=(self.table,))

    def epoch(self, seconds: float = 60) -> ReferencePin:
        """Run one more epoch, and tell what it has pinned."""
        self.world.clock.sleep(seconds)
        self.world.log.partitions[0].append(1)
        report = EpochRunner(self.pipeline()).run()
        manifest = self.pipeline().checkpoints.manifest(report.checkpoint_id)
        assert manifest
        assert self.planned(report.epoch).references == manifest.references
        (pin,) = manifest.references
        return pin

    def planned(self, epoch: int) -> EpochPlan:
        plan = self.pipeline().checkpoints.plan(EpochNumber(epoch))
        assert plan
        return plan

    def copies(self) -> list[str]:
        return [info.key for info in self.store.list(layout.REFERENCES)]


@pytest.fixture
def place() -> Place:
    return Place()


def test_what_has_not_changed_is_copied_once(place: Place) -> None:
    first = place.epoch()
    second = place.epoch()
    assert (first.epoch, first.version, first.rows) == (1, "version one", 1)
    assert (second.copy_id, second.files) == (first.copy_id, first.files)
    assert second.checked_at > first.checked_at
    assert place.copies() == [first.key_of(first.files[0])]
    assert (place.table.looks, place.table.reads) == (2, 1)


def test_what_has_changed_is_copied_and_the_old_copy_stays_for_its_epochs(place: Place) -> None:
    first = place.epoch()
    place.table.rows = b"two"
    second = place.epoch()
    assert second.copy_id != first.copy_id
    assert place.store.read(first.key_of(first.files[0])) == b"one"
    assert place.store.read(second.key_of(second.files[0])) == b"two"


def test_without_a_version_the_rows_tell(place: Place) -> None:
    place.table.knows_version = False
    first, second = place.epoch(), place.epoch()
    assert second.files == first.files
    assert second.copy_id == first.copy_id
    assert place.table.reads == 2
    assert len(place.copies()) == 1


def test_a_table_is_looked_at_when_it_is_due_on_the_logical_clock(place: Place) -> None:
    place.table.freshness = ReferenceFreshness(timedelta(minutes=10))
    first = place.epoch()
    place.table.rows = b"two"
    assert [place.epoch(299) for _ in range(2)] == [first, first]
    assert place.epoch(2).version == "version two"


def test_a_table_that_is_never_refreshed_stays(place: Place) -> None:
    place.table.freshness = ReferenceFreshness(None)
    first = place.epoch()
    place.table.rows = b"two"
    assert place.epoch(10**6) == first


def test_another_declaration_needs_another_copy(place: Place) -> None:
    place.table.freshness = ReferenceFreshness(None)
    first = place.epoch()
    place.table.declaration = "e" * 64
    assert place.epoch().copy_id != first.copy_id


def test_nothing_is_planned_while_a_table_is_away(place: Place) -> None:
    place.epoch()
    place.table.away = True
    with pytest.raises(ReferenceUnavailable) as caught:
        place.epoch()
    assert caught.value.exit_code == 75
    assert place.pipeline().checkpoints.plan(EpochNumber(2)) is None


def test_a_table_that_is_away_may_be_kept_and_the_plan_says_so(place: Place) -> None:
    place.table.freshness = ReferenceFreshness(timedelta(0), keeps_when_away=True)
    first = place.epoch()
    place.table.away = True
    second, third = place.epoch(), place.epoch()
    assert second.unavailable_since == third.unavailable_since == place.planned(2).clock
    assert (third.copy_id, third.checked_at) == (first.copy_id, first.checked_at)
    place.table.away = False
    assert place.epoch().unavailable_since is None


def test_there_must_be_a_copy_to_keep(place: Place) -> None:
    place.table.freshness = ReferenceFreshness(timedelta(0), keeps_when_away=True)
    place.table.away = True
    with pytest.raises(ReferenceUnavailable):
        place.epoch()


def test_a_table_that_is_unfit_is_not_kept(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.table.freshness = ReferenceFreshness(timedelta(0), keeps_when_away=True)
    place.epoch()

    def unfit(table: MemoryReference) -> str:
        raise ReferenceUnfit(NAME, "two rows have one key")

    monkeypatch.setattr(MemoryReference, "version", unfit)
    with pytest.raises(ReferenceUnfit):
        place.epoch()


def test_a_table_that_stays_as_it_is_is_copied_again_only_as_it_was(place: Place) -> None:
    place.table.freshness = ReferenceFreshness(None)
    first = place.epoch()
    place.store.delete([first.key_of(first.files[0])])
    place.table.rows = b"two"
    with pytest.raises(ReferenceUnfit, match="its copy is lost, and its rows are others now"):
        place.epoch()
    assert place.pipeline().checkpoints.plan(EpochNumber(2)) is None
    assert not place.copies()
    place.table.rows = b"one"
    again = place.epoch()
    assert (again.epoch, again.files) == (2, first.files)
    assert place.store.read(again.key_of(again.files[0])) == b"one"


def test_a_retry_goes_by_the_plan_whatever_became_of_the_table(place: Place) -> None:
    place.world.log.partitions[0].append(1)
    steps.plan(place.pipeline(), EpochNumber(1))
    (pin,) = place.planned(1).references
    place.table.rows, place.table.away = b"two", True
    report = EpochRunner(place.pipeline()).run()
    manifest = place.pipeline().checkpoints.manifest(report.checkpoint_id)
    assert manifest and manifest.references == (pin,)
    assert rerun(place.pipeline(), report.epoch).is_identical


def test_a_lost_copy_is_made_again(place: Place) -> None:
    first = place.epoch()
    place.store.delete(place.copies())
    second = place.epoch()
    assert (second.copy_id != first.copy_id, second.files) == (True, first.files)
    assert len(place.copies()) == 1


def test_a_plan_without_a_table_is_not_carried_out_with_it(place: Place) -> None:
    place.world.log.partitions[0].append(1)
    steps.plan(replace(place.pipeline(), references=()), EpochNumber(1))
    with pytest.raises(PipelineChanged, match="planned without the reference table fruit"):
        EpochRunner(place.pipeline()).run()


def test_upkeep_hands_copies_on(place: Place) -> None:
    first = place.epoch()
    place.table.away = True
    upkeep = Rescale(buckets_before=1, buckets_after=2)
    plan_upkeep(place.pipeline(), upkeep)
    assert place.planned(2).references == (first,)


# --- how long a copy stays ------------------------------------------------------------------------


def test_a_copy_goes_when_no_retained_checkpoint_names_it(place: Place) -> None:
    first = place.epoch()
    place.table.rows = b"two"
    second = place.epoch()
    assert len(place.copies()) == 2
    place.epoch()
    assert place.copies() == [second.key_of(second.files[0])]
    assert first.copy_id != second.copy_id


def test_a_copy_of_a_process_that_died_before_its_plan_goes_when_the_epoch_is_decided(
    place: Place,
) -> None:
    place.epoch()
    place.table.rows = b"two"
    place.world.clock.sleep(60)
    pipeline = place.pipeline()
    checkpoints = pipeline.checkpoints
    parent = checkpoints.manifest(checkpoints.winner(EpochNumber(1)).checkpoint_id)
    steps.make_plan(pipeline, EpochNumber(2), parent)  # and nobody writes it down
    (pin,) = place.planned(1).references
    (lost,) = set(place.copies()) - {pin.key_of(pin.files[0])}
    later = place.world.clock.now() + timedelta(days=9)
    collect(checkpoints, pipeline.retention, later)
    assert lost in place.copies(), "its plan may still come"
    place.table.rows = b"three"
    place.epoch()
    collect(checkpoints, pipeline.retention, later)
    assert lost not in place.copies()
    assert len(place.copies()) == 2


def test_verify_reads_copies_too(place: Place) -> None:
    pin = place.epoch()
    checkpoints = place.pipeline().checkpoints
    manifest = checkpoints.winner(EpochNumber(1)).manifest
    key = pin.key_of(pin.files[0])
    assert key in [each.key for each in verify_checkpoint(checkpoints, manifest)]
    place.store.put(key, b"two")
    wrong = [each for each in verify_checkpoint(checkpoints, manifest) if each.problem]
    assert [each.key for each in wrong] == [key]
    with pytest.raises(ChecksumMismatch):
        copy_pins(place.store, MemoryStore(), (pin,))


def test_copies_go_to_another_store_under_their_names(place: Place) -> None:
    pin = place.epoch()
    other = MemoryStore()
    for _ in range(2):
        copy_pins(place.store, other, (pin,))
    assert other.read(pin.key_of(pin.files[0])) == b"one"


# --- recovery -------------------------------------------------------------------------------------


def test_a_plan_whose_copy_is_damaged_is_made_anew(place: Place) -> None:
    place.epoch()
    place.table.rows = b"two"
    place.world.clock.sleep(60)
    place.world.log.partitions[0].append(1)
    steps.plan(place.pipeline(), EpochNumber(2))
    (pin,) = place.planned(2).references
    place.store.put(pin.key_of(pin.files[0]), b"owt")
    place.table.rows = b"six"
    result = RecoveryManager(place.pipeline()).recover()
    assert [each.kind for each in result.repairs] == [RepairKind.MADE_ANEW]
    (again,) = place.planned(2).references
    assert place.store.read(again.key_of(again.files[0])) == b"six"
    assert EpochRunner(place.pipeline()).run().epoch == 2


def test_a_damaged_copy_of_the_newest_checkpoint_is_made_again_by_the_next_plan(
    place: Place,
) -> None:
    first = place.epoch()
    place.store.put(first.key_of(first.files[0]), b"eno")
    result = RecoveryManager(place.pipeline()).recover()
    assert [each.damage.key for each in result.repairs] == [first.key_of(first.files[0])]
    second = place.epoch()
    assert second.copy_id != first.copy_id
    assert place.store.read(second.key_of(second.files[0])) == b"one"
