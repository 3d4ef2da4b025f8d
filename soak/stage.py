"""The servers, the wires to them, and the project."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from examples.kafka_orders import topic
from examples.kafka_orders.failure import DemoFailed
from examples.kafka_orders.home import Home
from examples.kafka_orders.processes import temporary_files_in
from infra.errors import ServiceFailed
from infra.faulty_wire import FaultyWire
from infra.kafka import Kafka, KafkaEndpoint, Listener
from infra.postgres import Postgres

_PASSWORD: Final = "SOAK_POSTGRES_PASSWORD"
_PROXIED: Final = "PROXIED"
_OUTPUT: Final = "product-sales"
# A pipeline that was killed with its transaction open is waited for no longer than need be.
_BROKER: Final = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
_SINKS: Final = """\
-- All of them append: a row that came twice would stay twice.
CREATE SINK sales FROM product_sales WITH (
    connector = 'postgres',
    host = '{host}',
    port = '{port}',
    database = '{database}',
    user = '{user}',
    password = '${{{password}}}',
    sslmode = 'disable',
    table = 'product_sales',
    lock_timeout = '10s',
    idle_timeout = '5s'
);

CREATE SINK sales_topic FROM product_sales WITH (
    connector = 'kafka',
    'bootstrap.servers' = '{kafka}',
    topic = '{topic}',
    'key.columns' = 'product',
    partitions = '4',
    replication = '1',
    'transaction.timeout.ms' = '10000'
);

CREATE SINK sales_lake FROM product_sales WITH (
    connector = 'delta',
    path = 'output/product_sales'
);
"""
_RESTARTS: Final = 30
_PATIENCE: Final = 30.0


@dataclass(slots=True)
class Stage:
    """What the pipeline runs on.

    Attributes:
        servers: The broker, for those whom no fault befalls.
        postgres_wire: The pipeline's way to PostgreSQL.
        kafka_wire: Its way to Kafka.
    """

    home: Home
    kafka: Kafka
    postgres: Postgres
    servers: str
    postgres_wire: FaultyWire
    kafka_wire: FaultyWire

    def restart_postgres(self) -> None:
        """Kill it, and start it anew on what it left."""
        os.kill(self.postgres.identity.pid, signal.SIGKILL)
        self.postgres.stop()
        self.postgres_wire.cut()
        for _ in range(_RESTARTS):
            try:
                endpoint = self.postgres.start(self.home.folder / "postgres")
            except ServiceFailed:
                # What the killed one left behind has not gone yet.
                time.sleep(0.5)
                continue
            self.postgres_wire.forward_to(endpoint.host, endpoint.port)
            return
        raise ServiceFailed("postgres", "it does not start again")

    def restart_kafka(self) -> None:
        """Kill it, and start it anew, at the same address."""
        self.kafka.kill()
        self.kafka.start(self.home.broker)

    def restore(self) -> None:
        """No fault is left."""
        self.postgres_wire.restore()
        self.kafka_wire.restore()

    def postgres_rows(self) -> pa.Table:
        """What the sink there holds, as a plain client reads it."""
        endpoint = self.postgres.endpoint
        with psycopg.connect(endpoint.dsn(), autocommit=True) as connection:
            found = connection.execute("SELECT * FROM product_sales")
            names = [column.name for column in found.description or ()]
            rows = found.fetchall()
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        return pa.table(dict(zip(names, columns, strict=True)))

    def kafka_rows(self) -> pa.Table:
        """What a consumer sees there that reads nothing but what is committed."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "soak",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        rows: list[dict[str, Any]] = []
        with closing(consumer):
            left = set(consumer.list_topics(_OUTPUT, _PATIENCE).topics[_OUTPUT].partitions)
            consumer.assign([TopicPartition(_OUTPUT, partition, 0) for partition in left])
            while left:
                message = consumer.poll(_PATIENCE)
                if message is None:
                    raise DemoFailed(f"topic {_OUTPUT} gave nothing within {_PATIENCE:g} s")
                error, partition = message.error(), message.partition()
                if error is None:
                    # Decimals as texts, so that none becomes a float.
                    rows.append(json.loads(message.value() or b"", parse_float=str))
                elif error.code() == KafkaError._PARTITION_EOF and partition is not None:  # noqa: SLF001
                    left.discard(partition)
                else:
                    raise KafkaException(error)
        return pa.Table.from_pylist(rows)


@contextmanager
def set_up(home: Home) -> Iterator[Stage]:
    """Start everything that the pipeline needs, and write its project.

    Raises:
        ServiceUnavailable: A server cannot be installed here.
        ServiceFailed: It does not start.
    """
    with ExitStack() as stack:
        wires: list[FaultyWire] = []

        def put_wire_in_front(port: int) -> tuple[str, int]:
            wires.append(stack.enter_context(FaultyWire("127.0.0.1", port)))
            return wires[-1].host, wires[-1].port

        listener = Listener(_PROXIED, advertise=put_wire_in_front)
        jvm = temporary_files_in(str(home.scratch))
        kafka = stack.enter_context(Kafka(_BROKER, listeners=[listener], jvm=jvm))
        broker: KafkaEndpoint = kafka.start(home.broker)
        postgres = stack.enter_context(Postgres())
        database = postgres.start(home.folder / "postgres")
        wire = stack.enter_context(FaultyWire(database.host, database.port))
        topic.create(broker.bootstrap)
        home.write_project(broker.bootstrap_of(_PROXIED))
        (home.config / "sinks.sql").write_text(
            _SINKS.format(
                host=wire.host,
                port=wire.port,
                database=database.database,
                user=database.user,
                password=_PASSWORD,
                kafka=broker.bootstrap_of(_PROXIED),
                topic=_OUTPUT,
            )
        )
        os.environ[_PASSWORD] = database.password
        yield Stage(home, kafka, postgres, broker.bootstrap, wire, wires[-1])
