"""Where a worker is killed."""

from __future__ import annotations

import dataclasses
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from laminar_dagster.core import protocol
from laminar_dagster.core.ids import SinkId
from laminar_dagster.core.points import Point, watch
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.sinks.delta.sink import DeltaSink
from laminar_dagster.testing.crash import KillingStore, kill_at, kill_this_process
from tests.integration.proof.system_calls import die_at_the_next_hard_link

When = Literal["before", "after"]

STEPS: Final[dict[str, type]] = {
    "plan": protocol.Plan,
    "compute": protocol.Compute,
    "gate": protocol.Gate,
    "prepare": protocol.Prepare,
    "write_manifest": protocol.WriteManifest,
    "commit_sinks": protocol.CommitSinks,
    "move_latest": protocol.MoveLatest,
    "acknowledge": protocol.Acknowledge,
    "collect_garbage": protocol.Collect,
}


@dataclass(frozen=True)
class AtStep:
    """Before or after a step of the protocol, by its name in ``STEPS``."""

    when: When
    step: str

    def __str__(self) -> str:
        return f"{self.when}-{self.step}"

    def arm(self, pipeline: Pipeline, scratch: Path) -> Pipeline:
        point = Point.STEP_BEGINS if self.when == "before" else Point.STEP_ENDS
        kill_at(point, STEPS[self.step].__name__)
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
        struck = pipeline.sink(SinkId(self.sink))
        assert struck

        def strike(point: Point, name: str) -> None:
            if point is Point.SINK_BEGINS and name != self.sink:
                threading.Event().wait()
            elif name != self.sink:
                return
            elif point is Point.SINK_COMMITTED:
                kill_this_process()
            elif point is Point.SINK_SENDS_COMMIT and self.where == "inside":
                if isinstance(struck, DeltaSink):
                    # Its client writes files before it publishes them.
                    die_at_the_next_hard_link()
                else:
                    kill_this_process()

        watch(strike)
        return pipeline


KillPoint = AtStep | AtWrite | AtSink


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
