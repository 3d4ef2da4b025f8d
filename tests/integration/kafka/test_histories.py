"""Whatever producers did and however epochs cut it, each committed record is read once, in order.

Beside the broker runs a plain model: who wrote what, at which offset the broker took it, and how
the transaction ended. What an epoch must read follows from that and the ends of its ranges alone.
"""

from __future__ import annotations

import pickle
import time
from dataclasses import dataclass, field
from typing import Final, Literal

import pytest
from confluent_kafka import Producer
from hypothesis import HealthCheck, Phase, event, example, given, settings
from hypothesis import strategies as st

from infra.kafka import KafkaEndpoint
from infra.load import Deadline
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission
from laminar_dagster.sources.kafka.source import KafkaSource
from tests.integration.kafka.streams import (
    CLOCK,
    Chunks,
    TopicStream,
    are_same,
    as_stored,
    bad_records,
    bounds,
    encoded,
    ends,
    fresh_name,
    placed_numbers,
    read_plan,
)
from tests.services.kafka import client_settings, create_topic, delete_topic, grow_topic, send

pytestmark = [pytest.mark.service("kafka"), pytest.mark.proof("histories of topics")]

_PATIENCE: Final = 30.0
# More than a chunk holds.
_BURST: Final = 20_500

Record = Literal["number", "tombstone", "poison", "nothing"]
Ending = Literal["commit", "abort", "fence"]
Reader = Literal["fast", "portable"]


# --- what may happen ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Write:
    """Records to one partition, by somebody in a transaction or by the one without."""

    writer: int | None
    partition: int
    records: tuple[Record, ...]


@dataclass(frozen=True)
class Burst:
    """More numbers at once than a chunk holds."""

    partition: int


@dataclass(frozen=True)
class End:
    """The end of a writer's transaction; a fenced writer is replaced by one of the same name."""

    writer: int
    how: Ending


@dataclass(frozen=True)
class Grow:
    """One partition more."""


@dataclass(frozen=True)
class Epoch:
    """A plan and its reading."""

    limits: Admission
    reader: Reader
    pieces: int
    restart: bool


@dataclass(frozen=True)
class Replay:
    """An epoch of the past is read again, by either reader."""

    which: int
    reader: Reader


Step = Write | Burst | End | Grow | Epoch | Replay

_RECORDS = st.lists(
    st.sampled_from(["number", "number", "number", "tombstone", "poison", "nothing"]),
    min_size=1,
    max_size=9,
).map(tuple)
_READERS = st.sampled_from(["fast", "portable"])
_LIMITS = st.builds(
    Admission,
    max_records=st.none() | st.integers(1, 12),
    max_bytes=st.none() | st.sampled_from([1, 40, 400]),
)
_WRITES = st.builds(Write, st.sampled_from([0, 1, None]), st.integers(0, 2), _RECORDS)
_ENDS = st.builds(End, st.integers(0, 1), st.sampled_from(["abort", "commit", "fence"]))
_EPOCHS = st.builds(Epoch, _LIMITS, _READERS, st.integers(1, 3), st.booleans())
_STEPS = st.one_of(
    _WRITES,
    _WRITES,
    _ENDS,
    _EPOCHS,
    st.builds(Replay, st.integers(0, 9), _READERS),
    st.one_of(_WRITES, st.builds(Burst, st.integers(0, 2)), st.just(Grow())),
)


@dataclass(frozen=True)
class History:
    """Steps, and how transactions end that are open after them."""

    partitions: int
    steps: tuple[Step, ...]
    endings: tuple[Ending, Ending]


_HISTORIES = st.builds(
    History,
    st.integers(1, 3),
    st.lists(_STEPS, min_size=10, max_size=24).map(tuple),
    st.tuples(*[st.sampled_from(["abort", "commit", "fence"])] * 2),
)
# So that none of it is a matter of luck.
_EVERYTHING = History(
    2,
    (
        Write(None, 0, ("number", "number", "number")),
        Write(0, 0, ("number", "poison")),
        Epoch(Admission(), "fast", 1, restart=False),
        Write(1, 0, ("number", "tombstone", "number")),
        Write(1, 1, ("nothing", "number")),
        Write(0, 0, ("number",)),
        Write(None, 0, ("poison", "number")),
        End(1, "commit"),
        Epoch(Admission(max_records=5), "portable", 2, restart=True),
        End(0, "abort"),
        Write(0, 1, ("number", "number")),
        Epoch(Admission(max_records=5), "portable", 2, restart=True),
        End(0, "fence"),
        Burst(0),
        Grow(),
        Write(None, 2, ("number", "number")),
        Write(1, 2, ("number", "nothing")),
        Epoch(Admission(max_records=7, max_bytes=400), "fast", 3, restart=True),
        Replay(0, "portable"),
        Epoch(Admission(), "fast", 3, restart=False),
    ),
    ("abort", "commit"),
)


