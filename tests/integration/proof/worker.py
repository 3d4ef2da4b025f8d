"""A process of its own that runs the pipeline, and may be killed at a chosen place."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from laminar_dagster.config.project import load_project
from laminar_dagster.core.errors import FencedError, LaminarError, RetryError
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.runtime.assembly import assemble, known_connectors
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.survey import newest_manifest, survey
from laminar_dagster.spark.session import open_session
from tests.integration.proof.kill_points import KillPoint
from tests.integration.proof.meeting import Meeting

FAILED = 1
NAMED_ERROR = 3


@dataclass(frozen=True)
class Job:
    """What a worker does.

    Attributes:
        root: The project.
        environment: Where Spark and the store are, with credentials.
        kill: Where to die, and in which epoch.
        epochs: How many epochs at most; without, until all input is read.
        rival: A folder in which two workers meet before each prepares its attempt at an epoch;
            the one that loses goes on with the next.
    """

    root: Path
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    kill: tuple[int, KillPoint] | None = None
    epochs: int | None = None
    rival: Path | None = None

    def run(self) -> None:
        """Run epochs. Never returns when it has been killed."""
        if "SPARK_REMOTE" in self.environment:
            _number_plans_apart()
        pipeline = open_pipeline(self.root)
        meeting = Meeting("prepare", self.rival) if self.rival else None
        done = 0
        while self.epochs is None or done < self.epochs:
            # Named before the look: another process may take what waits in between.
            epoch = EpochRunner(pipeline).next_epoch()
            if self.epochs is None and is_caught_up(pipeline, self.root):
                return
            if self.kill and epoch == EpochNumber(self.kill[0]):
                pipeline = self.kill[1].arm(pipeline, self.root)
            try:
                EpochRunner(pipeline, meeting).run(epoch)
            except (FencedError, RetryError) as error:
                if not self.rival:
                    raise
                logging.info("epoch %d: %s", epoch, error)
            done += 1


class AnyJob(Protocol):
    """Work for a process, whatever pipeline it runs."""

    @property
    def root(self) -> Path:
        """Its folder, where the log and a named error are left."""
        ...

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables to set first."""
        ...

    def run(self) -> None:
        """All of it."""
        ...


def open_pipeline(root: Path) -> Pipeline:
    """The pipeline as it stands on disk, on the Spark that the environment names."""
    (model,) = load_project(root, {}, known_connectors())
    settings = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}
    pipeline = assemble(model, root, lambda: open_session(settings))
    # Garbage is part of every epoch, so that its step is one in which to die.
    return dataclasses.replace(pipeline, collect_every=1)


def is_caught_up(pipeline: Pipeline, root: Path) -> bool:
    """Whether the newest checkpoint is finished and holds all input."""
    standing = survey(pipeline.checkpoints)
    manifest = newest_manifest(pipeline.checkpoints, standing)
    if manifest is None or standing.unfinished:
        return False
    ends = [position.byte_offset for entry in manifest.sources for position in entry.positions]  # type: ignore[union-attr]
    sizes = [file.stat().st_size for file in (root / "input").glob("*/*")]
    return sorted(ends) == sorted(sizes)


def _number_plans_apart() -> None:
    """A server takes a plan for one it knows if a session had one of the same number before.

    A new client counts from 0, so two that follow each other in one session must count apart.
    """
    from pyspark.sql.connect.plan import LogicalPlan

    LogicalPlan._nextPlanId = time.monotonic_ns()


def main(job: AnyJob, log: Path) -> None:
    """The whole life of a worker, its output in ``log``."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.setsid()
    # Of a server that somebody keeps running: only the job says which Spark to use.
    os.environ.pop("SPARK_REMOTE", None)
    os.environ.update(job.environment)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(message)s")
    try:
        job.run()
    except LaminarError as error:
        traceback.print_exc()
        (job.root / "error.json").write_text(json.dumps(error.to_record()))
        _end(NAMED_ERROR)
    except BaseException:
        traceback.print_exc()
        _end(FAILED)
    _end(0)


def _end(code: int) -> None:
    """At once: what a client would like to say to its server on the way out takes seconds."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
