"""A sink beside the writer of another engine, which is installed for it: only on request.

Spark's JDBC writer has no transaction over all of its rows; Flink's sink on Kafka has one for each
checkpoint. Both are warm: an engine on a JVM gets faster for a while.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from bench.figures import Benchmark, Figure
from bench.kafka import peers
from bench.kafka.contest import Channel, ContestantFailed, Entrant, running
from bench.kafka.contestants.protocol import Job
from bench.kafka.venue import cores, venue_of
from bench.measure import Run, call, one_by_one, times_run
from bench.sinks.kafka import KafkaPlace
from bench.sinks.place import Place
from bench.sinks.postgres import PostgresPlace
from bench.sinks.rows import ROWS, flat_rows, staged, without_zone
from bench.sinks.trial import WrongRows, rates, require_rows
from bench.sinks.writer import EpochWriter
from bench.surroundings import Surroundings
from infra.errors import ServiceUnavailable
from infra.postgres import Postgres

SPARK_JDBC: Final = Entrant("spark", "Spark's JDBC writer, batches rewritten", peers.spark_jdbc)
FLINK_KAFKA: Final = Entrant("flink", "Flink's exactly-once sink on Kafka", peers.flink_kafka)
# Jobs that do not count, beside the one of `one_by_one`.
_WARM: Final = 4


@dataclass(frozen=True, slots=True)
class Target:
    """Where an engine writes to.

    Attributes:
        place: Whose sink is measured beside it.
        address: As the engine calls the server.
        table: As the engine calls its table or topic.
        settings: To get in.
    """

    place: Place
    address: str
    table: str
    settings: dict[str, str]


def spark(surroundings: Surroundings) -> Iterator[Figure]:
    """PostgreSQL, beside Spark."""
    with Postgres() as server:
        endpoint = server.start(surroundings.folder())
        place = PostgresPlace(endpoint, "append")
        place.make_schema()
        address = f"jdbc:postgresql://{endpoint.host}:{endpoint.port}/{endpoint.database}"
        settings = {"user": endpoint.user, "password": endpoint.password}
        target = Target(place, address, f'append."{SPARK_JDBC.name}"', settings)
        yield from beside(SPARK_JDBC, target, surroundings)


def flink(surroundings: Surroundings) -> Iterator[Figure]:
    """Kafka, beside Flink."""
    servers = venue_of(surroundings).servers
    place = KafkaPlace(servers, "json")
    target = Target(place, servers, place.topic(FLINK_KAFKA.name), {})
    yield from beside(FLINK_KAFKA, target, surroundings)


BENCHMARKS: Final = (
    Benchmark("sink-postgres-spark", "epochs into PostgreSQL, beside Spark's JDBC writer", spark),
    Benchmark("sink-kafka-flink", "epochs into Kafka, beside Flink's exactly-once sink", flink),
)


def beside(entrant: Entrant, target: Target, surroundings: Surroundings) -> Iterator[Figure]:
    """The sink and the engine in turns; an engine that fails has no figure."""
    place, effort = target.place, surroundings.effort
    effort = replace(effort, rounds=effort.epochs)
    rows = flat_rows(effort.scaled(ROWS))
    output = staged(rows)
    writer = EpochWriter(place.sink())
    writer.commit(output)
    place.prepare(entrant.name)
    name = f"{place.name}/rate/{entrant.name}"
    what = f"{rows.num_rows:,} rows in one epoch, {cores()} cores: {place.title}"
    warm = _WARM if effort.scale == 1 else 0
    try:
        with _engine(entrant, target, rows, surroundings) as write:
            for _ in range(warm):
                write(1)
            own, other = one_by_one(effort, call(lambda: writer.commit(output)), write)
            require_rows(place, entrant.name, 0, rows.num_rows, warm + times_run(effort))
    except (ContestantFailed, ServiceUnavailable, WrongRows) as error:
        yield Figure(name, what, None, note=str(error).splitlines()[0])
        return
    yield Figure(
        name,
        what,
        rates(rows, own),
        unit="records/s",
        peer=entrant.title,
        peer_sample=rates(rows, other),
    )


@contextmanager
def _engine(
    entrant: Entrant, target: Target, rows: pa.Table, surroundings: Surroundings
) -> Iterator[Run]:
    """A running engine, as something that writes all rows once and tells the seconds it took."""
    data = surroundings.folder()
    pq.write_table(rows, data / "rows.parquet")
    csv.write_csv(without_zone(rows), data / "rows.csv", csv.WriteOptions(include_header=False))
    with running(entrant, entrant.program(), surroundings.folder(), cores()) as channel:
        yield lambda number: sum(_one_job(channel, target, data) for _ in range(number))


def _one_job(channel: Channel, target: Target, data: Path) -> float:
    channel.send(
        Job(
            task="write",
            servers=target.address,
            topic=target.table,
            ends=(),
            format="json",
            registry="",
            schema="",
            folder=str(data),
            cores=cores(),
            settings=target.settings,
        )
    )
    seconds = float(channel.receive())
    channel.receive()
    return seconds