# --- the model ------------------------------------------------------------------------------------


@dataclass
class Transaction:
    """How it ended, and which partitions hold a mark of that."""

    ending: Literal["open", "commit", "abort"] = "open"
    partitions: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Entry:
    """A record that the broker has: a number, a poisonous value, or neither of them."""

    offset: int
    number: int | None
    poison: bytes | None
    transaction: Transaction | None

    @property
    def counts(self) -> bool:
        return self.transaction is None or self.transaction.ending == "commit"


@dataclass(frozen=True)
class Done:
    """An epoch that was read."""

    plan: SourcePlan
    split_records: int
    chunks: dict[int, Chunks]


class World:
    """A topic, who writes to it, what they wrote, and an independent account of it."""

    def __init__(self, endpoint: KafkaEndpoint, topic: str, partitions: int) -> None:
        self.endpoint = endpoint
        self.stream = TopicStream(endpoint, topic)
        self.log: dict[int, list[Entry]] = {number: [] for number in range(partitions)}
        self.marks: dict[int, int] = dict.fromkeys(range(partitions), 0)
        # A writer that is left behind says so when its broker ends.
        self.settings = {**client_settings(endpoint), "linger.ms": 0, "log_level": 0}
        self.plain = Producer(self.settings)
        self.writers: dict[int, Producer] = {}
        self.open: dict[int, Transaction] = {}
        self.numbers = 0
        self.source: KafkaSource = self.stream.open()
        self.epochs: list[Done] = []

    def take(self, step: Step) -> None:
        match step:
            case Write():
                self._write(step.writer, step.partition % len(self.log), step.records)
            case Burst():
                self._write(None, step.partition % len(self.log), ("number",) * _BURST)
            case End():
                self._end(step.writer, step.how)
            case Grow():
                self._grow()
            case Epoch():
                self._run(step)
            case Replay():
                if self.epochs:
                    self._replay(self.epochs[step.which % len(self.epochs)], step.reader)

    def finish(self, endings: tuple[Ending, Ending]) -> None:
        """End what is open, read the rest, and look at everything once more."""
        for writer, how in enumerate(endings):
            self._end(writer, how)
        full = {number: len(log) + self.marks[number] for number, log in self.log.items()}
        deadline = Deadline(_PATIENCE)
        while self._stands() != full:
            # The marks of a transaction are written after its end has been reported.
            assert not deadline.is_over, f"it stands at {self._stands()}, not at {full}"
            self._run(Epoch(Admission(), "fast", 1, restart=False))
        for number, log in self.log.items():
            chunks = [each for done in self.epochs for each in done.chunks.get(number, [])]
            _require(chunks, [entry for entry in log if entry.counts])
        for place, done in enumerate(self.epochs):
            self._replay(done, "portable" if place % 2 else "fast")

    # --- producing --------------------------------------------------------------------------------

    def _write(self, writer: int | None, partition: int, records: tuple[Record, ...]) -> None:
        transaction = None
        producer = self.plain
        if writer is not None:
            producer = self._writer(writer)
            if writer not in self.open:
                producer.begin_transaction()
                self.open[writer] = Transaction()
            transaction = self.open[writer]
            transaction.partitions.add(partition)
        contents = [self._content(kind) for kind in records]
        values = [encoded(number) if number is not None else poison for number, poison in contents]
        taken = send(producer, self.stream.topic, values, partition)
        offsets = [int(each.offset() or 0) for each in taken]
        for offset, (number, poison) in zip(offsets, contents, strict=True):
            self.log[partition].append(Entry(offset, number, poison, transaction))
        assert sorted(offsets) == offsets

    def _content(self, kind: Record) -> tuple[int | None, bytes | None]:
        self.numbers += 1
        match kind:
            case "number":
                return self.numbers, None
            case "tombstone":
                return None, None
            case "nothing":
                return None, b""
            case "poison":
                poisons = (b"nonsense", b"[1]", b'{"n": "x"}', b"\xff\xfe\x00", b'{"n": 1')
                return None, poisons[self.numbers % len(poisons)]

    def _writer(self, number: int) -> Producer:
        if number not in self.writers:
            name = f"{self.stream.topic}-{number}"
            self.writers[number] = Producer({**self.settings, "transactional.id": name})
            self.writers[number].init_transactions(_PATIENCE)
        return self.writers[number]

    def _end(self, writer: int, how: Ending) -> None:
        transaction = self.open.pop(writer, None)
        if transaction is None:
            return
        if how == "commit":
            self.writers[writer].commit_transaction(_PATIENCE)
        elif how == "abort":
            self.writers[writer].abort_transaction(_PATIENCE)
        else:
            del self.writers[writer]
            self._writer(writer)
        transaction.ending = "commit" if how == "commit" else "abort"
        for partition in transaction.partitions:
            self.marks[partition] += 1

    def _grow(self) -> None:
        if len(self.log) == 3:
            return
        new = len(self.log)
        topic = self.stream.topic
        grow_topic(self.endpoint, topic, new + 1)
        deadline = Deadline(_PATIENCE)
        for producer in (self.plain, *self.writers.values()):
            while len(producer.list_topics(topic, _PATIENCE).topics[topic].partitions) <= new:
                assert not deadline.is_over
                time.sleep(0.05)
        self.log[new], self.marks[new] = [], 0

    # --- epochs -----------------------------------------------------------------------------------

    def _run(self, step: Epoch) -> None:
        if step.restart:
            self.source = self.stream.open()
        previous = self.epochs[-1].plan if self.epochs else None
        stood = self._stands()
        start = ends(previous) if previous else ()
        plan = as_stored(self.source.plan(previous, start, step.limits, CLOCK))
        parts = {partition: (low, high) for partition, low, high in map(bounds, plan.ranges)}
        assert parts.keys() <= self.log.keys()
        assert parts.keys() >= stood.keys()
        for partition, (low, high) in parts.items():
            assert low == stood.get(partition, 0), "ranges are contiguous"
            for entry in self._between(partition, low, high):
                assert entry.transaction is None or entry.transaction.ending != "open"
        if step.limits.max_records is not None:
            assert sum(high - low for low, high in parts.values()) <= step.limits.max_records
        longest = max(high - low for low, high in parts.values())
        split_records = max(1, -(-longest // step.pieces))
        done = Done(plan, split_records, self._read(plan, step.reader, split_records))
        for partition, (low, high) in parts.items():
            entries = self._between(partition, low, high)
            _require(done.chunks.get(partition, []), [each for each in entries if each.counts])
        self.epochs.append(done)
        event(f"{sum(low < high for low, high in parts.values())} partitions with records")

    def _replay(self, done: Done, reader: Reader) -> None:
        plan = as_stored(done.plan)
        source = self.stream.open()
        source.verify(plan)
        again = self._read(plan, reader, done.split_records)
        assert again.keys() == done.chunks.keys()
        for partition, chunks in again.items():
            assert are_same(chunks, done.chunks[partition]), "a plan is read the same every time"

    def _read(self, plan: SourcePlan, reader: Reader, split_records: int) -> dict[int, Chunks]:
        source = self.stream.open(reader=reader, split_records=split_records)
        assert pickle.loads(pickle.dumps(source.reader())) == source.reader()
        return read_plan(source, plan)

    def _stands(self) -> dict[int, int]:
        if not self.epochs:
            return {}
        return {end.partition: end.offset for end in ends(self.epochs[-1].plan)}

    def _between(self, partition: int, low: int, high: int) -> list[Entry]:
        return [entry for entry in self.log[partition] if low <= entry.offset < high]


def _require(chunks: Chunks, entries: list[Entry]) -> None:
    """These records, no other, in this order, and none of them twice."""
    good = [(each.offset, each.number) for each in entries if each.number is not None]
    bad = [(each.offset, each.poison) for each in entries if each.poison is not None]
    assert placed_numbers(chunks) == good
    assert bad_records(chunks) == bad
    assert sum(chunk.skipped for chunk in chunks) == len(entries) - len(good) - len(bad)
    assert sum(chunk.records for chunk in chunks) == len(entries)


@settings(
    # Few of the usual hundred: each has a topic of its own, and takes some seconds.
    max_examples=settings().max_examples // 20,
    # To make an example smaller takes minutes, and it is small as it is.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(history=_HISTORIES)
@example(history=_EVERYTHING)
def test_every_committed_record_is_read_once_and_in_order(
    kafka_service: KafkaEndpoint, history: History
) -> None:
    topic = fresh_name()
    create_topic(kafka_service, topic, history.partitions)
    try:
        world = World(kafka_service, topic, history.partitions)
        for step in history.steps:
            world.take(step)
        world.finish(history.endings)
    finally:
        delete_topic(kafka_service, topic)
