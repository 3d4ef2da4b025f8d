"""Restoring the state of a checkpoint: operators, partitions, chains, sources."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace

import pytest
from msgspec import structs

from laminar_dagster.core import layout
from laminar_dagster.core.document import encode
from laminar_dagster.core.errors import (
    DeltaWithoutBase,
    UnknownOperator,
)
from laminar_dagster.core.ids import (
    CheckpointId,
    EpochNumber,
    OperatorId,
    PartitionId,
)
from laminar_dagster.core.manifest import (
    CheckpointManifest,
    OperatorSnapshotEntry,
    Origin,
    PartitionSnapshotEntry,
)
from laminar_dagster.core.offsets import SourcePosition
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import (
    EpochOutput,
)
from laminar_dagster.core.prepared import LatestPointer, Prepared
from laminar_dagster.core.recovery import (
    PartitionAssignment,
    RecoveryConfig,
)
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.recovery import RecoveryManager
from laminar_dagster.testing.memory_pipeline import MemoryEngine, MemorySource
from tests.unit.runtime.recovery.ruins import (
    TOTALS,
    Ruin,
    TotalsState,
    restored,
    totals_of,
)


def test_recovery_config_defaults() -> None:
    config = RecoveryConfig()
    assert config.max_fallback_attempts is None, "as far as plans and sources reach"
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
