"""``laminar run``."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, assert_never

import click
from msgspec import structs

from laminar_dagster.cli import wording
from laminar_dagster.cli.connections import amount_waiting
from laminar_dagster.cli.epoch_summary import COLUMNS, EpochSummary
from laminar_dagster.cli.errors import Interrupted
from laminar_dagster.cli.failures import failure_of
from laminar_dagster.cli.numbers import HOW_MANY, PORT
from laminar_dagster.cli.options import json_option
from laminar_dagster.cli.output import Output, output_of
from laminar_dagster.cli.pipelines import (
    find_model,
    open_pipeline,
    pipeline_argument,
    project_of,
)
from laminar_dagster.cli.progress import live_line
from laminar_dagster.cli.signals import StopRequest
from laminar_dagster.cli.tables import Block, Line, Table
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.config.pipeline import config_file
from laminar_dagster.core.errors import ComputeFailed, LaminarError, SparkLost
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.runtime.backlog import Backlog
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.loop import EpochDone, EpochLoop, Event, Retrying, Runner, Waiting
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.spark_start import is_remote
from laminar_dagster.runtime.telemetry import Telemetry, open_telemetry

_ROWS_SHOWN: Final = 20
# What a run that lasts for months remembers of its epochs; the store has them all.
_EPOCHS_KEPT: Final = 10_000
_HOW_TO_SEE: Final = "Set DAGSTER_HOME to a folder, and epochs are runs of Dagster as well."
_HOW_TO_START_FASTER: Final = (
    "`laminar warm-up`, once for all projects, and Spark starts in about half the time."
)
# From here on Java's thorough compiler saves what it costs, as measured: ADR 63.
_LARGE: Final = {"records": 2_000_000, "bytes": 200_000_000}


@click.command("run")
@pipeline_argument
@click.option(
    "--epochs",
    type=HOW_MANY,
    metavar="N",
    help="Run so many epochs, also empty ones; with --until-caught-up at most so many.",
)
@click.option(
    "--until-caught-up",
    is_flag=True,
    help="Run epochs until nothing is left to read.  [default]",
)
@click.option("--forever", is_flag=True, help="Then wait for more, until told to stop.")
@click.option(
    "--dagster/--no-dagster",
    "with_dagster",
    default=None,
    help="Make each epoch a run of Dagster.  [default: when DAGSTER_HOME is set]",
)
@click.option(
    "--metrics-port",
    type=PORT,
    metavar="PORT",
    help="Serve metrics to Prometheus at this port of 127.0.0.1; 0 is any that is free.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    pipeline: str | None,
    epochs: int | None,
    until_caught_up: bool,
    forever: bool,
    with_dagster: bool | None,
    metrics_port: int | None,
) -> int:
    """Run epochs of a pipeline. What an earlier run left unfinished is finished first.

    With DAGSTER_HOME set, each epoch is a run of Dagster, to be seen there and run again.

    Ctrl-C or SIGTERM ends it after the epoch at hand, with 0; a second one at once, with 130 or
    143. However it ends, nothing is lost or doubled: the next run goes on from there.
    """
    if forever and (epochs is not None or until_caught_up):
        raise click.UsageError("give --forever, or --epochs N and --until-caught-up", ctx)
    output = output_of(ctx)
    home = _dagster_home(with_dagster)
    model = find_model(ctx, pipeline, builds_contracts=True)
    stop = StopRequest(output.as_json)
    outlook = _Outlook()
    measuring = _telemetry(model, project_of(ctx), metrics_port)
    with measuring as telemetry, live_line() as show, stop.listen():
        done = _Progress(output, show, each_epoch=forever)

        def work() -> None:
            opened = open_pipeline(
                ctx,
                model,
                when_started=done.started,
                is_brief=lambda: not forever and not outlook.is_large,
            )
            telemetry.begin(opened)

            def look(backlog: Backlog) -> None:
                outlook.look(backlog)
                telemetry.waiting(backlog)

            def tell(event: Event) -> None:
                done.event(event)
                telemetry.follow(event, opened)

            with _runner(ctx, model, opened, done.step, home) as runner:
                loop = EpochLoop(opened, runner, tell, lambda: stop.wanted, look)
                if forever:
                    loop.run_forever(model.config.epoch.longest_wait)
                elif epochs is None or until_caught_up:
                    loop.run_until_caught_up(epochs)
                else:
                    loop.run_epochs(epochs)

        error = _caught(work, stop)
        if error is not None:
            telemetry.failed(error)
    name = str(model.config.name)
    if error is not None and not output.as_json:
        if done.total:
            output.result(dict, lambda: _blocks(done, name, ""))
        raise error
    ended = "stopped as asked" if stop.wanted else "ran as many epochs as asked for"
    if not stop.wanted and (epochs is None or (until_caught_up and done.total < epochs)):
        ended = "nothing is left to read"
    hints = [_HOW_TO_SEE] if home is None and with_dagster is None else []
    if done.spark_seconds is not None and _starts_slowly(model):
        hints.append(_HOW_TO_START_FASTER)
    output.result(lambda: _document(done, name, error), lambda: _blocks(done, name, ended, hints))
    return failure_of(error).exit_code if error else 0


def _dagster_home(with_dagster: bool | None) -> str | None:
    """Where Dagster keeps its records; None when epochs are to be run without it.

    Raises:
        InvalidDagsterHome: Dagster is wanted, and has no home.
    """
    home = os.environ.get("DAGSTER_HOME")
    if with_dagster is False or (not home and with_dagster is None):
        return None
    if home:
        return home
    from laminar_dagster.orchestration.errors import InvalidDagsterHome

    raise InvalidDagsterHome("not set", "there is nowhere to record runs")


def _starts_slowly(model: PipelineModel) -> bool:
    """Whether Spark was started here, and there was no archive of its classes."""
    from laminar_dagster.spark.class_archive import lacks_archive

    return not is_remote(model.config.spark) and lacks_archive(os.environ, model.config.spark)


@dataclass(slots=True)
class _Outlook:
    """How much is there to compute, as far as a look at the sources has told."""

    is_large: bool = False

    def look(self, backlog: Backlog) -> None:
        """Take note of what waits."""
        for source in backlog.sources:
            if source.unit and (source.amount or 0) >= _LARGE[source.unit]:
                self.is_large = True


@contextlib.contextmanager
def _telemetry(model: PipelineModel, project: Path, port: int | None) -> Iterator[Telemetry]:
    """What measures the run, as ``pipeline.yml`` and the command line say."""
    config, where = model.config.metrics, str(config_file(project, model.config.name))
    if port is not None:
        config, where = structs.replace(config, prometheus=port), "--metrics-port"
    with open_telemetry(config, model.config.name, where) as telemetry:
        if telemetry.address:
            click.echo(f"metrics at {telemetry.address}", err=True)
        yield telemetry


@contextlib.contextmanager
def _runner(
    ctx: click.Context,
    model: PipelineModel,
    opened: Pipeline,
    on_step: Callable[[EpochNumber, str], None],
    home: str | None,
) -> Iterator[Runner]:
    """What runs an epoch: by itself, or as a run of Dagster."""
    if home is None:
        yield EpochRunner(opened, on_step)
        return
    # Imported here: it takes seconds.
    from laminar_dagster.orchestration.resident import open_resident

    with open_resident(model, project_of(ctx), opened, on_step, home) as runner:
        yield runner


def _caught(work: Callable[[], None], stop: StopRequest) -> Exception | None:
    """Whatever ended the work: the epochs done before are reported all the same.

    What asks this process to stop may have ended others that it needs. That is no failure of the
    pipeline, and no bug.
    """
    try:
        work()
    except Exception as error:
        if stop.wanted and _may_come_of_it(error):
            reason = str(error) if isinstance(error, LaminarError) else type(error).__name__
            interrupted = Interrupted(stop.number, reason)
            interrupted.__cause__ = error
            return interrupted
        return error
    return None


def _may_come_of_it(error: Exception) -> bool:
    """Whether an error may be no more than that the same signal has ended Spark, or its workers."""
    return not isinstance(error, LaminarError) or isinstance(error, ComputeFailed | SparkLost)


@dataclass(slots=True)
class _Progress:
    """Follows a run: shows where it is, and keeps what it did.

    Attributes:
        now: What it is doing, in words.
        starting: Seconds that Spark took to start, until an epoch has accounted for them.
    """

    output: Output
    show: Callable[[str], None]
    each_epoch: bool
    now: str = ""
    starting: float | None = None
    spark_seconds: float | None = None
    total: int = 0
    records: int = 0
    epochs: deque[EpochSummary] = field(default_factory=lambda: deque(maxlen=_EPOCHS_KEPT))

    def started(self, seconds: float) -> None:
        """Spark has started, within the epoch at hand."""
        self.starting = seconds
        self._show()

    def step(self, epoch: EpochNumber, name: str) -> None:
        """A step begins."""
        self.now = f"epoch {epoch}: {step_words(name)}"
        is_cold = self.starting is None and self.spark_seconds is None
        self._show(", starting Spark" if name == "Compute" and is_cold else "")

    def event(self, event: Event) -> None:
        """Something happened between epochs."""
        match event:
            case EpochDone():
                self._finish(EpochSummary.of(event, self.starting or 0.0))
            case Waiting(backlog):
                what = ", ".join(
                    f"{each.source_id}: {amount_waiting(each)}" for each in backlog.sources
                )
                verb = "waiting for data" if backlog.is_empty else "waiting for more"
                self.now = f"{verb} ({what})"
                self._show()
            case Retrying(error, seconds):
                self.now = f"trying again in {seconds:g} s"
                self._show()
                self.output.warn(f"{error}; {self.now}")
            case _:
                assert_never(event)

    def _finish(self, summary: EpochSummary) -> None:
        if self.starting is not None:
            self.spark_seconds, self.starting = self.starting, None
        self.epochs.append(summary)
        self.total += 1
        self.records += summary.counts.read
        if self.each_epoch:
            click.echo(summary.line(), err=True)

    def _show(self, more: str = "") -> None:
        epochs, records = wording.count(self.total, "epoch"), wording.count(self.records, "record")
        so_far = f"  [{epochs} done, {records}]" if self.total else ""
        self.show(f"{self.now}{more}{so_far}")


_STEP_WORDS: Final = {
    "Plan": "planning",
    "Compute": "computing",
    "Gate": "checking",
    "Prepare": "preparing",
    "WriteManifest": "committing state and offsets",
    "CommitSinks": "committing to the sinks",
    "MoveLatest": "finishing",
    "Acknowledge": "finishing",
    "Collect": "collecting garbage",
}


def step_words(name: str) -> str:
    """A step of the protocol, as something that is being done."""
    return _STEP_WORDS.get(name, name)


def _document(done: _Progress, name: str, error: BaseException | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "pipeline": name,
        "epochs_done": done.total,
        "spark_start_seconds": done.spark_seconds and round(done.spark_seconds, 3),
        "epochs": [each.document() for each in done.epochs],
    }
    if error is not None:
        document["error"] = failure_of(error).as_document()
    return document


def _blocks(done: _Progress, name: str, ended: str, hints: Sequence[str] = ()) -> Iterator[Block]:
    shown = list(done.epochs)[-_ROWS_SHOWN:]
    if not shown:
        yield Line(f"Pipeline {name}: {ended}. No epoch was run.")
        return
    yield Table(COLUMNS, [each.cells() for each in shown])
    if done.total > len(shown):
        before = wording.count(done.total - len(shown), "epoch")
        yield Line(f"{before} before these; `laminar epochs list {name}` shows them.")
    yield Line()
    epochs, records = wording.count(done.total, "epoch"), wording.count(done.records, "record")
    spark = f" Spark took {done.spark_seconds:.1f} s to start." if done.spark_seconds else ""
    yield Line(f"Pipeline {name}: {epochs}, {records}{f'; {ended}' if ended else ''}.{spark}")
    newest = shown[-1].epoch
    yield Line(
        f"`laminar epochs show {newest} {name}` shows all of epoch {newest}, "
        f"`laminar status {name}` what waits now."
    )
    for hint in hints:
        yield Line(hint)
