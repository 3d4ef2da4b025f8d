"""The recovery manager, on a pipeline in memory."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import structs

from laminar_dagster.core import layout
from laminar_dagster.core.definition import OperatorDefinition, PipelineDefinition
from laminar_dagster.core.document import encode
from laminar_dagster.core.errors import (
    AllCheckpointsCorrupt,
    CannotRebuild,
    CheckpointListFailed,
    ChecksumMismatch,
    DeltaWithoutBase,
    EpochNotCommitted,
    FencedError,
    LaminarError,
    LedgerMismatch,
    MalformedDocument,
    NoCheckpointAvailable,
    NotReproduced,
    ObjectExists,
    ObjectMissing,
    OperatorMismatch,
    RecoveryOvertaken,
    RecoveryTimeout,
    RetentionExpired,
    SinkUnavailable,
    SourceReplaced,
    StoreSetBack,
    StoreUnavailable,
    UnknownOperator,
    UnknownSource,
    UnsupportedVersion,
)
from laminar_dagster.core.ids import (
    CheckpointId,
    EpochNumber,
    OperatorId,
    PartitionId,
    PipelineName,
    SourceId,
)
from laminar_dagster.core.manifest import (
    CheckpointManifest,
    OperatorSnapshotEntry,
    Origin,
    PartitionSnapshotEntry,
)
from laminar_dagster.core.offsets import CustomIdentity, Gap, SourcePosition
from laminar_dagster.core.plan import EpochPlan, SourcePlan
from laminar_dagster.core.ports import (
    EpochOutput,
    ObjectInfo,
    ObjectStore,
    RecordedCheckpoint,
    VersionedObject,
)
from laminar_dagster.core.prepared import LatestPointer, Prepared
from laminar_dagster.core.protocol import CommitSinks, Compute, WriteManifest
from laminar_dagster.core.recovery import (
    PartitionAssignment,
    RecoveryConfig,
    RecoveryPhase,
    RecoveryProgress,
    RepairKind,
)
from laminar_dagster.runtime import steps
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.clock import SystemClock
from laminar_dagster.runtime.collector import Retention, collect
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.recovery import RecoveryManager
from laminar_dagster.runtime.recovery.discovery import discover
from laminar_dagster.runtime.recovery.inspection import state_files
from laminar_dagster.runtime.survey import survey
from laminar_dagster.stores.local import LocalStore
from laminar_dagster.testing.crash import Crash
from laminar_dagster.testing.faulty_store import Fault, FaultyStore
from laminar_dagster.testing.memory_pipeline import MemoryEngine, MemorySource
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.ruins import GENEROUS, LetteredEngine, Ruin, TotalsState

TOTALS = OperatorId("totals")


@pytest.fixture
def ruin() -> Ruin:
    """Seven epochs that both sinks have."""
    return Ruin().run(7)


def totals_of(ruin: Ruin) -> dict[int, int]:
    return {partition: sum(values) for partition, values in enumerate(ruin.world.log.partitions)}


def restored(ruin: Ruin, pipeline: Pipeline | None = None, **wishes: object) -> TotalsState:
    """The state that a recovery hands over."""
    state = TotalsState(TOTALS)
    manager = RecoveryManager(pipeline or ruin.pipeline(), GENEROUS)
    manager.recover(restorers=lambda _entry: state, **wishes)  # type: ignore[arg-type]
    return state


# --- restoring ----------------------------------------------------------------------------------


def test_recovery_config_defaults() -> None:
    config = RecoveryConfig()
    assert config.max_fallback_attempts == 3
    assert config.recovery_timeout == 300.0
    assert config.progress_report_interval == 5.0
    assert config.assigned_partitions is None
    assert config.allow_operator_mismatch is False
    assert not hasattr(config, "verify_integrity"), "bytes are always checked"
    for wrong in (
        {"max_fallback_attempts": -1},
        {"recovery_timeout": 0},
        {"progress_report_interval": -1},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            RecoveryConfig(**wrong)  # type: ignore[arg-type]


def test_full_recovery_single_operator(ruin: Ruin) -> None:
    state = TotalsState(TOTALS)
    result = RecoveryManager(ruin.pipeline()).recover(restorers=lambda _entry: state)
    assert (result.epoch, result.checkpoint_id) == (7, ruin.manifest(7).checkpoint_id)
    assert state.totals == totals_of(ruin)
    (operator,) = result.operator_results
    assert (operator.operator_id, operator.partitions_restored) == (TOTALS, (0, 1))
    assert operator.bytes_restored == ruin.manifest(7).total_size_bytes
    assert operator.rows == 2
    assert result.bytes_downloaded >= operator.bytes_restored
    assert (result.repairs, result.not_repaired, result.unfinished) == ((), (), ())
    assert result.fallback_attempts == 0


class TwoOperators(MemoryEngine):
    """Keeps a second state: how many records each partition had."""

    def compute(
        self, plan: EpochPlan, parent: CheckpointManifest | None, attempt: CheckpointId
    ) -> EpochOutput:
        own = parent and structs.replace(parent, operators=parent.operators[1:])
        output = super().compute(plan, own, attempt)
        counts = OperatorId("counts")
        written = []
        for part in plan.sources[0].ranges:
            partition = PartitionId(part.end.partition)  # type: ignore[union-attr]
            path = layout.snapshot_path(counts, partition)
            data = json.dumps(part.end.offset).encode()  # type: ignore[union-attr]
            self.store.put(layout.checkpoint_key(attempt, path), data)
            digest = hashlib.sha256(data).hexdigest()
            written.append(
                PartitionSnapshotEntry(
                    partition_id=partition, path=path, size_bytes=len(data), sha256=digest
                )
            )
        entry = OperatorSnapshotEntry(
            operator_id=counts,
            operator_type="count",
            state_backend="json",
            partitions=tuple(written),
        )
        return replace(output, operators=(entry, *output.operators))


def test_full_recovery_multiple_operators() -> None:
    ruin = Ruin()
    pipeline = replace(ruin.pipeline(), engine=TwoOperators(ruin.store, ruin.world.log))
    for _ in range(3):
        ruin.arrive()
        EpochRunner(pipeline).run()
    states: dict[str, TotalsState] = {}

    def make(entry: OperatorSnapshotEntry) -> TotalsState:
        return states.setdefault(entry.operator_id, TotalsState(entry.operator_id))

    result = RecoveryManager(pipeline).recover(restorers=make)
    assert [each.operator_id for each in result.operator_results] == ["counts", "totals"]
    assert states["totals"].totals == totals_of(ruin)
    assert states["counts"].totals == {0: 6, 1: 6}
    some = RecoveryManager(pipeline).recover(operators=("counts",), restorers=make)
    assert [each.operator_id for each in some.operator_results] == ["counts"]
    with pytest.raises(UnknownOperator, match="sums"):
        RecoveryManager(pipeline).recover(operators=("sums",))


def test_full_recovery_with_source_seek(ruin: Ruin) -> None:
    asked: list[SourcePosition] = []

    class Asked(MemorySource):
        def check_seek(self, position: SourcePosition) -> None:
            asked.append(position)

    pipeline = replace(ruin.pipeline(), sources=(Asked(ruin.world.log),))
    result = RecoveryManager(pipeline).recover()
    (positions,) = result.source_offsets.values()
    assert asked == list(positions) == list(ruin.manifest(7).sources[0].positions)
    assert [each.offset for each in positions] == [14, 14]  # type: ignore[union-attr]


def test_multi_partition_source_offset_capture(ruin: Ruin) -> None:
    """Every partition has its own position, in the manifest and in the file beside it."""
    manifest = ruin.manifest(7)
    offsets = ruin.checkpoints.offsets_of(manifest, manifest.sources[0])
    assert {each.partition: each.offset for each in offsets.positions} == {0: 14, 1: 14}  # type: ignore[union-attr]


def test_partition_assignment_filtering(ruin: Ruin) -> None:
    config = RecoveryConfig(assigned_partitions=(PartitionAssignment(TOTALS, (PartitionId(1),)),))
    state = TotalsState(TOTALS)
    result = RecoveryManager(ruin.pipeline(), config).recover(restorers=lambda _entry: state)
    assert state.totals == {1: totals_of(ruin)[1]}
    assert result.operator_results[0].partitions_restored == (1,)
    nothing = RecoveryConfig(assigned_partitions=())
    assert RecoveryManager(ruin.pipeline(), nothing).recover().operator_results == ()


def test_recovery_with_partition_reassignment(ruin: Ruin) -> None:
    """Two nodes become one, and then two again: together they always have everything."""
    found: dict[int, int] = {}
    for partition in (0, 1):
        config = RecoveryConfig(
            assigned_partitions=(PartitionAssignment(TOTALS, (PartitionId(partition),)),)
        )
        state = TotalsState(TOTALS)
        RecoveryManager(ruin.pipeline(), config).recover(restorers=lambda _entry, s=state: s)  # type: ignore[misc]
        assert set(state.totals) == {partition}
        found |= state.totals
    assert found == restored(ruin).totals


def test_recovery_incremental_full_plus_deltas() -> None:
    ruin = Ruin().run(3)
    parts = [part for part in ruin.manifest(3).operators[0].partitions if part.partition_id == 0]
    assert [part.is_incremental for part in parts] == [False, True, True]
    state = restored(ruin)
    calls = [call for call in state.calls if call[1] == 0]
    assert calls == [("restore", 0), ("delta", 0), ("delta", 0), ("complete", 0)]
    assert state.totals == totals_of(ruin)


def test_recovery_incremental_apply_delta_put_and_delete(ruin: Ruin) -> None:
    """What a delta means is the operator's own matter: here, null removes a key."""

    @dataclass
    class Keyed(TotalsState):
        rows: dict[str, int] = field(default_factory=dict)

        def restore(self, partition: PartitionId, data: bytes) -> None:
            self.rows = dict(json.loads(data))

        def apply_delta(self, partition: PartitionId, data: bytes) -> None:
            for key, value in json.loads(data).items():
                if value is None:
                    del self.rows[key]
                else:
                    self.rows[key] = value

    files = ({"a": 1, "b": 2}, {"b": 3, "c": 4}, {"a": None, "c": 5})
    manifest = ruin.manifest(7)
    parts = []
    for number, rows in enumerate(files):
        build = layout.delta_path if number else layout.snapshot_path
        path, data = build(TOTALS, PartitionId(0)), json.dumps(rows).encode()
        epoch = EpochNumber(5 + number)
        origin = Origin(checkpoint_id=ruin.manifest(epoch).checkpoint_id, epoch=epoch)
        ruin.store.put(layout.checkpoint_key(origin.checkpoint_id, path), data)
        parts.append(
            PartitionSnapshotEntry(
                partition_id=PartitionId(0),
                path=path,
                size_bytes=len(data),
                sha256=hashlib.sha256(data).hexdigest(),
                is_incremental=number > 0,
                origin=None if epoch == 7 else origin,
            )
        )
    entry = structs.replace(manifest.operators[0], partitions=tuple(parts))
    changed = structs.replace(
        manifest, operators=(entry,), total_size_bytes=sum(part.size_bytes for part in parts)
    )
    ruin.store.put(layout.manifest_key(manifest.checkpoint_id), encode(changed))
    ruin.store.put(layout.prepared_key(EpochNumber(7)), encode(Prepared.of(changed)))
    ruin.store.put(layout.LATEST, encode(LatestPointer.to(changed)))
    state = Keyed(TOTALS)
    RecoveryManager(ruin.pipeline()).recover(restorers=lambda _entry: state)
    assert state.rows == {"b": 3, "c": 5}


