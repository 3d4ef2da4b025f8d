"""Messages whose event time is too far ahead of the plan's clock, by every way to fetch them."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from infra.kafka import KafkaEndpoint
from laminar_dagster.core import layout
from laminar_dagster.core.document import to_utc_microseconds
from laminar_dagster.core.ids import CheckpointId
from laminar_dagster.core.ports import Admission
from laminar_dagster.sources.formats.arrow_types import arrow_schema
from laminar_dagster.sources.kafka.source import KafkaSource
from laminar_dagster.sources.kafka.traits import METADATA
from laminar_dagster.spark.columns import CONTROL
from laminar_dagster.spark.lateness import AheadBound
from laminar_dagster.spark.scan import Scan, ScanStep, Split
from laminar_dagster.testing.memory_store import MemoryStore
from tests.integration.kafka.reading import Kind
from tests.integration.kafka.streams import TopicStream
from tests.services.kafka import Outgoing, TopicFactory, produce

pytestmark = [pytest.mark.service("kafka")]

CLOCK = datetime(2026, 1, 1, tzinfo=UTC)
NOW = to_utc_microseconds(CLOCK)
DAY = 86_400_000_000
ATTEMPT = CheckpointId("01890a5d-ac96-774b-bcce-b302099a8057")
FIELDS = [
    pa.field("n", pa.int64()),
    pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
]


def scanned(source: KafkaSource, time_column: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the task that reads the only partition reports, and what it sets aside."""
    plan = source.plan(None, (), Admission(), CLOCK)
    (part,) = plan.ranges
    store = MemoryStore()
    scan = Scan(
        source_id=source.source_id,
        schema=source.schema,
        reader=source.reader(),
        splits=(Split(0, part, None),),
        time_column=time_column,
        delay=0,
        floor=None,
        fail_on_bad=False,
        store=store,
        attempt=ATTEMPT,
        bound=AheadBound(NOW, DAY),
    )
    told = [
        json.loads(each)
        for batch in ScanStep(scan).read(0)
        for each in batch.column(CONTROL).to_pylist()
        if each
    ]
    letters: list[dict[str, Any]] = []
    for each in told[-1]["files"]:
        data = store.read(layout.checkpoint_key(ATTEMPT, each["path"]))
        letters += pa.ipc.open_file(io.BytesIO(data)).read_all().to_pylist()
    return told[-1], letters


def line(n: int, at: str) -> bytes:
    return json.dumps({"n": n, "at": at}).encode()


def test_a_message_of_the_year_9999_moves_no_watermark(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory, kind: Kind
) -> None:
    topic = kafka_topic()
    far = line(2, "9999-12-31T23:59:59Z")
    sent = [line(1, "2026-01-01T00:00:00Z"), far, b"nonsense", line(3, "2026-01-01T00:00:00Z")]
    produce(kafka_service, topic, sent)
    stream = TopicStream(kafka_service, topic, schema=pa.schema(FIELDS))
    report, letters = scanned(stream.open(reader=kind), "at")
    assert (report["read"], report["passed"], report["late"], report["dead"]) == (4, 2, 0, 2)
    assert (report["ahead"], report["watermark"]) == (1, NOW)
    assert [(each["partition"], each["position"], each["raw"]) for each in letters] == [
        (f"{topic}/0", 1, far),
        (f"{topic}/0", 2, b"nonsense"),
    ]
    assert letters[0]["reason"] == (
        "event time 9999-12-31T23:59:59Z is further ahead of the epoch's clock, "
        "2026-01-01T00:00:00Z, than `watermark.max.ahead` = '1d' allows"
    )


@pytest.mark.parametrize("reader", ["portable", "auto"])
def test_the_time_of_a_message_counts_as_well_where_it_is_event_time(
    kafka_service: KafkaEndpoint, kafka_topic: TopicFactory, reader: str
) -> None:
    """Whoever writes a message chooses its time, if the topic takes any: by default, an hour."""
    topic = kafka_topic(config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    within, beyond = (NOW + DAY) // 1000, (NOW + DAY) // 1000 + 1
    sent = [
        Outgoing(b'{"n": 1}', timestamp=NOW // 1000),
        Outgoing(b'{"n": 2}', timestamp=within),
        Outgoing(b'{"n": 3}', timestamp=beyond),
        Outgoing(b'{"n": 4}', timestamp=253_402_300_799_999),
    ]
    produce(kafka_service, topic, sent)
    schema = pa.schema([FIELDS[0], *arrow_schema(METADATA)])
    stream = TopicStream(kafka_service, topic, schema=schema)
    source = stream.open(reader=reader, include_metadata=True)
    report, letters = scanned(source, "_timestamp")
    assert (report["passed"], report["ahead"], report["watermark"]) == (2, 2, NOW + DAY)
    assert [(each["position"], each["raw"]) for each in letters] == [
        (2, b'{"n": 3}'),
        (3, b'{"n": 4}'),
    ]
    assert "event time 9999-12-31T23:59:59.999Z is" in letters[1]["reason"]
