"""What is in the messages, where they go, and what the registry knows of them."""

from __future__ import annotations

import io
import json
import urllib.request
import uuid
from dataclasses import replace
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from google.protobuf import message_factory

from infra.kafka import KafkaEndpoint
from infra.load import Deadline
from infra.schema_registry import SchemaRegistryEndpoint
from laminar_dagster.clients.kafka.asker import Asker
from laminar_dagster.clients.kafka.cluster import Cluster
from laminar_dagster.clients.kafka.options import RegistryOptions
from laminar_dagster.clients.kafka.partition_reader import PartitionReader
from laminar_dagster.clients.kafka.transactions import (
    STATE_TOPIC,
    Transaction,
    find_transactions,
    identity_of,
    partition_of,
    transaction_of,
)
from laminar_dagster.core.errors import (
    BufferOverflow,
    InvalidConfig,
    LedgerMismatch,
    SinkUnavailable,
    WriteFailed,
)
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import FileEntry
from laminar_dagster.core.offsets import KafkaPosition
from laminar_dagster.core.ports import GroupOffsets, StagedOutput
from laminar_dagster.encoding.protobuf_schema import MAIN, compile_proto, load
from laminar_dagster.sinks.kafka.options import NewTopics
from laminar_dagster.sinks.kafka.producer import TransactionalProducer, transactional_id
from laminar_dagster.sinks.kafka.sink import EPOCH_HEADER, SINK_HEADER
from tests.integration.sinks.kafka_place import LIMITS, KafkaPlace, messages
from tests.services.kafka import (
    TopicFactory,
    client_settings,
    committed,
    create_topic,
    grow_topic,
)
from tests.unit.sinks.staging import SINK, staged

pytestmark = pytest.mark.service("kafka")

ROWS = pa.table({"key": [1, 2, 3], "value": ["a", "ü", None], "cents": [7, None, 9]})


@pytest.fixture
def place(kafka_service: KafkaEndpoint) -> KafkaPlace:
    return KafkaPlace.new(kafka_service.bootstrap)


def found(place: KafkaPlace) -> list[Message]:
    return [*messages(place.bootstrap, place.topic(SINK))]


def values(place: KafkaPlace) -> list[Any]:
    return [json.loads(bytes(each.value() or b"null")) for each in found(place)]


# --- headers, keys, partitions --------------------------------------------------------------------


def test_every_message_says_whose_and_of_which_epoch_it_is(place: KafkaPlace) -> None:
    sink = place.sink(SINK, key_columns=("key",))
    for epoch in (1, 2):
        sink.commit(EpochNumber(epoch), staged(ROWS))
    told = [dict(each.headers() or ()) for each in found(place)]
    assert {each[SINK_HEADER] for each in told} == {f"{place.pipeline}/table".encode()}
    assert sorted(str(each[EPOCH_HEADER]) for each in told) == ["b'1'"] * 3 + ["b'2'"] * 3


def test_keys_go_where_a_producer_with_javas_rule_puts_them(
    place: KafkaPlace, kafka_service: KafkaEndpoint, kafka_topic: TopicFactory
) -> None:
    place = replace(place, partitions=5)
    texts = [f"key {number}" for number in range(200)] + ["", "é" * 40]
    sink = place.sink(SINK, key_columns=("key",), key_format="raw", value_columns=("value",))
    sink.commit(EpochNumber(1), staged(pa.table({"key": texts, "value": texts})))
    own = {bytes(each.key() or b""): each.partition() for each in found(place)}

    theirs = kafka_topic(5)
    producer = Producer({**client_settings(kafka_service), "partitioner": "murmur2"})
    for text in texts:
        producer.produce(theirs, key=text.encode())
    producer.flush(20)
    assert own == {
        bytes(each.key() or b""): each.partition() for each in messages(place.bootstrap, theirs)
    }
    assert set(own.values()) == set(range(5))


