"""Clicks in a topic, the same ones on every machine, and what is to come of them.

A page is always in the same partition, as a producer that partitions by key would have it. Each
partition ends with one click an hour later, so that every window before it is closed in all
systems alike; its own window is compared by nobody.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.clickstream import click_lines
from bench.kafka.contestants.protocol import Row

LAST_PAGE: Final = "/page/99999999"
AVRO_SCHEMA: Final = json.dumps(
    {
        "type": "record",
        "name": "Click",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "page", "type": "string"},
            {"name": "amount", "type": "double"},
            {"name": "n", "type": "int"},
            {"name": "user", "type": "string"},
        ],
    }
)
_LAST: Final = 99_999_999
_DISORDER_MILLIS: Final = 2_000
_HOUR_MILLIS: Final = 3_600_000
_MINUTE: Final = 60_000
_CLICK_SCHEMA: Final = pa.schema(
    [
        ("at", pa.timestamp("ms", tz="UTC")),
        ("page", pa.string()),
        ("amount", pa.float64()),
        ("n", pa.int32()),
        ("user", pa.string()),
    ]
)
_PRODUCER: Final = {
    "linger.ms": 50,
    "compression.type": "lz4",
    "batch.size": 1024 * 1024,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 1_000_000,
    "acks": 1,
}
_PATIENCE: Final = 120.0


@dataclass(frozen=True, slots=True)
class ClickTopic:
    """How much of it.

    Attributes:
        records: Of all partitions; each has one more.
        seconds: Of event time.
        keys: Pages, each as likely as the other.
        schema_id: Of the Avro schema in the registry, for format avro.
    """

    records: int
    partitions: int
    seconds: int = 1_800
    keys: int = 1_000
    format: str = "json"
    schema_id: int = 0
    seed: int = 1
    _tables: dict[int, pa.Table] = field(default_factory=dict, compare=False, repr=False)

    @property
    def name(self) -> str:
        """Of the topic."""
        return f"clicks-{self.format}-{self.records}-{self.partitions}"

    @property
    def ends(self) -> tuple[int, ...]:
        """How many messages each partition holds."""
        return (self.records // self.partitions + 1,) * self.partitions

    @property
    def total(self) -> int:
        """How many messages there are."""
        return sum(self.ends)

    def lines(self, partition: int) -> bytes:
        """The messages of a partition as lines of JSON."""
        chance = np.random.default_rng((self.seed, partition))
        count = self.records // self.partitions
        length = self.seconds * 1000
        offset = np.arange(count) * length // count
        millis = np.maximum(offset - chance.integers(0, _DISORDER_MILLIS, count), 0)
        chosen = chance.integers(0, max(1, self.keys // self.partitions), count)
        pages = chosen * self.partitions + partition
        return click_lines(
            np.append(millis, length + _HOUR_MILLIS), np.append(pages, _LAST), chance
        )

    def clicks(self, partition: int) -> pa.Table:
        """The messages of a partition, decoded by none of the contestants."""
        if partition not in self._tables:
            options = pj.ParseOptions(explicit_schema=_CLICK_SCHEMA)
            source = pa.BufferReader(self.lines(partition))
            self._tables[partition] = pj.read_json(source, parse_options=options)
        return self._tables[partition]

    def expected(self) -> list[Row]:
        """What every contestant has to write: a row for each page and minute, sorted."""
        table = pa.concat_tables([self.clicks(each) for each in range(self.partitions)])
        minutes = _minutes(table.column("at"))
        counted = (
            table.append_column("minute", pa.array(minutes))
            .group_by(["page", "minute"])
            .aggregate([("n", "count"), ("n", "sum"), ("amount", "mean"), ("amount", "max")])
        )
        rows = zip(*(counted.column(name).to_pylist() for name in _RESULT), strict=True)
        return comparable([(row[0], row[1], row[2], row[3], row[4], row[5]) for row in rows])

    def expected_sums(self) -> list[Row]:
        """What every contestant has to find in a scan."""
        table = pa.concat_tables([self.clicks(each) for each in range(self.partitions)])
        amount = float(np.sum(table.column("amount").to_numpy()))
        latest = int(table.column("at").cast(pa.int64()).to_numpy().max())
        total = int(np.sum(table.column("n").to_numpy()))
        texts = pc.add(pc.utf8_length(table.column("page")), pc.utf8_length(table.column("user")))
        return [("", latest, int(pc.sum(texts).as_py()), total, amount, float(len(table)))]

    def messages(self, partition: int) -> Iterator[tuple[bytes, bytes, int]]:
        """Key, value and timestamp of each message."""
        table = self.clicks(partition)
        keys = table.column("page").to_pylist()
        times = table.column("at").cast(pa.int64()).to_pylist()
        values = self._avro(table) if self.format == "avro" else self.lines(partition).splitlines()
        for key, value, moment in zip(keys, values, times, strict=True):
            yield key.encode(), value, moment

    def _avro(self, table: pa.Table) -> list[bytes]:
        schema = fastavro.parse_schema(json.loads(AVRO_SCHEMA))
        header = b"\0" + self.schema_id.to_bytes(4)
        found = []
        for click in table.to_pylist():
            buffer = io.BytesIO()
            fastavro.schemaless_writer(buffer, schema, click)
            found.append(header + buffer.getvalue())
        return found

    def produce(self, servers: str) -> int:
        """Create the topic and fill it; the bytes of all values."""
        # The clicks are as old as they like.
        config = {"retention.ms": "-1", "segment.bytes": str(1 << 30)}
        admin = AdminClient({"bootstrap.servers": servers})
        topic = NewTopic(self.name, self.partitions, 1, config=config)
        admin.create_topics([topic], operation_timeout=_PATIENCE)[self.name].result(_PATIENCE)
        size = 0
        settings: dict[str, Any] = {"bootstrap.servers": servers, **_PRODUCER}
        producer = Producer(settings)
        for partition in range(self.partitions):
            for number, (key, value, moment) in enumerate(self.messages(partition)):
                producer.produce(self.name, value, key, partition=partition, timestamp=moment)
                size += len(value)
                if number % 10_000 == 0:
                    producer.poll(0)
            if producer.flush(_PATIENCE):
                raise TimeoutError(f"topic {self.name} was not filled within {_PATIENCE:g} s")
        return size


_RESULT: Final = ("page", "minute", "n_count", "n_sum", "amount_mean", "amount_max")


def comparable(rows: list[Row]) -> list[Row]:
    """Rows in an order of their own, without the windows that only some systems close."""
    return sorted(row for row in rows if row[0] != LAST_PAGE)


def _minutes(moments: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    millis: npt.NDArray[np.int64] = moments.cast(pa.int64()).to_numpy()
    return millis - millis % _MINUTE
