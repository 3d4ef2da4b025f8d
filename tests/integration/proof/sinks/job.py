"""A process of its own that runs the pipeline of all sinks."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from laminar_dagster.config.model import SinkTable
from laminar_dagster.core.errors import FencedError, RetryError, UnknownOutcome
from laminar_dagster.core.ids import EpochNumber, PipelineName
from laminar_dagster.core.offsets import KafkaPosition
from laminar_dagster.core.ports import Admission
from laminar_dagster.runtime.assembly import build_sink
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.collector import Retention
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.survey import newest_manifest, survey
from laminar_dagster.stores.url import open_store
from laminar_dagster.testing.memory_pipeline import MemoryLog, MemorySource
from tests.integration.proof.kill_points import KillPoint
from tests.integration.proof.meeting import Meeting
from tests.integration.proof.sinks.accounts import View, log_of
from tests.integration.proof.sinks.engine import AccountEngine


@dataclass(frozen=True)
class SinkJob:
    """What a worker does.

    Attributes:
        root: Its folder.
        name: Of the pipeline.
        environment: With credentials of the store.
        store: The address of the store.
        sinks: Each as its ``CREATE SINK`` says. The views are those of the engine.
        seed: Of the input.
        records: In each of its lanes.
        per_epoch: How many of them an epoch takes.
        kill: Where to die, and in which epoch.
        epochs: How many epochs at most; without, until all input is read.
        patience: For how many seconds to try again what may succeed later.
        meeting: A folder in which two workers meet before either commits to the sinks.
    """

    root: Path
    name: str
    store: str
    sinks: tuple[SinkTable, ...]
    seed: int
    records: int
    per_epoch: int
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    kill: tuple[int, KillPoint] | None = None
    epochs: int | None = None
    patience: float = 0.0
    meeting: Path | None = None

    def open(self) -> Pipeline:
        """The pipeline: all of it real but its input and its arithmetic."""
        log = log_of(self.seed, self.records)
        store = open_store(self.store, self.root)
        name = PipelineName(self.name)
        return Pipeline(
            name=name,
            fingerprint="0" * 64,
            checkpoints=CheckpointStore(store),
            engine=AccountEngine(
                store, log, {table.sink_id: cast(View, str(table.view)) for table in self.sinks}
            ),
            sources=(MemorySource(log),),
            sinks=tuple(build_sink(table, self.root, name) for table in self.sinks),
            limits=Admission(max_records=self.per_epoch),
            retention=Retention(checkpoints=1000),
            # Garbage is part of every epoch, so that its step is one in which to die.
            collect_every=1,
        )

    def run(self) -> None:
        """Run epochs. Never returns when it has been killed."""
        pipeline = self.open()
        log = log_of(self.seed, self.records)
        deadline = time.monotonic() + self.patience
        done = 0
        while done != self.epochs:
            # Named before the look: another process may take what waits in between.
            epoch = EpochRunner(pipeline).next_epoch()
            if is_caught_up(pipeline, log):
                return
            if self.kill and epoch == EpochNumber(self.kill[0]):
                pipeline = self.kill[1].arm(pipeline, self.root)
            try:
                EpochRunner(pipeline, self._tell).run(epoch)
                done += 1
            except (FencedError, RetryError, UnknownOutcome) as error:
                if time.monotonic() > deadline:
                    raise
                logging.info("epoch %d: %s", epoch, error)
                time.sleep(0.1)

    def _tell(self, epoch: EpochNumber, step: str) -> None:
        (self.root / f"step-{os.getpid()}-{epoch}-{step}").touch()
        if self.meeting:
            Meeting("commit_sinks", self.meeting)(epoch, step)


def is_caught_up(pipeline: Pipeline, log: MemoryLog) -> bool:
    """Whether the newest checkpoint is finished and holds all input."""
    standing = survey(pipeline.checkpoints)
    manifest = newest_manifest(pipeline.checkpoints, standing)
    if manifest is None or standing.unfinished:
        return False
    (source,) = manifest.sources
    ends = [each.offset for each in source.positions if isinstance(each, KafkaPosition)]
    return ends == [len(numbers) for numbers in log.partitions]