def test_rows_without_a_key_take_turns_and_do_so_again(place: KafkaPlace) -> None:
    place = replace(place, partitions=3)
    rows = pa.table({"key": [*range(7)], "value": [""] * 7})
    for pipeline in (place, KafkaPlace.new(place.bootstrap, partitions=3)):
        pipeline.sink(SINK).commit(EpochNumber(4), staged(rows[:4], rows[4:], joined_at=4))
        went = {
            json.loads(bytes(each.value() or b""))["key"]: each.partition()
            for each in found(pipeline)
        }
        assert went == {number: (4 + number) % 3 for number in range(7)}


def test_more_rows_than_may_be_buffered(place: KafkaPlace) -> None:
    count = 2500
    rows = pa.table({"key": [*range(count)], "value": ["x"] * count})
    few = place.sink(SINK, limits=replace(LIMITS, buffered=100))
    few.commit(EpochNumber(1), staged(rows[:1500], rows[1500:]))
    assert sorted(each["key"] for each in values(place)) == [*range(count)]


# --- several instances ----------------------------------------------------------------------------


def test_groups_commit_an_epoch_together_and_finish_what_one_of_them_missed(
    place: KafkaPlace, monkeypatch: pytest.MonkeyPatch, kafka_service: KafkaEndpoint
) -> None:
    place = replace(place, partitions=4, instances=3)
    keyed: dict[str, Any] = {"key_columns": ("key",)}
    rows = [pa.table({"key": [*range(n, n + 40)], "value": ["x"] * 40}) for n in (0, 40, 80)]
    place.sink(SINK, **keyed).commit(EpochNumber(1), staged(rows[0]))
    assert place.sink(SINK).ledger() == 1

    real = TransactionalProducer.commit

    def fail_in_one(producer: TransactionalProducer) -> None:
        if producer.identity.endswith(".2"):
            raise SinkUnavailable("table", "this one does not get through")
        real(producer)

    with monkeypatch.context() as patch:
        patch.setattr(TransactionalProducer, "commit", fail_in_one)
        with pytest.raises(SinkUnavailable):
            place.sink(SINK, **keyed).commit(EpochNumber(2), staged(rows[1]))
    # Part of it is there; the sink is not at it yet.
    assert place.sink(SINK).ledger() == 1
    assert 40 < len(values(place)) < 80
    # The topic grows meanwhile: the rest must not be cut otherwise than the beginning.
    grow_topic(kafka_service, place.topic(SINK), 7)
    with pytest.raises(WriteFailed, match="was begun with instances = 3"):
        place.sink(SINK, instances=2, **keyed).commit(EpochNumber(2), staged(rows[1]))
    with pytest.raises(LedgerMismatch):
        place.sink(SINK, **keyed).commit(EpochNumber(3), staged(rows[2]))
    place.sink(SINK, **keyed).commit(EpochNumber(2), staged(rows[1]))
    assert sorted(each["key"] for each in values(place)) == [*range(80)]
    # Once it is whole, it can be cut in another way.
    place.sink(SINK, instances=1, **keyed).commit(EpochNumber(3), staged(rows[2]))
    assert sorted(each["key"] for each in values(place)) == [*range(120)]
    assert place.sink(SINK).ledger() == 3


# --- what does not fit ----------------------------------------------------------------------------


def test_a_message_that_is_too_large_is_named(
    place: KafkaPlace, kafka_service: KafkaEndpoint
) -> None:
    create_topic(kafka_service, place.topic(SINK), config={"max.message.bytes": "5000"})
    small = pa.table({"key": [*range(300)], "value": ["x" * 100] * 300})
    place.sink(SINK, "upsert").commit(EpochNumber(1), staged(small))
    large = pa.table({"key": [1, 2], "value": ["x", "y" * 6000]})
    with pytest.raises(WriteFailed, match=r"the row key=2 makes a message of 6\d\d\d bytes"):
        place.sink(SINK, "upsert").commit(EpochNumber(2), staged(large))
    # What only the broker can find out has the key and the size.
    packed = place.sink(SINK, "upsert", properties={"compression.type": "gzip"})
    noise = pa.table({"key": [5], "value": [str(hash(n)) for n in range(1)]})
    packed.commit(EpochNumber(2), staged(noise))
    assert len(values(place)) == 301