def test_recovery_incremental_delta_only_fails() -> None:
    """A manifest whose chain has no full snapshot is refused before anything is read."""
    ruin = Ruin().run(6)
    manifest = ruin.manifest(6)
    entry = manifest.operators[0]
    parts = [part for part in entry.partitions if part.is_incremental]
    assert parts
    broken = structs.replace(
        manifest,
        operators=(structs.replace(entry, partitions=tuple(parts)),),
        total_size_bytes=sum(part.size_bytes for part in parts),
    )
    with pytest.raises(DeltaWithoutBase):
        broken.validate()
    # Found in the store, it is damage; the record of the winner puts it right.
    ruin.store.put(layout.manifest_key(manifest.checkpoint_id), encode(broken))
    (repair,) = ruin.recover().repairs
    assert isinstance(repair.damage.problem, DeltaWithoutBase)
    assert restored(ruin).totals == totals_of(ruin)


# --- falling back -------------------------------------------------------------------------------


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


def test_bases_are_mended_before_what_builds_on_them(ruin: Ruin) -> None:
    """A file of the checkpoint that a re-run needs is lost as well."""
    keys = [ruin.state_key(7, 1), ruin.state_key(6, 1), ruin.state_key(5, 1)]
    assert len(set(keys)) == 3
    for key in keys:
        ruin.flip(key)
    pipeline = ruin.pipeline()
    RecoveryManager(pipeline, GENEROUS).recover()
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


