"""What the sensors cost while there is nothing to do: processor time of a real ``dagster dev``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from bench.dagster_project import OURS, PLAIN, DagsterProject, settings
from bench.figures import Benchmark, Figure
from bench.measure import Sample
from bench.surroundings import Surroundings
from tests.services.dagster_client import DagsterClient
from tests.services.dagster_dev import DagsterDev
from tests.services.session_guard import members

_NAME: Final = "dagster-idle"
_WINDOW: Final = 30.0
_EPOCHS: Final = 3
_SETTLING: Final = 5.0
_SENSORS: Final = {
    OURS: ("clicks_epoch_sensor", "clicks_commit_sensor"),
    PLAIN: ("prepare_sensor", "commit_sensor"),
}
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def dagster_idle(surroundings: Surroundings) -> Iterator[Figure]:
    """A minute with our sensors on, beside one with none, and one with two that do nothing."""
    project = DagsterProject.write(surroundings.folder())
    _run_epochs(project, surroundings)
    used: dict[str, list[float]] = {"": [], OURS: [], PLAIN: []}
    with DagsterDev(project.folder, dagster_yaml=settings(warm=False)) as server:
        endpoint = server.start(surroundings.folder())
        clients = {name: DagsterClient(endpoint.url, name) for name in _SENSORS}
        for _ in range(surroundings.effort.jobs):
            for on, taken in used.items():
                for location, sensors in _SENSORS.items():
                    for sensor in sensors:
                        _switch(clients[location], sensor, location == on)
                time.sleep(_SETTLING)
                taken.append(_used(server.identity.pid) * 60 / _WINDOW)
    none = Sample(tuple(used[""]))
    yield Figure(
        _NAME,
        "processor time of daemon, webserver and code servers in an idle minute, our sensors on",
        Sample(tuple(used[OURS])),
        peer="the same with no sensor on",
        peer_sample=none,
        note=f"one pipeline, {_EPOCHS} epochs in its store, both sensors every 5 s",
    )
    yield Figure(
        f"{_NAME}/plain",
        "the same, with two sensors of plain Dagster that look into a folder",
        Sample(tuple(used[PLAIN])),
        peer="the same with no sensor on",
        peer_sample=none,
        note="every 5 s, too",
    )


BENCHMARK: Final = Benchmark(
    _NAME, "processor time of the sensors with nothing to do", dagster_idle
)


def _run_epochs(project: DagsterProject, surroundings: Surroundings) -> None:
    """A store as sensors find it: not an empty one."""
    # Imported here: it imports Spark.
    from laminar_dagster.config.project import load_project
    from laminar_dagster.runtime.assembly import assemble, known_connectors
    from laminar_dagster.runtime.epoch import EpochRunner

    spark = surroundings.spark()
    (model,) = load_project(project.folder, {}, known_connectors())
    runner = EpochRunner(assemble(model, project.folder, lambda: spark))
    for number in range(1, _EPOCHS + 1):
        project.offer(number)
        runner.run()


def _switch(client: DagsterClient, sensor: str, on: bool) -> None:
    if on:
        client.start("sensor", sensor)
    elif client.is_running(sensor):
        client.stop("sensor", sensor)


def _used(leader: int) -> float:
    """Seconds of processor time that a session uses in a while."""
    before = _processor_seconds(leader)
    time.sleep(_WINDOW)
    return sum(
        seconds - before.get(pid, 0.0) for pid, seconds in _processor_seconds(leader).items()
    )


def _processor_seconds(leader: int) -> dict[int, float]:
    """Of each process of a session, with its children that have ended."""
    found: dict[int, float] = {}
    for pid in members(leader):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            # User and system time: its own, and that of children it has waited for.
            found[pid] = sum(int(field) for field in fields[11:15]) / _TICKS
    return found