def test_a_compacted_topic_takes_no_rows_without_a_key(
    place: KafkaPlace, kafka_service: KafkaEndpoint
) -> None:
    create_topic(kafka_service, place.topic(SINK), config={"cleanup.policy": "compact"})
    with pytest.raises(WriteFailed, match="without a key"):
        place.sink(SINK).commit(EpochNumber(1), staged(ROWS))
    assert found(place) == []


def test_more_than_a_transaction_may_hold_is_refused_before_anything(place: KafkaPlace) -> None:
    output = staged(ROWS)
    for limits, unit in (
        (replace(LIMITS, rows=2), "rows"),
        (replace(LIMITS, bytes=10), "bytes"),
    ):
        sink = place.sink(SINK, limits=limits)
        with pytest.raises(BufferOverflow) as caught:
            sink.commit(EpochNumber(1), output)
        assert caught.value.unit == unit
        with pytest.raises(BufferOverflow):
            sink.check(ROWS.schema, output)
        sink.check(ROWS.schema)
    assert found(place) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"new_topics": NewTopics(allowed=False)}, "there is no topic"),
        ({"new_topics": NewTopics(replication=3)}, "cannot be made: .*REPLICATION_FACTOR"),
        ({"format": "raw"}, "format raw takes one column"),
        ({"key_columns": ("kay",)}, "`kay`"),
        ({"value_columns": ("cents", "euros")}, "`euros`"),
    ],
)
def test_what_could_not_be_committed_is_found_out_beforehand(
    place: KafkaPlace, changes: dict[str, Any], problem: str
) -> None:
    sink = place.sink(SINK, **changes)
    with pytest.raises(InvalidConfig, match=problem):
        sink.check(ROWS.schema)
    with pytest.raises(WriteFailed, match=problem):
        sink.commit(EpochNumber(1), staged(ROWS))
    assert found(place) == []


def test_a_ledger_that_would_be_lost_one_day_is_refused(
    place: KafkaPlace, kafka_service: KafkaEndpoint
) -> None:
    create_topic(kafka_service, place.options(SINK).ledger_topic, config={"retention.ms": "9"})
    with pytest.raises(InvalidConfig, match="the ledger would be lost one day"):
        place.sink(SINK).check(ROWS.schema)


# --- offsets of the source ------------------------------------------------------------------------


def test_offsets_of_a_source_on_the_same_cluster_are_written_with_the_epoch(
    place: KafkaPlace, kafka_service: KafkaEndpoint, kafka_topic: TopicFactory
) -> None:
    source, group = kafka_topic(), f"{place.prefix}-readers"
    position = KafkaPosition(topic=source, partition=0, offset=42)
    output = staged(ROWS)

    def reported(cluster: str) -> StagedOutput:
        offsets = (GroupOffsets(cluster, group, (position,)),)
        return StagedOutput(output.entry, output.read, offsets=offsets)

    def stands() -> int | None:
        """Where the group stands; None if it is nowhere."""
        member = Consumer({**client_settings(kafka_service), "group.id": group})
        try:
            (found,) = committed(member, [TopicPartition(source, 0)])
            return found.offset if found.offset >= 0 else None
        finally:
            member.close()

    place.sink(SINK).commit(EpochNumber(1), reported("another cluster"))
    assert stands() is None
    good = reported(kafka_service.cluster)

    def lose(file: FileEntry) -> bytes:
        raise SinkUnavailable("table", "the store is away")

    with pytest.raises(SinkUnavailable):
        place.sink(SINK).commit(
            EpochNumber(2), StagedOutput(good.entry, lose, offsets=good.offsets)
        )
    assert stands() is None
    place.sink(SINK).commit(EpochNumber(2), good)
    # A commit is answered a moment before every partition has heard of it.
    deadline = Deadline(20)
    while (found := stands()) is None:
        assert not deadline.is_over
    assert found == 42


