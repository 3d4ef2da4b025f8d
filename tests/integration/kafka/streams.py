"""A source on a topic of a real broker, for tests."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer

from infra.kafka import KafkaEndpoint
from laminar_dagster.core.document import FORMAT_VERSION, decode, encode
from laminar_dagster.core.ids import CheckpointId, EpochNumber, PipelineName, SourceId
from laminar_dagster.core.offsets import KafkaPosition, SourceRange
from laminar_dagster.core.plan import EpochPlan, SourcePlan
from laminar_dagster.core.ports import DecodedChunk
from laminar_dagster.sources.decoded import PlacedChunk
from laminar_dagster.sources.kafka.options import KafkaOptions
from laminar_dagster.sources.kafka.source import KafkaSource
from tests.integration.kafka.reading import wait_for
from tests.services.kafka import (
    create_topic,
    delete_topic,
    end_offsets,
    produce,
    produce_in_transaction,
)

NUMBER = pa.schema([pa.field("n", pa.int64())])
CLOCK = datetime(2030, 1, 1, tzinfo=UTC)
Chunks = list[PlacedChunk]


def encoded(number: int) -> bytes:
    return json.dumps({"n": number}).encode()


@dataclass
class TopicStream:
    """Implements ``SourceStream``: numbers in one topic."""

    endpoint: KafkaEndpoint
    topic: str
    partitions: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    schema: pa.Schema = NUMBER
    _open: Producer | None = None

    def open(self, **changes: Any) -> KafkaSource:
        base = KafkaOptions(
            bootstrap_servers=self.endpoint.bootstrap,
            topics=(self.topic,),
            group_id=f"group-{self.topic}",
        )
        options = replace(base, **{**self.options, **changes})
        return KafkaSource(SourceId("numbers"), self.schema, options)

    def append(self, numbers: Sequence[int], partition: int = 0) -> None:
        produce(self.endpoint, self.topic, [encoded(n) for n in numbers], partition=partition)

    def begin_record(self, number: int) -> bool:
        self._open = produce_in_transaction(
            self.endpoint, self.topic, [encoded(number)], end="leave open", partition=0
        )
        return True

    def end_record(self) -> None:
        assert self._open is not None
        hidden = end_offsets(self.endpoint, self.topic)
        self._open.commit_transaction(30)
        self._open = None
        # The marks of a transaction are written after its end has been reported.
        wait_for(lambda: end_offsets(self.endpoint, self.topic) != hidden)

    def replace(self) -> None:
        delete_topic(self.endpoint, self.topic)
        create_topic(self.endpoint, self.topic, self.partitions)
        self.append(range(1000, 1010))

    def numbers(self, chunk: DecodedChunk) -> list[int]:
        found: list[int] = chunk.rows.column("n").to_pylist()
        return found


def fresh_name() -> str:
    return f"test-{uuid.uuid4().hex}"


def ends(plan: SourcePlan) -> tuple[KafkaPosition, ...]:
    return tuple(part.end for part in plan.ranges if isinstance(part.end, KafkaPosition))


def bounds(part: SourceRange) -> tuple[int, int, int]:
    """The partition, and the offsets [start, end) of it."""
    assert isinstance(part.start, KafkaPosition)
    assert isinstance(part.end, KafkaPosition)
    return part.start.partition, part.start.offset, part.end.offset


def as_stored(plan: SourcePlan) -> SourcePlan:
    """The plan as another process finds it in the store."""
    document = EpochPlan(
        version=FORMAT_VERSION,
        plan_id=CheckpointId("01890a5d-ac96-774b-bcce-b302099a8057"),
        pipeline=PipelineName("numbers"),
        epoch=EpochNumber(1),
        clock=CLOCK,
        fingerprint="of a test",
        parent=None,
        sources=(plan,),
        sinks=(),
    )
    (found,) = decode(encode(document), EpochPlan, "a plan").sources
    return found


def read_plan(source: KafkaSource, plan: SourcePlan) -> dict[int, Chunks]:
    """The chunks of every partition that has something to read, its splits read side by side."""
    splits = [(bounds(part)[0], split) for part in plan.ranges for split in source.splits(part)]
    found: dict[int, Chunks] = {}
    with ThreadPoolExecutor(4) as pool:
        read = pool.map(lambda each: list(source.reader().read(each[1])), splits)
        for (partition, _), chunks in zip(splits, read, strict=True):
            found.setdefault(partition, []).extend(chunks)
    return found


def are_same(one: Chunks, two: Chunks) -> bool:
    """Whether everything but what it took to read them is the same, bit for bit."""
    return len(one) == len(two) and all(
        a.rows.equals(b.rows, check_metadata=True)
        and a.bad.equals(b.bad, check_metadata=True)
        and a.positions.equals(b.positions)
        and (a.records, a.size_bytes, a.added, a.skipped, a.schema_ids)
        == (b.records, b.size_bytes, b.added, b.skipped, b.schema_ids)
        for a, b in zip(one, two, strict=True)
    )


def placed_numbers(chunks: Chunks) -> list[tuple[int, int]]:
    """The offset and the number of each good record."""
    return [
        pair
        for chunk in chunks
        for pair in zip(
            chunk.positions.to_pylist(), chunk.rows.column("n").to_pylist(), strict=True
        )
    ]


def bad_records(chunks: Chunks) -> list[tuple[int, bytes]]:
    """The offset and the bytes of each bad one."""
    return [
        pair
        for chunk in chunks
        for pair in zip(
            chunk.bad.column("position").to_pylist(),
            chunk.bad.column("raw").to_pylist(),
            strict=True,
        )
    ]
