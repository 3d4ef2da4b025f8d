"""From new data to sinks that have it, through the sensors of a real ``dagster dev``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

from bench.dagster_project import OURS, PLAIN, DagsterProject, seconds_until, settings
from bench.figures import Benchmark, Figure
from bench.measure import Sample
from bench.surroundings import Surroundings
from infra.spark_connect import SparkConnect
from tests.services.dagster_client import DagsterClient
from tests.services.dagster_dev import DagsterDev

_NAME: Final = "dagster-latency"
_PEER: Final = "plain Dagster, two trivial runs"
_SENSORS: Final = {
    OURS: ("clicks_epoch_sensor",),
    PLAIN: ("prepare_sensor", "commit_sensor"),
}


def dagster_latency(surroundings: Surroundings) -> Iterator[Figure]:
    """One record, through both sensors and both runs, beside the same in plain Dagster."""
    with ExitStack() as stack:
        server = stack.enter_context(SparkConnect({"spark.master": "local[2]"}))
        variables = server.start(surroundings.folder()).environment()
        yield from _measure(surroundings, "default", variables, "Spark Connect beside it")
    yield from _measure(surroundings, "warm", {}, "Spark within the worker")


BENCHMARK: Final = Benchmark(
    _NAME, "new data to committed sinks through the sensors, default and warm", dagster_latency
)


def _measure(
    surroundings: Surroundings, launcher: str, variables: Mapping[str, str], spark: str
) -> Iterator[Figure]:
    project = DagsterProject.write(surroundings.folder())
    warm = launcher == "warm"
    own: list[float] = []
    plain: list[float] = []
    runs: dict[str, list[float]] = {"epoch": [], "commit": []}
    workers: set[str] = set()
    with DagsterDev(
        project.folder, dagster_yaml=settings(warm=warm), environment=variables
    ) as server:
        endpoint = server.start(surroundings.folder())
        for location, sensors in _SENSORS.items():
            client = DagsterClient(endpoint.url, location)
            for sensor in sensors:
                client.start("sensor", sensor)
        # The first round starts Spark's workers, and does not count.
        for number in range(1, surroundings.effort.jobs + 2):
            project.offer(number)
            taken = seconds_until(partial(project.has_committed, number), "the sink")
            project.offer_plain(number)
            beside = seconds_until(partial(project.plain_has_committed, number), "the peer")
            if number > 1:
                own.append(taken)
                plain.append(beside)
                for what in runs:
                    newest = _Newest.of(DagsterClient(endpoint.url, OURS), f"clicks_{what}")
                    runs[what].append(newest.seconds)
                    workers.add(newest.worker)
    whole, peer = Sample(tuple(own)), Sample(tuple(plain))
    yield Figure(
        f"{_NAME}/{launcher}",
        f"one new record to a committed sink, {launcher} launcher",
        whole,
        peer=_PEER,
        peer_sample=peer,
        note=f"{spark}; both look for new data every 5 s, so up to 10 s of it is waiting"
        + (f"; workers in the rounds that count: {len(workers)}" if warm else ""),
    )
    for what, lengths in runs.items():
        yield Figure(
            f"{_NAME}/{launcher}/{what}",
            f"of it the {what} run, from its launch to its end",
            Sample(tuple(lengths)),
            peer="from the data to the sink",
            peer_sample=whole,
        )


@dataclass(frozen=True, slots=True)
class _Newest:
    """The newest run of a job.

    Attributes:
        seconds: How long it took since it left the queue.
        worker: The process that a warm launcher gave it to.
    """

    seconds: float
    worker: str

    @classmethod
    def of(cls, client: DagsterClient, job: str) -> _Newest:
        """Wait for its end."""
        run = client.runs(job=job, limit=1)[0]
        client.wait(run.run_id, "SUCCESS")
        answer = client.query(
            """query ($run: ID!) {
                runOrError(runId: $run) {
                    ... on Run { stats { ... on RunStatsSnapshot { launchTime endTime } } }
                }
            }""",
            run=run.run_id,
        )
        stats = answer["runOrError"]["stats"]
        worker = client.run(run.run_id).tags.get("laminar/worker", "")
        return cls(stats["endTime"] - stats["launchTime"], worker)