def test_offsets_that_the_group_does_not_take_hold_up_no_epoch(
    place: KafkaPlace, kafka_service: KafkaEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic of the source is gone. Nothing depends on where its group stands."""
    position = KafkaPosition(topic=f"{place.prefix}-gone", partition=0, offset=42)
    offsets = (GroupOffsets(kafka_service.cluster, f"{place.prefix}-readers", (position,)),)
    output = staged(ROWS)
    sink = place.sink(SINK, limits=replace(LIMITS, connect=3.0))
    sink.commit(EpochNumber(1), StagedOutput(output.entry, output.read, offsets=offsets))
    assert len(values(place)) == 3
    assert "are not written with the epoch" in caplog.text
    assert sink.ledger() == 1


def test_after_offsets_that_were_not_taken_a_new_producer_begins(
    place: KafkaPlace, kafka_service: KafkaEndpoint
) -> None:
    """What is still on its way of the first transaction must not become part of the second."""
    position = KafkaPosition(topic=f"{place.prefix}-gone", partition=0, offset=42)
    offsets = (GroupOffsets(kafka_service.cluster, f"{place.prefix}-readers", (position,)),)
    output = staged(ROWS)
    sink = place.sink(SINK, limits=replace(LIMITS, connect=3.0))
    sink.commit(EpochNumber(1), StagedOutput(output.entry, output.read, offsets=offsets))
    seen = history(place, transactional_id(str(place.pipeline), SINK, 0))
    begun = {(each.started, each.producer_id, each.producer_epoch) for each in seen}
    begun = {each for each in begun if each[0] >= 0}
    assert len({started for started, *_ in begun}) == 2
    assert len({(identity, epoch) for _, identity, epoch in begun}) == 2


@pytest.mark.parametrize("number", range(8))
def test_the_coordinators_of_ids_of_either_sign_are_found(
    kafka_service: KafkaEndpoint, number: int
) -> None:
    identity = f"laminar.signs.{uuid.uuid4().hex}.{number}"
    settings = {"bootstrap.servers": kafka_service.bootstrap}
    asker = Asker.sink(SINK)
    with TransactionalProducer(SINK, identity, settings, LIMITS) as producer:
        producer.fence()
        (found,) = find_transactions(asker, Cluster(asker, settings, 20.0), [identity])
    assert (found.identity, found.state) == (identity, "over")


def history(place: KafkaPlace, identity: str) -> list[Transaction]:
    """What a transaction's coordinator has written down of it, in order."""
    asker = Asker.sink(SINK)
    cluster = Cluster(asker, {"bootstrap.servers": place.bootstrap}, patience=20.0)
    count = len(cluster.leaders(STATE_TOPIC))
    found: list[Transaction] = []
    with PartitionReader(asker, cluster, (STATE_TOPIC, partition_of(identity, count))) as reader:
        for message in reader.news(reader.end()):
            key, value = message.key(), message.value()
            if isinstance(key, bytes) and isinstance(value, bytes):
                if identity_of(key) == identity:
                    found.append(transaction_of(identity, value, ""))
    return [each for each in found if each.state == "open"]


# --- formats and the registry ---------------------------------------------------------------------


@pytest.fixture
def registry(schema_registry_service: SchemaRegistryEndpoint) -> RegistryOptions:
    return RegistryOptions(url=schema_registry_service.url)


def ask(registry: RegistryOptions, path: str) -> Any:
    with urllib.request.urlopen(f"{registry.url}{path}") as answer:
        return json.load(answer)


@pytest.mark.service("schema_registry")
def test_avro_is_read_by_what_the_registry_says(
    place: KafkaPlace, registry: RegistryOptions
) -> None:
    sink = place.sink(
        SINK, format="avro", key_columns=("key",), key_format="avro", registry=registry
    )
    sink.check(ROWS.schema)
    sink.commit(EpochNumber(1), staged(ROWS))
    read = []
    for each in found(place):
        for part in (bytes(each.value() or b""), bytes(each.key() or b"")):
            assert part[0] == 0
            text = ask(registry, f"/schemas/ids/{int.from_bytes(part[1:5], 'big')}")["schema"]
            schema = fastavro.parse_schema(json.loads(text))
            read.append(fastavro.schemaless_reader(io.BytesIO(part[5:]), schema, None))
    whole = [row for row in read if len(row) == 3]  # type: ignore[arg-type]
    assert sorted(whole, key=lambda row: row["key"]) == ROWS.to_pylist()  # type: ignore[index, call-overload]
    assert sorted(row["key"] for row in read if len(row) == 1) == [1, 2, 3]  # type: ignore[arg-type, index, call-overload]
    subjects = ask(registry, "/subjects")
    topic = place.topic(SINK)
    assert {f"{topic}-key", f"{topic}-value"} <= {*subjects}


@pytest.mark.service("schema_registry")
def test_a_schema_that_the_registry_does_not_take_publishes_nothing(
    place: KafkaPlace, registry: RegistryOptions
) -> None:
    avro: dict[str, Any] = {"format": "avro", "registry": registry}
    closed = place.sink(SINK, auto_register=False, **avro)
    with pytest.raises(InvalidConfig, match="does not have this schema; register it"):
        closed.check(ROWS.schema)
    place.sink(SINK, **avro).commit(EpochNumber(1), staged(ROWS))
    closed.check(ROWS.schema)
    closed.commit(EpochNumber(2), staged(ROWS))
    subject = f"{place.topic(SINK)}-value"
    request = urllib.request.Request(
        f"{registry.url}/config/{subject}",
        json.dumps({"compatibility": "BACKWARD"}).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    with urllib.request.urlopen(request):
        pass
    other = pa.table({"key": ["now a text"], "value": ["a"], "cents": [1]})
    with pytest.raises(InvalidConfig, match=f"does not take the schema of subject {subject}"):
        place.sink(SINK, **avro).check(other.schema)
    with pytest.raises(WriteFailed, match=f"does not take the schema of subject {subject}"):
        place.sink(SINK, **avro).commit(EpochNumber(3), staged(other))
    assert len(found(place)) == 6


@pytest.mark.service("schema_registry")
def test_protobuf_is_read_by_what_the_registry_says(
    place: KafkaPlace, registry: RegistryOptions
) -> None:
    sink = place.sink(SINK, format="protobuf", registry=registry)
    sink.check(ROWS.schema)
    sink.commit(EpochNumber(1), staged(ROWS))
    read = []
    for each in found(place):
        part = bytes(each.value() or b"")
        text = ask(registry, f"/schemas/ids/{int.from_bytes(part[1:5], 'big')}")["schema"]
        # The first message of its file.
        assert part[5] == 0
        kind = compiled(text)
        row = kind.FromString(part[6:])
        names = [field.name for field in kind.DESCRIPTOR.fields]
        read.append({name: getattr(row, name) if row.HasField(name) else None for name in names})
    assert sorted(read, key=lambda row: int(row["key"] or 0)) == ROWS.to_pylist()


def compiled(proto: str) -> Any:
    """The first message of a ``.proto`` file, as Google's library reads it."""
    file = load(compile_proto(proto, {}))[MAIN]
    (name, *_) = file.message_types_by_name
    return message_factory.GetMessageClass(file.message_types_by_name[name])


@pytest.mark.parametrize("column", [pa.string(), pa.binary()])
def test_raw_values_are_sent_as_they_are(place: KafkaPlace, column: pa.DataType) -> None:
    rows = pa.table({"value": pa.array([b"a", b"\xc3\xbc", b""]).cast(column)})
    place.sink(SINK, format="raw").commit(EpochNumber(1), staged(rows))
    assert sorted(bytes(each.value() or b"") for each in found(place)) == [b"", b"a", b"\xc3\xbc"]
