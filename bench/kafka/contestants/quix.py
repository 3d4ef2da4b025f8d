"""Quix Streams: a process for each core, in one consumer group, each with its own state.

Timed from the definition of the application to its last commit. A minute is told by the message's
own timestamp, which is the click's: the text in the value is decoded, but never parsed.
"""

from __future__ import annotations

import csv
import json
import multiprocessing
import signal
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

from quixstreams import Application  # type: ignore[import-not-found]
from quixstreams.dataframe.windows import (  # type: ignore[import-not-found]
    Count,
    Max,
    Mean,
    Sum,
)
from quixstreams.models.serializers import (  # type: ignore[import-not-found]
    JSONDeserializer,
)
from quixstreams.sinks.core.csv import CSVSink  # type: ignore[import-not-found]

from bench.kafka.contestants.protocol import Job, Row, serve

_LOOK_SECONDS = 0.02


class Quix:
    """Runs applications in processes that are there already."""

    def __init__(self, cores: int) -> None:
        """Start the processes."""
        context = multiprocessing.get_context("fork")
        self._left = context.Value("i", 0)
        self._workers: list[Connection] = []
        for number in range(cores):
            here, there = context.Pipe()
            worker = context.Process(target=_work, args=(number, there, self._left), daemon=True)
            worker.start()
            self._workers.append(here)

    def run(self, job: Job) -> float:
        """One application over the topic, until all partitions are read."""
        begun = time.perf_counter()
        self._left.value = len(job.ends)
        for worker in self._workers:
            worker.send(job)
        trouble = [worker.recv() for worker in self._workers]
        if any(trouble):
            raise RuntimeError("\n".join(trouble))
        return time.perf_counter() - begun

    def rows(self, job: Job) -> list[Row]:
        """What is in the files of all processes."""
        found: list[Row] = []
        for path in job.path.glob("out-*.csv"):
            with path.open(newline="") as file:
                found += [_row(line) for line in csv.DictReader(file)]
        return found


def _work(number: int, channel: Connection, left: Any) -> None:
    while True:
        try:
            job: Job = channel.recv()
        except EOFError:
            return
        trouble = ""
        try:
            _run(number, job, left)
        except Exception:
            trouble = traceback.format_exc()
            # The others would wait for its partitions.
            left.value = 0
        # An application takes the signal for itself, and a worker would outlive its parent.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        channel.send(trouble)


def _run(number: int, job: Job, left: Any) -> None:
    last = [end - 1 for end in job.ends]

    def processed(topic: str, partition: int, offset: int) -> None:
        if offset == last[partition]:
            with left.get_lock():
                left.value -= 1

    application = Application(
        broker_address=job.servers,
        consumer_group=f"quix-{job.path.name}",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        state_dir=str(job.path / f"state-{number}"),
        on_message_processed=processed,
        consumer_poll_timeout=_LOOK_SECONDS,
        loglevel="WARNING",
    )
    topic = application.topic(
        job.topic, key_deserializer="str", value_deserializer=_deserializer(job)
    )
    clicks = application.dataframe(topic)
    counted = (
        clicks.tumbling_window(60_000, grace_ms=5_000)
        .agg(
            clicks=Count(),
            total=Sum(column="n"),
            mean=Mean(column="amount"),
            most=Max(column="amount"),
        )
        .final(closing_strategy="partition")
    )
    counted.sink(CSVSink(str(job.path / f"out-{number}.csv")))
    threading.Thread(target=_stop_when_read, args=(application, left), daemon=True).start()
    application.run(collect=False)


def _stop_when_read(application: Any, left: Any) -> None:
    """Stop the application when no process has a partition left to read."""
    while left.value > 0:
        time.sleep(_LOOK_SECONDS)
    application.stop()


def _deserializer(job: Job) -> Any:
    if job.format != "avro":
        return JSONDeserializer()
    # Imported here: clients of a registry are slow to load, and JSON needs none.
    from quixstreams.models.serializers.avro import (  # type: ignore[import-not-found]
        AvroDeserializer,
    )
    from quixstreams.models.serializers.schema_registry import (  # type: ignore[import-not-found]
        SchemaRegistryClientConfig,
    )

    config = SchemaRegistryClientConfig(url=job.registry)
    return AvroDeserializer(schema_registry_client_config=config)


def _row(line: dict[str, str]) -> Row:
    value = json.loads(line["value"])
    return (
        line["key"],
        value["start"],
        value["clicks"],
        value["total"],
        value["mean"],
        value["most"],
    )


if __name__ == "__main__":
    serve(Quix)
