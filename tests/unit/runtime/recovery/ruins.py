"""A pipeline with a history, ways to damage its store, and its answer computed without it."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import timedelta

from laminar_dagster.cli.checkpoints.inspection import inspect_checkpoints
from laminar_dagster.core import layout
from laminar_dagster.core.definition import OperatorDefinition, PipelineDefinition
from laminar_dagster.core.errors import RetentionExpired, SinkUnavailable
from laminar_dagster.core.ids import (
    CheckpointId,
    EpochNumber,
    FileName,
    OperatorId,
    PartitionId,
    PipelineName,
    SinkId,
)
from laminar_dagster.core.manifest import CheckpointManifest, DeadLetterEntry, FileEntry
from laminar_dagster.core.plan import EpochPlan, SourcePlan
from laminar_dagster.core.ports import EpochOutput, ObjectStore
from laminar_dagster.core.recovery import RecoveryConfig, RecoveryResult
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.loop import EpochLoop
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.recovery import RecoveryManager
from laminar_dagster.testing.memory_pipeline import (
    MemoryEngine,
    MemorySink,
    MemorySource,
    MemoryTable,
)
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.conditions import World

QUICK = SinkId("quick")
SLOW = SinkId("slow")
TOTALS = OperatorId("totals")
DEFAULTS = RecoveryConfig()


class LetteredEngine(MemoryEngine):
    """Sets something aside in every epoch, too."""

    computed: list[int]

    def compute(
        self, plan: EpochPlan, parent: CheckpointManifest | None, attempt: CheckpointId
    ) -> EpochOutput:
        if not hasattr(self, "computed"):
            self.computed = []
        self.computed.append(int(plan.epoch))
        output = super().compute(plan, parent, attempt)
        name = output.sources[0].source_id
        path = layout.dead_letter_path(name, FileName("bad-000000-0000.arrow"))
        data = f"what could not be read in epoch {plan.epoch}".encode()
        self.store.put(layout.checkpoint_key(attempt, path), data)
        digest = hashlib.sha256(data).hexdigest()
        file = FileEntry(path=path, size_bytes=len(data), sha256=digest, rows=1)
        return replace(output, dead_letters=(DeadLetterEntry(source_id=name, files=(file,)),))


@dataclass
class TotalsState:
    """Takes the state of the pipeline in memory: numbers that are added up."""

    operator_id: OperatorId
    totals: dict[int, int] = field(default_factory=dict)
    calls: list[tuple[str, int]] = field(default_factory=list)

    def restore(self, partition: PartitionId, data: bytes) -> None:
        self.calls.append(("restore", partition))
        self.totals[partition] = int(json.loads(data))

    def apply_delta(self, partition: PartitionId, data: bytes) -> None:
        self.calls.append(("delta", partition))
        self.totals[partition] += int(json.loads(data))

    def complete(self, partition: PartitionId) -> int | None:
        self.calls.append(("complete", partition))
        return 1


@dataclass
class Ruin:
    """A store with a history, and all that outlives it."""

    store: MemoryStore = field(default_factory=MemoryStore)
    world: World = field(default_factory=World)
    quick: MemoryTable = field(default_factory=MemoryTable)
    slow: MemoryTable = field(default_factory=MemoryTable)
    retain: int = 6

    def pipeline(self, store: ObjectStore | None = None, fingerprint: str = "code") -> Pipeline:
        """As a new process has it."""
        made = self.world.pipeline(
            store or self.store,
            sinks=(MemorySink(self.quick, QUICK), MemorySink(self.slow, SLOW)),
            retain=self.retain,
            grace=timedelta(hours=1),
            fingerprint=fingerprint,
        )
        return replace(made, engine=LetteredEngine(store or self.store, self.world.log))

    def arrive(self, count: int = 2) -> None:
        """More input, never twice the same."""
        for partition, values in enumerate(self.world.log.partitions):
            values.extend(100 * partition + len(values) + each for each in range(1, count + 1))

    def run(self, epochs: int, *, behind: int = 0) -> Ruin:
        """Run epochs; the slow sink misses the last few of them."""
        pipeline = self.pipeline()
        for number in range(epochs):
            self.arrive()
            self.slow.is_away = number >= epochs - behind
            newest = max(self.quick.ledger or 0, self.slow.ledger or 0)
            try:
                EpochRunner(pipeline).run(EpochNumber(newest + 1))
            except SinkUnavailable:
                pass
        self.slow.is_away = False
        return self

    def copy(self) -> Ruin:
        """The same at another place."""
        other = Ruin(MemoryStore(), deepcopy(self.world), deepcopy(self.quick), deepcopy(self.slow))
        other.retain = self.retain
        for key, data in self.objects().items():
            other.store.put(key, data)
        return other

    # --- looking --------------------------------------------------------------------------------

    def objects(self) -> dict[str, bytes]:
        """Everything in the store."""
        return {info.key: self.store.read(info.key) for info in self.store.list("")}

    @property
    def checkpoints(self) -> CheckpointStore:
        return CheckpointStore(self.store)

    def manifest(self, epoch: int) -> CheckpointManifest:
        return self.checkpoints.winner(EpochNumber(epoch)).manifest

    def key(self, epoch: int, path: str) -> str:
        """Of a file in the folder of an epoch's checkpoint."""
        return layout.checkpoint_key(self.manifest(epoch).checkpoint_id, path)

    def state_key(self, epoch: int, partition: int = 0) -> str:
        """Of the newest file of a partition's state."""
        *_, newest = (
            ref
            for ref in self.manifest(epoch).operators[0].partitions
            if ref.partition_id == partition
        )
        home = self.manifest(epoch).origin_of(newest).checkpoint_id
        return layout.checkpoint_key(home, newest.path)

    # --- damaging -------------------------------------------------------------------------------

    def flip(self, key: str, place: int | None = None, bit: int = 0) -> None:
        data = bytearray(self.store.read(key))
        data[len(data) // 2 if place is None else place] ^= 1 << bit
        self.store.put(key, bytes(data))

    def lose(self, *keys: str) -> None:
        self.store.delete(list(keys))

    def verify(self) -> dict[str, str]:
        """What `laminar checkpoints verify` finds: what is wrong, by key."""
        store = self.checkpoints
        sinks = self.pipeline().sinks
        found = inspect_checkpoints(store, [*store.candidates()], with_records=True, sinks=sinks)
        return {problem.key: str(problem.error) for problem in found.problems}

    # --- recovering -----------------------------------------------------------------------------

    def recover(self, config: RecoveryConfig = DEFAULTS, **wishes: object) -> RecoveryResult:
        """In a new process."""
        manager = RecoveryManager(self.pipeline(), config)
        return manager.recover(**wishes)  # type: ignore[arg-type]

    def run_on(self) -> None:
        """In a new process, until nothing is left to do."""
        self.arrive()
        pipeline = self.pipeline()
        EpochLoop(pipeline, EpochRunner(pipeline)).run_until_caught_up()

    def check_answer(self) -> None:
        """Each sink has every record once, with the right running total."""
        wanted = self.world.log.expected()
        assert sorted(self.quick.rows) == wanted
        assert sorted(self.slow.rows) == wanted


def kind_of(key: str) -> str:
    """What an object of a store is, by its key."""
    parts = key.split("/")
    if parts[0] == "epochs":
        return parts[2]
    if key == layout.LATEST:
        return "_latest"
    return {"operators": key.rpartition(".")[2]}.get(parts[2], parts[2])


Damager = Callable[[Ruin, str, random.Random], None]


def _flip(ruin: Ruin, key: str, chance: random.Random) -> None:
    ruin.flip(key, chance.randrange(len(ruin.store.read(key))), chance.randrange(8))


def _truncate(ruin: Ruin, key: str, chance: random.Random) -> None:
    data = ruin.store.read(key)
    ruin.store.put(key, data[: chance.randrange(len(data))])


def _lengthen(ruin: Ruin, key: str, chance: random.Random) -> None:
    ruin.store.put(key, ruin.store.read(key) + bytes([chance.randrange(256)]))


def _empty(ruin: Ruin, key: str, _chance: random.Random) -> None:
    ruin.store.put(key, b"")


def _delete(ruin: Ruin, key: str, _chance: random.Random) -> None:
    ruin.lose(key)


def _swap(ruin: Ruin, key: str, chance: random.Random) -> None:
    """With another object of the same kind; where there is none, it is deleted."""
    same = [each for each in ruin.objects() if each != key and kind_of(each) == kind_of(key)]
    if not same:
        ruin.lose(key)
        return
    other = chance.choice(same)
    one, two = ruin.store.read(key), ruin.store.read(other)
    ruin.store.put(key, two)
    ruin.store.put(other, one)


DAMAGERS: dict[str, Damager] = {
    "flip": _flip,
    "truncate": _truncate,
    "lengthen": _lengthen,
    "empty": _empty,
    "delete": _delete,
    "swap": _swap,
}


def damage_at_random(ruin: Ruin, chance: random.Random, count: int) -> list[str]:
    """Damage so many objects; tells what was done."""
    done = []
    for _ in range(count):
        keys = [key for key, data in ruin.objects().items() if data]
        key, how = chance.choice(keys), chance.choice(sorted(DAMAGERS))
        DAMAGERS[how](ruin, key, chance)
        done.append(f"{how} {key}")
    return done


def offsets_of(length: int) -> Iterator[int]:
    """Places all over a file: its ends, and some in between."""
    yield from sorted({0, 1, length // 3, length // 2, 2 * length // 3, length - 2, length - 1})


def totals_of(ruin: Ruin) -> dict[int, int]:
    """The right answer, by partition."""
    return {partition: sum(values) for partition, values in enumerate(ruin.world.log.partitions)}


def restored(ruin: Ruin, pipeline: Pipeline | None = None, **wishes: object) -> TotalsState:
    """The state that a recovery hands over."""
    state = TotalsState(TOTALS)
    manager = RecoveryManager(pipeline or ruin.pipeline())
    manager.recover(restorers=lambda _entry: state, **wishes)  # type: ignore[arg-type]
    return state


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


class Forgetful(MemorySource):
    """Goes on, and has forgotten what earlier epochs read."""

    def verify(self, plan: SourcePlan) -> None:
        raise RetentionExpired(self.source_id, "offset 0", "offset 14")