# --- what does not fit --------------------------------------------------------------------------


def definition(*operators: str) -> PipelineDefinition:
    return PipelineDefinition(
        version=1,
        pipeline=PipelineName("memory"),
        fingerprint="code",
        buckets=2,
        operators=tuple(
            OperatorDefinition(
                operator_id=OperatorId(name),
                time="ts",
                size_micros=1,
                slide_micros=1,
                keys=(),
                partials=(),
                reads={},
                columns={},
            )
            for name in operators
        ),
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
        RecoveryManager(pipeline, GENEROUS).recover()
    assert ruin.objects() == before


class Forgetful(MemorySource):
    """Goes on, and has forgotten what earlier epochs read."""

    def verify(self, plan: SourcePlan) -> None:
        raise RetentionExpired(self.source_id, "offset 0", "offset 14")


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_lost_file_whose_input_is_gone_cannot_be_made_again(ruin: Ruin, dry_run: bool) -> None:
    key = ruin.state_key(7)
    ruin.lose(key)
    before = ruin.objects()
    pipeline = replace(ruin.pipeline(), sources=(Forgetful(ruin.world.log),))
    with pytest.raises(CannotRebuild) as caught:
        RecoveryManager(pipeline, GENEROUS).recover(dry_run=dry_run)
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
        RecoveryManager(pipeline, GENEROUS).recover()


def test_another_version_of_the_pipeline_cannot_make_it_again(ruin: Ruin) -> None:
    ruin.lose(ruin.state_key(7))
    with pytest.raises(CannotRebuild, match="another version of the pipeline"):
        RecoveryManager(ruin.pipeline(fingerprint="mended"), GENEROUS).recover()


def test_input_that_changed_is_noticed_by_its_hash(ruin: Ruin) -> None:
    key = ruin.state_key(7)
    ruin.lose(key)
    before = ruin.objects()
    ruin.world.log.partitions[0][-1] += 1
    with pytest.raises(NotReproduced):
        ruin.recover()
    assert ruin.objects() == before


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
    result = RecoveryManager(pipeline, GENEROUS).recover()
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
            RecoveryManager(broken.pipeline(store), GENEROUS).recover()
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

    RecoveryManager(ruin.pipeline(Kept()), GENEROUS).recover()
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
    result = RecoveryManager(pipeline, GENEROUS).recover()
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
    result = RecoveryManager(pipeline, GENEROUS).recover()
    assert [each.damage.key for each in result.repairs] == [attempt]
    assert {each.key for each in result.not_repaired} >= {key, *only}
    ruin.run_on()
    ruin.check_answer()


# --- discovery ----------------------------------------------------------------------------------


class Unlisted(MemoryStore):
    """Must not be listed."""

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        raise StoreUnavailable(self.url, f"{prefix} is not to be listed")

    def list_folders(self, prefix: str) -> Iterator[str]:
        raise StoreUnavailable(self.url, f"{prefix} is not to be listed")


def unlisted(ruin: Ruin) -> Unlisted:
    store = Unlisted()
    for key, data in ruin.objects().items():
        store.put(key, data)
    return store


@dataclass
class Recorded:
    """An index that knows what it is told."""

    epoch: int
    checkpoint_id: CheckpointId
    name: str = "the index"

    def newest(self) -> RecordedCheckpoint | None:
        if not self.epoch:
            return None
        return RecordedCheckpoint(EpochNumber(self.epoch), self.checkpoint_id)


def test_recovery_dual_source_raft_and_storage_both_populated(ruin: Ruin) -> None:
    """The pointer and the index agree: nothing is listed."""
    index = Recorded(7, ruin.manifest(7).checkpoint_id)
    result = RecoveryManager(ruin.pipeline(unlisted(ruin)), index=index).recover()
    assert result.epoch == 7


@pytest.mark.parametrize("damage", ["missing", "damaged", "other"])
def test_recovery_dual_source_raft_empty_storage_fallback(ruin: Ruin, damage: str) -> None:
    """Neither pointer nor index knows anything: the listing finds the checkpoint."""
    before = ruin.objects()
    match damage:
        case "missing":
            ruin.lose(layout.LATEST)
        case "damaged":
            ruin.flip(layout.LATEST)
        case _:
            other = Ruin()
            other.world.mint.minted = 1000
            ruin.store.put(layout.LATEST, other.run(2).store.read(layout.LATEST))
    index = Recorded(0, ruin.manifest(7).checkpoint_id)
    result = RecoveryManager(ruin.pipeline(), index=index).recover()
    assert result.epoch == 7
    assert [each.damage.key for each in result.repairs] == [layout.LATEST]
    assert ruin.objects() == before
    with pytest.raises(CheckpointListFailed):
        ruin.lose(layout.LATEST)
        RecoveryManager(ruin.pipeline(unlisted(ruin))).recover()


def test_a_stale_pointer_is_left_behind() -> None:
    """An old copy of the pointer, to a checkpoint that is collected by now."""
    ruin = Ruin(retain=2).run(2)
    old = ruin.store.read(layout.LATEST)
    ruin.run(5)
    right = ruin.store.read(layout.LATEST)
    ruin.store.put(layout.LATEST, old)
    assert ruin.recover().epoch == 7
    assert ruin.store.read(layout.LATEST) == right
    ruin.run_on()
    ruin.check_answer()


@pytest.mark.parametrize("damage", ["missing", "damaged", "stale"])
def test_a_running_pipeline_may_mend_the_pointer_first(damage: str) -> None:
    ruin = Ruin(retain=2).run(2)
    old = ruin.store.read(layout.LATEST)
    ruin.run(5)
    late = ruin.pipeline()
    ruin.arrive()
    ruin.quick.is_away = ruin.slow.is_away = True
    with pytest.raises(SinkUnavailable):
        EpochRunner(late).run()
    ruin.quick.is_away = ruin.slow.is_away = False
    match damage:
        case "missing":
            ruin.lose(layout.LATEST)
        case "damaged":
            ruin.flip(layout.LATEST)
        case _:
            ruin.store.put(layout.LATEST, old)
    manifest = ruin.manifest(8)
    store, moved = ruin.store, threading.Event()

    class Overtaken(MemoryStore):
        """The daemon finishes its epoch just before the pointer is put back."""

        def __getattribute__(self, name: str) -> object:
            if name == "replace":
                if not moved.is_set():
                    moved.set()
                    steps.commit_sinks(late, manifest, [each.sink_id for each in manifest.sinks])
                    steps.move_latest(late, manifest)
                return store.replace
            return getattr(store, name)

    result = RecoveryManager(ruin.pipeline(Overtaken()), GENEROUS).recover()
    assert moved.is_set()
    assert [each.damage.key for each in result.repairs] == [layout.LATEST]
    assert ruin.checkpoints.latest() == LatestPointer.to(manifest)
    ruin.run_on()
    ruin.check_answer()


@pytest.fixture
def stale() -> Ruin:
    """An old copy of the pointer, and one of the sinks cannot be asked."""
    ruin = Ruin(retain=3).run(2)
    old = ruin.store.read(layout.LATEST)
    ruin.run(7, behind=1)
    ruin.store.put(layout.LATEST, old)
    ruin.slow.is_away = True
    return ruin


def test_a_run_does_not_commit_again_what_was_collected(stale: Ruin) -> None:
    before = stale.objects()
    missing = layout.manifest_key(stale.manifest(2).checkpoint_id)
    with pytest.raises(ObjectMissing, match=missing):
        stale.run_on()
    assert stale.objects() == before


def test_a_pointer_that_moves_while_it_is_looked_at_is_no_damage() -> None:
    """Between the pointer and the epochs after it, others go on and collect."""
    ruin = Ruin(retain=1).run(3)

    class Overtaken(MemoryStore):
        is_overtaken = False

        def read(self, key: str, *, limit: int | None = None) -> bytes:
            data = ruin.store.read(key, limit=limit)
            if key == layout.LATEST and not self.is_overtaken:
                self.is_overtaken = True
                ruin.run(3)
            return data

    assert survey(CheckpointStore(Overtaken())).newest_epoch == 6


def test_a_stale_pointer_is_left_behind_although_a_sink_is_away(stale: Ruin) -> None:
    """Its checkpoint is collected, and so is the one before the oldest: every sink had that."""
    result = stale.recover()
    assert [each.damage.key for each in result.repairs] == [layout.LATEST]
    pointer = stale.checkpoints.latest()
    assert pointer
    oldest = min(each.manifest.epoch for each in stale.checkpoints.candidates())  # type: ignore[union-attr]
    assert pointer == LatestPointer.to(stale.manifest(oldest - 1))
    assert stale.recover().repairs == ()
    with pytest.raises(SinkUnavailable):
        stale.run_on()
    stale.slow.is_away = False
    stale.run_on()
    stale.check_answer()
    kept = [each.manifest.epoch for each in stale.checkpoints.candidates()]  # type: ignore[union-attr]
    assert kept == sorted(kept, reverse=True)
    assert 3 not in kept


def test_a_wrong_pointer_that_nothing_says_better_is_told(stale: Ruin) -> None:
    """The record of the checkpoint before the oldest is lost as well."""
    for epoch in range(1, 10):
        key = layout.manifest_key(stale.manifest(epoch).checkpoint_id)
        if epoch > 2 and key in stale.objects():
            break
    stale.lose(layout.prepared_key(EpochNumber(epoch - 1)))
    result = stale.recover()
    assert [each.key for each in result.not_repaired] == [layout.LATEST]
    stale.slow.is_away = False
    assert layout.LATEST in [each.damage.key for each in stale.recover().repairs]
    stale.run_on()
    stale.check_answer()


def test_an_index_that_is_behind_is_no_witness_against_the_store(ruin: Ruin) -> None:
    for epoch in (3, 7):
        index = Recorded(epoch, ruin.manifest(1).checkpoint_id)
        assert RecoveryManager(ruin.pipeline(), index=index).recover().epoch == 7


def test_what_a_sink_would_know_that_is_away_is_looked_for(ruin: Ruin) -> None:
    """An epoch of which nothing is left but the one after it, which is not seen from below."""
    old = ruin.store.read(layout.LATEST)
    ruin.run(2)
    ruin.store.put(layout.LATEST, old)
    winner = ruin.manifest(8).checkpoint_id
    ruin.lose(
        layout.plan_key(EpochNumber(8)),
        layout.prepared_key(EpochNumber(8)),
        layout.manifest_key(winner),
    )
    assert ruin.recover(dry_run=True).epoch == 9
    ruin.quick.is_away = ruin.slow.is_away = True
    before = ruin.objects()
    with pytest.raises(CannotRebuild, match="neither its manifest nor the record"):
        ruin.recover()
    assert ruin.objects() == before


def test_a_store_that_was_set_back_is_refused(ruin: Ruin) -> None:
    index = Recorded(8, ruin.manifest(7).checkpoint_id)
    with pytest.raises(StoreSetBack) as caught:
        RecoveryManager(ruin.pipeline(), index=index).recover()
    assert (caught.value.newest, caught.value.witness, caught.value.known) == (7, "the index", 8)


def test_a_commit_that_crashed_before_the_pointer_is_found(ruin: Ruin) -> None:
    ruin.arrive()
    ruin.quick.is_away = ruin.slow.is_away = True
    with pytest.raises(LaminarError):
        EpochRunner(ruin.pipeline()).run()
    ruin.quick.is_away = ruin.slow.is_away = False
    ruin.lose(layout.prepared_key(EpochNumber(8)))
    result = ruin.recover()
    assert result.epoch == 8
    assert [each.damage.key for each in result.repairs] == [layout.prepared_key(EpochNumber(8))]
    (unfinished,) = result.unfinished
    assert unfinished.epoch == 8
    assert isinstance(unfinished.next_step, CommitSinks)
    ruin.run_on()
    ruin.check_answer()


def test_a_newer_format_is_not_damage(ruin: Ruin) -> None:
    newer = structs.replace(ruin.manifest(7), version=2)
    ruin.store.put(layout.manifest_key(newer.checkpoint_id), encode(newer))
    with pytest.raises(UnsupportedVersion):
        ruin.recover()


def test_a_pointer_of_a_newer_release_is_not_moved_back(ruin: Ruin) -> None:
    pointer = ruin.checkpoints.latest()
    assert pointer
    newer = encode(structs.replace(pointer, version=2, epoch=EpochNumber(9)))
    ruin.store.put(layout.LATEST, newer)
    with pytest.raises(UnsupportedVersion):
        survey(ruin.checkpoints)
    with pytest.raises(UnsupportedVersion):
        ruin.checkpoints.advance_latest(ruin.manifest(7))
    assert ruin.store.read(layout.LATEST) == newer
    ruin.flip(layout.LATEST)
    ruin.checkpoints.advance_latest(ruin.manifest(7))
    assert ruin.checkpoints.latest() == pointer


# --- what has no winner, or lost it -------------------------------------------------------------


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
        RecoveryManager(pipeline, GENEROUS).recover()
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


# --- plans --------------------------------------------------------------------------------------


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
    RecoveryManager(pipeline, GENEROUS).recover()
    assert ruin.manifest(3).sources[0].gaps == gaps
    ruin.arrive()
    EpochRunner(pipeline).run()
    assert ruin.manifest(4).sources[0].gaps == gaps
    planned = ruin.checkpoints.plan(EpochNumber(1))
    assert planned and planned.sources[0].gaps == gaps


# --- definitions --------------------------------------------------------------------------------


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


# --- time, progress, others at work -------------------------------------------------------------


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
    told = RecoveryManager(pipeline, GENEROUS).recover(dry_run=True)
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
    config = replace(GENEROUS, progress_report_interval=0.0)
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
    RecoveryManager(ruin.pipeline(), GENEROUS).recover(progress=told.append)
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
        RecoveryManager(pipeline, GENEROUS).recover()
    assert len(engine.computed) == 1
    assert ruin.recover().epoch == 7, "what was mended stays, and the rest is mended now"


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
        (repair,) = RecoveryManager(pipeline, GENEROUS).recover().repairs
        assert repair.damage.key == ruin.key(7, "sources/numbers.offsets")
        return
    with pytest.raises(RecoveryOvertaken) as caught:
        RecoveryManager(pipeline, GENEROUS).recover()
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
            RecoveryManager(broken.pipeline(store), GENEROUS).recover()
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
    result = RecoveryManager(ruin.pipeline(store), GENEROUS).recover()
    assert result.epoch == 4
    for _ in range(2):
        ruin.arrive()
        EpochRunner(ruin.pipeline(store)).run()
    ruin.check_answer()


def test_what_is_listed_only_in_doubt(ruin: Ruin) -> None:
    assert discover(ruin.pipeline(unlisted(ruin)), None).newest == 7
    ruin.slow.is_away = True
    with pytest.raises(CheckpointListFailed):
        discover(ruin.pipeline(unlisted(ruin)), None)
    ruin.slow.is_away = False
    ruin.lose(layout.LATEST)
    with pytest.raises(CheckpointListFailed):
        discover(ruin.pipeline(unlisted(ruin)), None)
    assert discover(ruin.pipeline(), None).newest == 7
