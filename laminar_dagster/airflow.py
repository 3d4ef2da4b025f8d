"""Epochs as tasks of Airflow 3: ``LaminarEpochOperator``.

It runs the ``laminar`` command in a process of its own, so Airflow's environment needs this package
without its dependencies (``pip install --no-deps laminar-dagster``), and the command may live in
another environment, with its own Spark.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, Final

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
)

# Exit codes of errors that the same call would end in again: usage, refused, integrity.
_FINAL: Final = frozenset({2, 3, 4})


class LaminarEpochOperator(BaseOperator):  # type: ignore[misc]  # Airflow has no part in our checks
    """Runs epochs of a pipeline: by default one, if there is anything to read.

    The task is skipped when nothing is left to read. It fails for good on errors that a retry ends
    in again (a wrong configuration, a refusal, damage), and is retried as the task says on others.
    A task that is killed loses nothing: its next try goes on from the same plan.

    What the run did is the task's result in XCom, as ``laminar run --json`` prints it. Each outlet
    gets an asset event with the newest epoch, its counts and its watermark.

    Attributes:
        project: The project's folder.
        pipeline: Its name; the only one need not be named.
        epochs: At most so many; None for as many as it takes to read what waits.
        laminar: The command, if it is not on the ``PATH``: ``/venv/bin/laminar``.
        env: Variables in addition to those of the worker, such as ``JAVA_HOME``.
    """

    template_fields: ClassVar[Sequence[str]] = ("project", "pipeline", "laminar", "env")

    def __init__(
        self,
        *,
        project: str | Path,
        pipeline: str | None = None,
        epochs: int | None = 1,
        laminar: str = "laminar",
        env: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        """See the class."""
        super().__init__(**kwargs)
        self.project = str(project)
        self.pipeline = pipeline
        self.epochs = epochs
        self.laminar = laminar
        self.env = dict(env or {})
        self._process: subprocess.Popen[str] | None = None

    def execute(self, context: Any) -> dict[str, Any]:
        """Run the epochs, and return what they did."""
        code, document = self._run()
        error = document.get("error")
        if code:
            told = error or {"kind": "ended", "message": f"laminar ended with {code}", "hint": ""}
            text = f"{told['kind']}: {told['message']}. {told['hint'] or ''}".rstrip()
            raise (AirflowFailException if code in _FINAL else AirflowException)(text)
        if not document["epochs_done"]:
            raise AirflowSkipException("nothing is left to read")
        newest = document["epochs"][-1]
        for outlet in self.outlets:
            context["outlet_events"][outlet].extra = {
                "pipeline": document["pipeline"],
                **{
                    name: newest[name] for name in ("epoch", "checkpoint_id", "counts", "watermark")
                },
            }
        return document

    def on_kill(self) -> None:
        """Ask the run to end after the epoch at hand."""
        process = self._process
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)

    def _command(self) -> list[str]:
        wanted = ["--until-caught-up"]
        if self.epochs is not None:
            wanted += ["--epochs", str(self.epochs)]
        named = [self.pipeline] if self.pipeline else []
        return [
            self.laminar,
            "--project",
            self.project,
            "run",
            *named,
            *wanted,
            "--no-dagster",
            "--json",
        ]

    def _run(self) -> tuple[int, dict[str, Any]]:
        try:
            process = self._process = subprocess.Popen(
                self._command(),
                env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                # A signal for the run reaches its Spark too, and not Airflow's supervisor.
                start_new_session=True,
            )
        except OSError as error:
            raise AirflowFailException(f"{self.laminar} cannot be started: {error}") from error
        assert process.stdout is not None
        assert process.stderr is not None
        # Read beside the output: a full pipe would stop the run.
        teller = threading.Thread(target=self._tell, args=(process.stderr,), daemon=True)
        teller.start()
        text = process.stdout.read()
        code = process.wait()
        teller.join()
        try:
            return code, json.loads(text)
        except ValueError:
            return code or 1, {}

    def _tell(self, lines: IO[str]) -> None:
        for line in lines:
            self.log.info(line.rstrip())
