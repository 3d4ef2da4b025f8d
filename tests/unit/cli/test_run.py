"""`laminar run` on a pipeline in memory; on Spark it is tried in tests/integration/cli."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from laminar_dagster.cli import run, signals
from laminar_dagster.cli.signals import StopRequest
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.core.errors import ComputeFailed, JavaMissing, SparkLost
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import Admission, Violation
from laminar_dagster.runtime import spark_start, steps
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.spark_start import start_spark
from laminar_dagster.testing.memory_pipeline import MemoryEngine
from tests.unit.cli.conditions import ClockOf2026, History, Project


class Stage:
    """A pipeline in memory behind the command."""

    def __init__(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        self.project = project
        self.history = History(project.store)
        self.changes: dict[str, Any] = {}
        self.is_brief: Callable[[], bool] = lambda: False
        monkeypatch.setattr(run, "open_pipeline", self._open)

    def _open(
        self,
        _ctx: click.Context,
        _model: PipelineModel,
        *,
        when_started: Callable[[float], None],
        is_brief: Callable[[], bool],
    ) -> Pipeline:
        when_started(0.0)
        self.is_brief = is_brief
        return replace(self.history.pipeline(), **self.changes)


@pytest.fixture
def stage(project: Project, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(project, monkeypatch)


def test_runs_until_nothing_is_left(stage: Stage) -> None:
    stage.history.arrive()
    stage.changes["limits"] = Admission(max_records=2)
    document = stage.project.laminar.json("run")
    assert document["pipeline"] == "clicks"
    assert document["epochs_done"] == 2
    assert [each["counts"]["read"] for each in document["epochs"]] == [3, 1]
    assert [each["rows_out"] for each in document["epochs"]] == [3, 1]
    assert document["epochs"][0]["steps"][0]["step"] == "Plan"
    assert "error" not in document
    again = stage.project.laminar("run", "clicks", "--until-caught-up")
    assert again.stdout == "Pipeline clicks: nothing is left to read. No epoch was run.\n"


@pytest.mark.parametrize("is_slow", [False, True])
def test_shows_a_table_and_where_to_look_next(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, is_slow: bool
) -> None:
    # Whether this machine has an archive of Spark's classes is nothing to this test.
    monkeypatch.setattr(run, "_starts_slowly", lambda _model: is_slow)
    stage.history.arrive()
    told = stage.project.laminar("run")
    head, row, _, summary, advice, dagster, *faster = told.stdout.splitlines()
    assert ["warm-up" in line for line in faster] == [True] * is_slow
    assert head.split("  ")[0] == "EPOCH"
    assert row.split()[:7] == ["1", "4", "4", "0", "0", "0", "4"]
    assert summary.startswith("Pipeline clicks: 1 epoch, 4 records; nothing is left to read.")
    assert "`laminar epochs show 1 clicks`" in advice
    assert "DAGSTER_HOME" in dagster
    assert told.stderr == ""


def test_metrics_are_served_while_it_runs(stage: Stage) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    seen: list[str] = []

    def scrape(_plan: EpochPlan) -> tuple[Violation, ...]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            seen.append(answer.read().decode())
        return ()

    history = stage.history
    history.arrive()
    stage.changes["limits"] = Admission(max_records=2)
    stage.changes["engine"] = MemoryEngine(history.checkpoints.objects, history.log, scrape)
    told = stage.project.laminar("run", "--metrics-port", str(port), "--json")
    assert told.exit_code == 0
    assert told.stderr == f"metrics at http://127.0.0.1:{port}/metrics\n"
    before, after = seen
    labels = 'partition="numbers/0",pipeline="clicks",source="numbers",unit="records"'
    lag = f"laminar_source_lag{{{labels}}}"
    # The first epoch is under way, and what the loop saw waiting is shown.
    assert f"{lag} 3.0" in before
    assert "laminar_epoch_number" not in before
    # The second is.
    assert f"{lag} 1.0" in after
    assert 'laminar_epoch_number{pipeline="clicks"} 1.0' in after
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    assert json.loads(told.stdout)["epochs_done"] == 2


def test_a_port_for_metrics_that_is_taken_is_told_before_anything_runs(stage: Stage) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        error = stage.project.laminar.error("run", "--metrics-port", port, exit_code=2)
    assert error["message"].startswith(
        f"--metrics-port: metrics cannot be served at 127.0.0.1:{port}"
    )
    assert not stage.project.store.exists()


def test_runs_as_many_as_asked_for(stage: Stage) -> None:
    document = stage.project.laminar.json("run", "--epochs", "22")
    assert document["epochs_done"] == len(document["epochs"]) == 22
    told = stage.project.laminar("run", "--epochs", "21").stdout
    assert "1 epoch before these; `laminar epochs list clicks` shows them." in told


@pytest.mark.parametrize(
    "args",
    [
        ("--epochs", "0"),
        ("--epochs", "-1"),
        ("--epochs", "two"),
        ("--epochs", "2", "--forever"),
        ("--until-caught-up", "--forever"),
    ],
)
def test_contradictions_are_usage_errors(stage: Stage, args: tuple[str, ...]) -> None:
    error = stage.project.laminar.error("run", *args, exit_code=2)
    assert error["kind"] == "usage"
    assert not stage.project.store.exists()


def test_an_error_keeps_its_exit_code_and_hides_no_epoch(stage: Stage) -> None:
    def refuse(plan: EpochPlan) -> tuple[Violation, ...]:
        return (Violation("contract", "totals", "no such luck"),) if plan.epoch % 2 == 0 else ()

    history = stage.history
    history.arrive()
    stage.changes["limits"] = Admission(max_records=2)
    stage.changes["engine"] = MemoryEngine(history.checkpoints.objects, history.log, refuse)
    told = stage.project.laminar("run")
    assert told.exit_code == 1
    assert told.stdout.splitlines()[1].split()[:2] == ["1", "3"]
    assert told.stderr.startswith("error[gate_failed]: epoch 2 did not pass")
    document = stage.project.laminar.json("run", exit_code=1)
    assert document["error"]["kind"] == "gate_failed"
    assert document["epochs_done"] == 0
    # Nothing was lost: it goes on where it stopped.
    del stage.changes["engine"]
    assert stage.project.laminar.json("run")["epochs"][0]["counts"]["read"] == 1
    assert sorted(history.table.rows) == history.log.expected()


def test_a_bug_is_reported_with_the_epochs_before_it(stage: Stage) -> None:
    def stumble(_plan: EpochPlan) -> tuple[Violation, ...]:
        raise ZeroDivisionError("ouch")

    history = stage.history
    history.arrive()
    stage.changes["engine"] = MemoryEngine(history.checkpoints.objects, history.log, stumble)
    document = stage.project.laminar.json("run", exit_code=1)
    assert document["error"]["kind"] == "internal"
    assert "this is a bug" in stage.project.laminar("run").stderr


def test_for_ever_ends_when_asked_and_tells_of_each_epoch(stage: Stage) -> None:
    class Impatient(ClockOf2026):
        """Sends a signal to this process when the loop has nothing to do."""

        naps = 0

        def sleep(self, seconds: float) -> None:
            self.naps += 1
            assert self.naps < 100
            match len(stage.history.table.epochs), len(stage.history.log.partitions[1]):
                case 1, 1:
                    stage.history.arrive()
                case 2, _:
                    os.kill(os.getpid(), signal.SIGTERM)

        def monotonic(self) -> float:
            return self.naps * 60.0

    stage.history.arrive()
    stage.changes["clock"] = Impatient()
    before = signal.getsignal(signal.SIGTERM)
    told = stage.project.laminar("run", "--forever")
    assert told.exit_code == 0
    assert signal.getsignal(signal.SIGTERM) is before
    assert "stopped as asked" in told.stdout
    assert [line.split(",")[0] for line in told.stderr.splitlines()] == [
        "epoch 1: 4 read",
        "epoch 2: 4 read",
    ]


def test_a_retry_is_told(stage: Stage) -> None:
    class Patient(ClockOf2026):
        time = 0.0

        def sleep(self, seconds: float) -> None:
            self.time += seconds
            assert self.time < 100
            if self.time > 2:
                stage.history.table.is_away = False
            if stage.history.table.epochs:
                os.kill(os.getpid(), signal.SIGINT)

        def monotonic(self) -> float:
            return self.time

    stage.project.edit("pipeline.yml", "max_delay: 5s", "max_delay: 0s")
    stage.history.arrive()
    stage.history.table.is_away = True
    stage.changes["clock"] = Patient()
    told = stage.project.laminar("run", "--forever")
    assert told.exit_code == 0
    assert "warning: sink table is away: it is away; trying again in 1 s" in told.stderr
    assert "trying again in 2 s" in told.stderr
    assert stage.history.table.ledger == 1


# --- Dagster; runs of its own are tried in tests/unit/orchestration ------------------------------


def test_nobody_is_told_of_dagster_who_wants_none_of_it(stage: Stage) -> None:
    stage.history.arrive()
    told = stage.project.laminar("run", "--no-dagster")
    assert told.exit_code == 0
    assert "DAGSTER_HOME" not in told.stdout


@pytest.mark.parametrize("home", ["relative", "/nowhere/at/all"])
def test_a_home_that_cannot_be_used_is_a_usage_error(
    stage: Stage, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.history.arrive()
    monkeypatch.setenv("DAGSTER_HOME", home)
    document = stage.project.laminar.json("run", exit_code=2)
    assert document["error"]["kind"] == "invalid_dagster_home"
    assert document["epochs_done"] == 0
    told = stage.project.laminar("run")
    assert told.stderr.startswith(f"error[invalid_dagster_home]: DAGSTER_HOME is {home}: ")
    assert "--no-dagster" in told.stderr
    assert stage.project.laminar.json("run", "--no-dagster")["epochs_done"] == 1


def test_dagster_has_to_have_a_home(stage: Stage) -> None:
    error = stage.project.laminar.error("run", "--dagster", exit_code=2)
    assert error["kind"] == "invalid_dagster_home"
    assert not stage.project.store.exists()


# --- signals, in a process of their own ---------------------------------------------------------

_PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
from laminar_dagster.cli.signals import StopRequest
stop = StopRequest(as_json=sys.argv[2] == "json", clock=iter((0.0, 60.0)).__next__)
with stop.listen():
    os.kill(os.getpid(), int(sys.argv[1]))
    assert stop.wanted
    os.kill(os.getpid(), int(sys.argv[1]))
    time.sleep(30)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_ends_at_once(number: int, code: int) -> None:
    for form in ("json", "text"):
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(int(number)), form],
            capture_output=True,
            text=True,
            timeout=20,
        )
        assert done.returncode == code
        first, *rest = done.stderr.splitlines()
        assert first == signals._ASKED
        if form == "json":
            assert json.loads(done.stdout)["error"]["exit_code"] == code
        else:
            assert rest[0].startswith("error[interrupted]: ended at once")


def test_two_signals_at_once_are_one_wish(capfd: pytest.CaptureFixture[str]) -> None:
    """`timeout` signals its child, and then the group that the child is in."""
    stop = StopRequest(clock=lambda: 0.0)
    with stop.listen():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert stop.wanted
    assert capfd.readouterr().err == f"{signals._ASKED}\n"


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", STEPS)
def test_asked_within_any_step_it_ends_after_the_epoch(
    stage: Stage,
    step: str,
    number: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    original = getattr(steps, step)
    asked = 0

    def ask(*given: object) -> object:
        nonlocal asked
        asked += 1
        signal.raise_signal(number)
        return original(*given)

    stage.history.arrive()
    stage.changes |= {"limits": Admission(max_records=2), "collect_every": 1}
    for epoch in (1, 2):
        with monkeypatch.context() as patching:
            patching.setattr(steps, step, ask)
            told = stage.project.laminar("run")
        assert (told.exit_code, asked) == (0, epoch), told.stderr
        assert (told.stderr, capfd.readouterr().err) == ("", f"{signals._ASKED}\n")
        assert "stopped as asked" in told.stdout
        assert stage.history.table.ledger == epoch
    assert stage.project.laminar("run").exit_code == 0
    assert sorted(stage.history.table.rows) == stage.history.log.expected()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    "error",
    [
        SparkLost("it was ended by signal 15"),
        ComputeFailed("the epoch's job", "Python worker exited unexpectedly"),
        ConnectionRefusedError("refused"),
    ],
)
def test_what_else_the_signal_ended_is_no_bug(
    stage: Stage,
    error: Exception,
    number: signal.Signals,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lose(*_given: object) -> None:
        signal.raise_signal(number)
        raise error

    stage.history.arrive()
    with monkeypatch.context() as patching:
        patching.setattr(steps, "compute", lose)
        told = stage.project.laminar("run")
        assert told.exit_code == code
        stopped, hint = told.stderr.splitlines()
        assert stopped.startswith("error[interrupted]: stopped as asked, before the epoch at hand")
        assert "nothing is lost or doubled" in hint
        document = stage.project.laminar.json("run", exit_code=code)
        assert document["error"]["kind"] == "interrupted"
    assert stage.project.laminar("run").exit_code == 0
    assert sorted(stage.history.table.rows) == stage.history.log.expected()


def test_without_a_signal_a_lost_spark_is_told_by_name(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*_given: object) -> None:
        raise SparkLost("it was ended by signal 9")

    stage.history.arrive()
    monkeypatch.setattr(steps, "compute", lose)
    told = stage.project.laminar("run")
    assert told.exit_code == 1
    assert told.stderr.startswith("error[spark_lost]: Spark's Java process is gone: it was ended")
    assert "spark.driver.memory" in told.stderr


def test_listening_ends_with_the_work() -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with StopRequest().listen():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


# --- the start of Spark -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "large", "is_brief"),
    [
        (("--epochs", "1"), 1, True),
        (("--until-caught-up",), 1_000_000, True),
        (("--until-caught-up",), 4, False),
        ((), 4, False),
        (("--forever",), 1_000_000, False),
    ],
)
def test_spark_is_told_whether_it_will_compute_little(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    large: int,
    is_brief: bool,
) -> None:
    monkeypatch.setattr(run, "_LARGE", {"records": large, "bytes": large})
    told: list[bool] = []
    compute = steps.compute

    def ask(*given: Any, **named: Any) -> Any:
        # As a session does that starts with the first epoch.
        told.append(stage.is_brief())
        if "--forever" in arguments:
            signal.raise_signal(signal.SIGTERM)
        return compute(*given, **named)

    stage.history.arrive()
    monkeypatch.setattr(steps, "compute", ask)
    assert stage.project.laminar("run", *arguments).exit_code == 0
    assert told[0] is is_brief


@pytest.mark.parametrize("lacks", [True, False])
def test_a_start_without_an_archive_says_what_would_help(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, lacks: bool
) -> None:
    monkeypatch.setattr(run, "_starts_slowly", lambda _model: lacks)
    stage.history.arrive()
    told = stage.project.laminar("run").stdout
    assert ("`laminar warm-up`" in told) is lacks


def test_a_missing_java_is_told_before_spark_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match="not on the PATH"):
        start_spark({})
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match="has no bin/java"):
        start_spark({})


def test_without_java_the_epoch_is_planned_and_waits(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    document = project.laminar.json("run", exit_code=2)
    assert document["epochs"] == []
    assert document["error"]["kind"] == "java_missing"
    (unfinished,) = project.laminar.json("status")["unfinished"]
    assert (unfinished["epoch"], unfinished["next_step"]) == (1, "Compute")


def test_every_wrong_option_is_told_before_anything_is_made(project: Project) -> None:
    project.edit("sources.sql", "format = 'ndjson'", "format = 'json'")
    project.edit("sinks.sql", "mode = 'upsert'", "mood = 'upsert'")
    told = project.laminar("run")
    assert told.exit_code == 2
    assert "`format` must be one of" in told.stderr
    assert "unknown option `mood`" in told.stderr
    assert not project.store.exists()


def test_only_the_usual_lines_are_kept_from_standard_error() -> None:
    program = """
import os, subprocess, sys
from laminar_dagster.runtime.spark_start import _without_noise
with _without_noise():
    text = 'x WARN NativeCodeLoader: Unable\\nERROR real trouble\\nTo adjust logging level use sc.setLogLevel(n)\\n'
    child = subprocess.Popen([sys.executable, "-c", f"import os, time; time.sleep(1); os.write(2, {text.encode()!r})"])
print("own words", file=sys.stderr, flush=True)
child.wait()
import time; time.sleep(0.5)
"""  # noqa: E501
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    # What a child says after the start counts as well, and what is not noise arrives.
    assert done.stderr.splitlines() == ["own words", "ERROR real trouble"]
    assert spark_start._NOISE
