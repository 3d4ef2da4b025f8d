"""Read a Kafka sink's ledger."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final, Self

from confluent_kafka import Message

from laminar_dagster.clients.kafka.asker import Asker
from laminar_dagster.clients.kafka.cluster import Cluster
from laminar_dagster.clients.kafka.partition_reader import PartitionReader
from laminar_dagster.sinks.kafka.ledger import (
    LEDGER_PARTITION,
    LedgerKey,
    LedgerRecord,
    Standing,
    decode,
)

_LOOK_SECONDS: Final = 0.05


class LedgerReader:
    """A consumer of the ledger that keeps the newest record of each group of one sink."""

    def __init__(self, asker: Asker, key: LedgerKey, cluster: Cluster, topic: str) -> None:
        """Describe the consumer; nothing is sent yet.

        Args:
            asker: Names the sink in errors.
            key: Identifies the sink's records.
            cluster: The Kafka cluster.
            topic: The ledger topic, which must exist.
        """
        self._asker = asker
        self._key = key
        self._topic = topic
        self._reader = PartitionReader(asker, cluster, (topic, LEDGER_PARTITION))
        self._records: dict[int, LedgerRecord] = {}

    def __enter__(self) -> Self:
        """Return the reader itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self._reader.__exit__(kind, error, traceback)

    def look(self, patience: float = 0.0) -> Standing:
        """The committed state of the ledger, without records in open transactions.

        Args:
            patience: How long to wait for records of this sink in open transactions. A reader
                cannot tell whether they will ever be committed.

        Raises:
            SinkUnavailable: The cluster does not answer.
            AuthFailed: The topic may not be read.
            MalformedDocument: A record with the sink's key is no ledger record.
        """
        self._catch_up(patience)
        return Standing(dict(self._records))

    def read(self, patience: float) -> Standing:
        """The exact state of the ledger. Call only after fencing out all other committers.

        Then all transactions of this sink have ended. But a record may be hidden behind another
        writer's open transaction, and must not be taken for a missing one.

        Raises:
            SinkUnavailable: The cluster does not answer, or such a transaction stays open.
            AuthFailed: The topic may not be read.
            MalformedDocument: A record with the sink's key is no ledger record.
        """
        hidden = self._catch_up(patience)
        if hidden is not None:
            raise self._asker.away(
                f"offset {hidden} of topic {self._topic} cannot be read: before it, a transaction"
                f" of another writer is open for more than {patience:g} s"
            )
        return Standing(dict(self._records))

    def _catch_up(self, patience: float) -> int | None:
        """Read new records; returns the offset of this sink's last record that stayed hidden."""
        # Get the end offset first: all records of this sink before it must be read or waited for.
        end = self._reader.end()
        stable = min(end, self._reader.end(stable=True))
        self._take_until(stable)
        if stable == end:
            return None
        own = [
            message.offset() or 0
            for message in self._reader.unstable(end)
            if self._group_of(message) is not None
        ]
        if not own:
            return None
        deadline = time.monotonic() + patience
        while (stable := self._reader.end(stable=True)) <= max(own):
            if time.monotonic() >= deadline:
                return max(own)
            time.sleep(_LOOK_SECONDS)
        self._take_until(stable)
        return None

    def _take_until(self, end: int) -> None:
        for message in self._reader.news(end):
            group = self._group_of(message)
            if group is not None:
                where = f"offset {message.offset()} of topic {self._topic}"
                value = message.value()
                self._records[group] = decode(value if isinstance(value, bytes) else None, where)

    def _group_of(self, message: Message) -> int | None:
        key = message.key()
        return self._key.group_of(key if isinstance(key, bytes) else None)
