"""The Kafka sink: publishes epochs to a topic of a cluster."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
from confluent_kafka import TopicPartition

from laminar_dagster.clients.hosts import same_spelling
from laminar_dagster.clients.kafka.asker import Asker
from laminar_dagster.clients.kafka.cluster import Cluster
from laminar_dagster.clients.kafka.partition_reader import PartitionReader
from laminar_dagster.clients.kafka.settings import client_settings
from laminar_dagster.clients.kafka.transactions import find_transactions
from laminar_dagster.config.model import SinkTable
from laminar_dagster.core.errors import BufferOverflow, FencedOut, InvalidConfig, WriteFailed
from laminar_dagster.core.ids import EpochNumber, PipelineName, SinkId
from laminar_dagster.core.manifest import SinkEntry
from laminar_dagster.core.offsets import KafkaPosition
from laminar_dagster.core.ports import PendingTransaction, Published, StagedOutput
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.kafka.group_progress import GroupProgress
from laminar_dagster.sinks.kafka.ledger import (
    LEDGER_PARTITION,
    Cut,
    LedgerKey,
    Place,
    Standing,
    encode,
    new_record,
)
from laminar_dagster.sinks.kafka.ledger_reader import LedgerReader
from laminar_dagster.sinks.kafka.messages import Shape, Writer
from laminar_dagster.sinks.kafka.options import KafkaSinkOptions, read_options
from laminar_dagster.sinks.kafka.producer import (
    Headers,
    OffsetsRefused,
    TransactionalProducer,
    transactional_id,
)
from laminar_dagster.sinks.kafka.topics import SinkTopics
from laminar_dagster.sinks.ledger import Decision, decide
from laminar_dagster.sinks.staged import staged_tables
from laminar_dagster.sinks.staged_values import check_changes

log = logging.getLogger(__name__)

EPOCH_HEADER: Final = "laminar-epoch"
SINK_HEADER: Final = "laminar-sink"

_BATCH_BYTES: Final = 1_000_000
# How long to wait for another committer's commit in flight. One whose committer died never ends.
_PATIENCE_FOR_OTHERS: Final = 2.0
# How many messages at the end of a partition to search for messages of this sink.
_LOOKED_AT: Final = 1000
# An optional protocol, a host or an address in brackets, and an optional port.
_BROKER: Final = re.compile(r"(?:[A-Za-z_]+://)?(\[[^\],]*\]|[^\s,:]+)(?::([0-9]+))?")
_DEFAULT_PORT: Final = 9092
# The option `instances` may have been larger before.
_GROUPS_LOOKED_FOR: Final = 16


class KafkaSink:
    """Appends or upserts messages in one topic; see ``messages``.

    An epoch is one transaction that also writes the sink's record into the ledger, a compacted
    topic of the same cluster, so rows and ledger change atomically. The transactional id fences:
    a committer registers with it first, after which no earlier one can commit. With several
    instances an epoch is several such transactions; see ``ledger``. Every call opens its own
    connections; threads may share a sink.
    """

    def __init__(self, sink_id: SinkId, pipeline: PipelineName, options: KafkaSinkOptions) -> None:
        """Describe the sink. Nothing is opened."""
        self._sink_id = sink_id
        self._pipeline = pipeline
        self._options = options
        self._settings = client_settings(options.bootstrap_servers, options.properties)
        self._asker = Asker.sink(sink_id)
        self._key = LedgerKey(pipeline, sink_id)

    @classmethod
    def from_table(cls, table: SinkTable, project: Path, pipeline: PipelineName) -> KafkaSink:
        """Build the sink that a ``CREATE SINK`` describes; see ``options``.

        Raises:
            InvalidConfig: Lists every mistake.
        """
        return cls(table.sink_id, pipeline, read_options(table, project))

    @property
    def sink_id(self) -> SinkId:
        """The sink's name within the pipeline."""
        return self._sink_id

    @property
    def address(self) -> str:
        """The servers and the topic."""
        servers = ",".join(sorted(self._options.bootstrap_servers.replace(" ", "").split(",")))
        return f"kafka://{servers}/{self._options.topic}"

    @property
    def targets(self) -> frozenset[str]:
        """The topic, once for each bootstrap broker."""
        brokers = _BROKER.findall(self._options.bootstrap_servers)
        return frozenset(
            f"kafka://{same_spelling(host, port or _DEFAULT_PORT)}/{self._options.topic}"
            for host, port in brokers
        )

    def __repr__(self) -> str:
        """The sink and its topic."""
        return f"KafkaSink({self._sink_id!r}, {self.address!r})"

    def ledger(self) -> EpochNumber | None:
        """See ``Sink.ledger``. Creates no topic, and fences no committer."""
        standing = self._standing()
        return standing.epoch if standing else None

    def published(self) -> Published | None:
        """See ``Attesting.published``."""
        standing = self._standing()
        leader = standing.leader if standing else None
        if standing is None or leader is None or standing.epoch != leader.epoch:
            # Some groups lag behind: the leader's record has no digest of the epoch before.
            return None
        return Published(EpochNumber(leader.epoch), leader.output_sha256)

    def _standing(self) -> Standing | None:
        """The sink's state in the ledger; None if there is no ledger topic."""
        cluster = self._cluster()
        _, ledger = SinkTopics(self._sink_id, self._options, cluster).find()
        if ledger is None:
            return None
        with self._reader(cluster) as reader:
            return reader.look(_PATIENCE_FOR_OTHERS)

    def check(self, schema: pa.Schema, staged: StagedOutput | None = None) -> None:
        """Check whether rows of a schema could be committed now. Changes nothing.

        Args:
            schema: The schema of the rows.
            staged: The staged output to commit, if it exists already.

        Raises:
            InvalidConfig: The rows could not be committed; says why.
            BufferOverflow: The output is more than one transaction may hold.
            SinkUnavailable, RegistryUnavailable, AuthFailed: A service cannot be asked.
        """
        if staged is not None:
            self._check_amount(staged.entry)
        cluster = self._cluster()
        try:
            Shape.of(schema, self._options).check_schemas()
            if staged is not None:
                check_changes(staged, self._options.key_of_rows)
            place = SinkTopics(self._sink_id, self._options, cluster).check()
            if place is not None:
                with self._reader(cluster) as reader:
                    reader.look().require_kept(place)
        except Unwritable as problem:
            raise InvalidConfig(f"sink {self._sink_id}", str(problem)) from problem

    def commit(self, epoch: EpochNumber, staged: StagedOutput) -> None:
        """See ``Sink.commit``.

        1. Refuse an epoch that is too large for a transaction.
        2. Find the topics, and create them if need be.
        3. Look into the ledger: if the epoch is committed, stop without fencing anybody.
        4. Fence out every other committer. Transactions that one left open end now.
        5. Read the ledger, and decide. From here on no other committer can move it without
           fencing out this one.
        6. Send the rows, and the ledger's record last, to keep its time in doubt short.
        7. Commit the transaction.

        Steps 6 and 7 are done for each group of partitions, first for the leading group 0. A
        process that dies before 7 has changed nothing: the next committer's step 4 aborts its open
        transaction, and so does the broker after its timeout.

        If the offsets of the source's consumer groups are refused (they are sent first), all is
        repeated without them, from step 3 on, with new producers and a new look at the ledger.
        """
        with self._reported(epoch):
            # Step 1.
            self._check_amount(staged.entry)
            # Step 2.
            cluster = self._cluster()
            place = SinkTopics(self._sink_id, self._options, cluster).place()
            try:
                self._commit(epoch, staged, cluster, place, with_offsets=True)
            except OffsetsRefused as problem:
                log.warning("sink %s: %s", self._sink_id, problem)
                staged.progress.aborted()
                self._commit(epoch, staged, cluster, place, with_offsets=False)

    def _commit(
        self,
        epoch: EpochNumber,
        staged: StagedOutput,
        cluster: Cluster,
        place: Place,
        *,
        with_offsets: bool,
    ) -> None:
        """Steps 3 to 7 of ``commit``.

        Raises:
            OffsetsRefused: Nothing is published yet; retry without offsets.
        """
        with self._reader(cluster) as reader, ExitStack() as stack:
            # Step 3.
            seen = reader.look().epoch
            if seen is not None and seen >= epoch:
                decide(self._sink_id, epoch, staged.entry.joined_at, seen)
                return
            # Step 4.
            producers = [
                stack.enter_context(self._producer(group, place))
                for group in range(self._options.instances)
            ]
            with ThreadPoolExecutor(len(producers), thread_name_prefix="fence") as pool:
                for fenced in [pool.submit(each.fence) for each in producers]:
                    fenced.result()
            # Step 5.
            standing = reader.read(self._options.limits.connect)
            groups = self._remaining(epoch, staged.entry, standing, place)
            if not groups:
                return
            if standing.leader is None:
                self._require_new(cluster, place, reader)
            cut = self._cut(epoch, standing, place)
            offsets = self._offsets(cluster, staged) if with_offsets else {}
            # Steps 6 and 7.
            progress = GroupProgress(staged.progress, len(groups))
            progress.begun()

            def publish(group: int) -> None:
                sent = offsets if group == 0 else {}
                producer = producers[group]
                self._publish(producer, epoch, staged, group, cut, place, sent, progress)

            if 0 in groups:
                publish(0)
            with ThreadPoolExecutor(len(producers), thread_name_prefix="group") as pool:
                for done in [pool.submit(publish, group) for group in groups if group]:
                    done.result()

    # --- pending transactions ---------------------------------------------------------------------

    def pending_transactions(self) -> tuple[PendingTransaction, ...]:
        """See ``Transactional``. Includes groups of earlier, larger settings of ``instances``."""
        groups = range(max(self._options.instances, _GROUPS_LOOKED_FOR))
        identities = [self._identity(group) for group in groups]
        now = time.time()
        return tuple(
            PendingTransaction(
                identity=each.identity,
                state=each.state,
                age=max(0.0, now - each.started / 1000),
                timeout=each.timeout / 1000,
                writer=f"{each.producer_id}:{each.producer_epoch}",
                coordinator=each.coordinator,
                places=each.partitions,
            )
            for each in find_transactions(self._asker, self._cluster(), identities)
            if each.state != "over"
        )

    def abort_transaction(self, identity: str) -> None:
        """See ``Transactional``."""
        prefix = self._identity(0).rpartition(".")[0]
        if identity.rpartition(".")[0] != prefix:
            raise InvalidConfig(f"sink {self._sink_id}", f"{identity} is not one of its own")
        options = self._options
        # Registering with the same id makes the coordinator end its open transaction.
        with TransactionalProducer(
            self._sink_id, identity, self._settings, options.limits
        ) as producer:
            producer.fence()

    # --- deciding ---------------------------------------------------------------------------------

    def _remaining(
        self, epoch: EpochNumber, entry: SinkEntry, standing: Standing, place: Place
    ) -> tuple[int, ...]:
        """The groups that have yet to commit the epoch.

        Raises:
            LedgerMismatch: The epoch is not the next one.
            Unwritable: The topics are not those of the epochs so far, or another instance has
                begun the epoch in another way.
        """
        leader = standing.leader
        if leader is not None and leader.epoch == epoch:
            if standing.lagging:
                standing.require_kept(place)
                standing.require_same_cut(self._options.instances, entry.output_sha256)
            return standing.lagging
        if decide(self._sink_id, epoch, entry.joined_at, standing.epoch) is Decision.SKIP:
            return ()
        standing.require_kept(place)
        return tuple(range(self._options.instances))

    def _require_new(self, cluster: Cluster, place: Place, ledger: LedgerReader) -> None:
        """Check that a sink without a ledger record is new, and did not lose its ledger.

        Raises:
            Unwritable: The end of the topic has messages of this sink already.
            FencedOut: Another committer sent them after the ledger was read.
        """
        own = (SINK_HEADER, self._name.encode())
        for partition in range(place.partitions):
            with PartitionReader(self._asker, cluster, (place.topic, partition)) as reader:
                end = reader.end(stable=True)
                reader.position = max(reader.position, end - _LOOKED_AT)
                if not any(own in (message.headers() or ()) for message in reader.news(end)):
                    continue
            if ledger.look(_PATIENCE_FOR_OTHERS).leader is not None:
                # Another committer's commit brought messages and record, after step 5.
                raise FencedOut(self._sink_id, "it has committed the sink's first epoch")
            raise Unwritable(
                f"topic `{place.topic}` holds epochs of this sink, and its ledger in topic"
                f" `{place.ledger}` knows of none: it was lost or made anew. Restore it, or"
                " give the sink another name and topic"
            )

    def _cut(self, epoch: EpochNumber, standing: Standing, place: Place) -> Cut:
        """How the epoch is split: as in the leader's record, if the leader has committed it."""
        leader = standing.leader
        if leader is not None and leader.epoch == epoch:
            return Cut(leader.previous, leader.instances, leader.partitions)
        before = None if standing.epoch is None else int(standing.epoch)
        return Cut(before, self._options.instances, place.partitions)

    def _check_amount(self, entry: SinkEntry) -> None:
        limits = self._options.limits
        rows = sum(file.rows for file in entry.files)
        if rows > limits.rows:
            raise BufferOverflow(self._sink_id, rows, limits.rows)
        size = sum(file.size_bytes for file in entry.files)
        if size > limits.bytes:
            raise BufferOverflow(self._sink_id, size, limits.bytes, "bytes")

    # --- one transaction --------------------------------------------------------------------------

    def _publish(
        self,
        producer: TransactionalProducer,
        epoch: EpochNumber,
        staged: StagedOutput,
        group: int,
        cut: Cut,
        place: Place,
        offsets: dict[str, list[TopicPartition]],
        progress: GroupProgress,
    ) -> None:
        headers: Headers = [
            (SINK_HEADER, self._name.encode()),
            (EPOCH_HEADER, str(epoch).encode()),
        ]
        producer.begin(epoch)
        for consumer_group, positions in offsets.items():
            # Offsets go first: if they are refused, no group has sent anything yet.
            producer.send_offsets(consumer_group, positions)
        writer: Writer | None = None
        row = 0
        for table in staged_tables(staged):
            writer = writer or Shape.of(table.schema, self._options).registered()
            for part in writer.portions(table, row, epoch, group, cut, place.largest):
                producer.send(place.topic, part.values, part.keys, part.partitions, headers)
                progress.wrote(len(part.values))
            row += table.num_rows
        producer.finish()
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        record = new_record(self._key, group, epoch, cut, place, staged.entry.output_sha256, now)
        key = self._key.of(group)
        producer.send(place.ledger, [encode(record)], [key], [LEDGER_PARTITION], headers)
        producer.finish()
        progress.committing()
        producer.commit()

    def _offsets(self, cluster: Cluster, staged: StagedOutput) -> dict[str, list[TopicPartition]]:
        """The source's offsets after the epoch, by consumer group, for groups of this cluster."""
        found: dict[str, list[TopicPartition]] = {}
        if not staged.offsets:
            return found
        here, _ = cluster.describe()
        for each in staged.offsets:
            positions = [
                TopicPartition(position.topic, position.partition, position.offset)
                for position in each.positions
                if isinstance(position, KafkaPosition)
            ]
            if each.cluster_id == here and each.group_id and positions:
                found.setdefault(each.group_id, []).extend(positions)
        return found

    # --- connections and errors -------------------------------------------------------------------

    def _cluster(self) -> Cluster:
        return Cluster(self._asker, self._settings, self._options.limits.connect)

    def _reader(self, cluster: Cluster) -> LedgerReader:
        return LedgerReader(self._asker, self._key, cluster, self._options.ledger_topic)

    def _producer(self, group: int, place: Place) -> TransactionalProducer:
        settings = dict(self._settings)
        if place.largest is not None and place.largest < _BATCH_BYTES:
            # The topic's limit also applies to a batch as a whole.
            settings.setdefault("batch.size", str(place.largest))
        return TransactionalProducer(
            self._sink_id,
            self._identity(group),
            settings,
            self._options.limits,
        )

    @property
    def _name(self) -> str:
        """The sink's name in the headers of its messages."""
        return f"{self._pipeline}/{self._sink_id}"

    def _identity(self, group: int) -> str:
        return transactional_id(str(self._pipeline), str(self._sink_id), group)

    @contextmanager
    def _reported(self, epoch: EpochNumber) -> Iterator[None]:
        """Translate ``Unwritable`` to ``WriteFailed``. The transaction is aborted by then."""
        try:
            yield
        except Unwritable as problem:
            raise WriteFailed(self._sink_id, epoch, str(problem)) from problem
