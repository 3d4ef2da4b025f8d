"""Where a worker is killed."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.core.ports import ArrowSchema, Sink, StagedOutput
from laminar_dagster.runtime import steps
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.sinks.delta.sink import DeltaSink
from laminar_dagster.sinks.kafka.producer import TransactionalProducer
from laminar_dagster.sinks.kafka.sink import KafkaSink
from laminar_dagster.testing.crash import KillingStore, kill_this_process
from tests.integration.proof.system_calls import die_at_the_next_hard_link

When = Literal["before", "after"]

# What a sink of a database does last, with everything written.
_PUBLISHES: Final = "_send_commit"


@dataclass(frozen=True)
class AtStep:
    """Before or after a step of the protocol, by the name of its function."""

    when: When
    step: str

    def __str__(self) -> str:
        return f"{self.when}-{self.step}"

    def arm(self, pipeline: Pipeline, scratch: Path) -> Pipeline:
        original: Callable[..., Any] = getattr(steps, self.step)

        def killing(*arguments: Any) -> None:
            if self.when == "after":
                original(*arguments)
            kill_this_process()

        setattr(steps, self.step, killing)
        return pipeline


@dataclass(frozen=True)
class AtWrite:
    """At the n-th write of a kind of object, wherever it is written.

    An executor that writes it dies as well, unless the job is ``orphaned``: then it goes on
    without its driver. With ``with_group``, so does the driver's whole process group; and with
    ``alone``, nothing dies but whoever writes.
    """

    when: When
    nth: int
    name: str
    pattern: str
    orphaned: bool = False
    with_group: bool = False
    alone: bool = False

    def __str__(self) -> str:
        extra = "-orphaned" if self.orphaned else "-whole-group" if self.with_group else ""
        return f"{self.when}-{self.name}-{self.nth}{extra}"

    def arm(self, pipeline: Pipeline, scratch: Path) -> Pipeline:
        hits = scratch / "hits"
        hits.mkdir(exist_ok=True)
        store = KillingStore(
            pipeline.checkpoints.objects,
            self.pattern,
            self.nth,
            self.when,
            hits,
            None if self.alone else os.getpid(),
            with_group=self.with_group,
            spare_writer=self.orphaned,
        )
        return dataclasses.replace(
            pipeline,
            checkpoints=CheckpointStore(store),
            # Whichever engine it is, it says where it writes.
            engine=dataclasses.replace(cast(Any, pipeline.engine), store=store),
        )


@dataclass(frozen=True)
class AtSink:
    """In or after one sink's commit, while the others have not begun their own."""

    where: Literal["inside", "after"]
    sink: str

    def __str__(self) -> str:
        return f"inside-{self.sink}" if self.where == "inside" else f"{self.sink}-alone-committed"

    def arm(self, pipeline: Pipeline, scratch: Path) -> Pipeline:
        sinks = tuple(
            _KillingSink(sink, self.where) if sink.sink_id == self.sink else _BlockedSink(sink)
            for sink in pipeline.sinks
        )
        return dataclasses.replace(pipeline, sinks=sinks)


KillPoint = AtStep | AtWrite | AtSink


@dataclass(frozen=True)
class _KillingSink:
    inner: Sink
    where: Literal["inside", "after"]

    @property
    def sink_id(self) -> SinkId:
        return self.inner.sink_id

    @property
    def address(self) -> str:
        return self.inner.address

    @property
    def targets(self) -> frozenset[str]:
        return self.inner.targets

    def ledger(self) -> EpochNumber | None:
        return self.inner.ledger()

    def check(self, schema: ArrowSchema, staged: StagedOutput | None = None) -> None:
        self.inner.check(schema, staged)

    def commit(self, epoch: EpochNumber, staged: StagedOutput) -> None:
        if self.where == "inside":
            self._die_inside()
        self.inner.commit(epoch, staged)
        kill_this_process()

    def _die_inside(self) -> None:
        """With the rows written, and not yet published."""
        if isinstance(self.inner, DeltaSink):
            die_at_the_next_hard_link()
        elif isinstance(self.inner, KafkaSink):
            setattr(TransactionalProducer, "commit", _finish_and_die)  # noqa: B010
        else:
            assert hasattr(type(self.inner), _PUBLISHES)
            setattr(type(self.inner), _PUBLISHES, _die)


def _die(*_: object) -> None:
    kill_this_process()


def _finish_and_die(producer: TransactionalProducer) -> None:
    producer.finish()
    kill_this_process()


@dataclass(frozen=True)
class _BlockedSink:
    inner: Sink

    @property
    def sink_id(self) -> SinkId:
        return self.inner.sink_id

    @property
    def address(self) -> str:
        return self.inner.address

    @property
    def targets(self) -> frozenset[str]:
        return self.inner.targets

    def ledger(self) -> EpochNumber | None:
        return self.inner.ledger()

    def check(self, schema: ArrowSchema, staged: StagedOutput | None = None) -> None:
        self.inner.check(schema, staged)

    def commit(self, epoch: EpochNumber, staged: StagedOutput) -> None:
        threading.Event().wait()


STEPS = (
    "plan",
    "compute",
    "gate",
    "prepare",
    "write_manifest",
    "commit_sinks",
    "move_latest",
    "acknowledge",
    "collect_garbage",
)
EVERY_STEP: tuple[KillPoint, ...] = tuple(
    AtStep(when, step) for step in STEPS for when in ("before", "after")
)
# A death after a step and one before the next leave the same behind, and so does one after the
# gate, which writes nothing.
EVERY_BOUNDARY: tuple[KillPoint, ...] = (
    AtStep("before", "plan"),
    *(AtStep("after", step) for step in STEPS if step != "gate"),
)
INSIDE_COMPUTE: tuple[KillPoint, ...] = (
    AtWrite("after", 1, "attempt", r"/attempt\.json$"),
    AtWrite("after", 1, "state", "/operators/"),
    AtWrite("before", 3, "state", "/operators/"),
    AtWrite("after", 1, "staged", "/staged/"),
    AtWrite("before", 2, "staged", "/staged/"),
    AtWrite("after", 1, "staged", "/staged/", orphaned=True),
    AtWrite("after", 1, "dead-letters", "/dead_letters/"),
    AtWrite("before", 1, "offsets", r"\.offsets$"),
    AtWrite("after", 1, "offsets", r"\.offsets$"),
)
INSIDE_SINKS: tuple[KillPoint, ...] = (
    AtSink("after", "minutes"),
    AtSink("after", "lake"),
    AtSink("inside", "minutes"),
    AtSink("inside", "lake"),
)
