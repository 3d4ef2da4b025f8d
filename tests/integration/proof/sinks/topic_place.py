"""Topics of a broker, read by a consumer that sees nothing but what is committed."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from infra.kafka import KafkaEndpoint
from infra.wire_requests import is_kafka_end_txn
from tests.integration.proof.sinks.accounts import COLUMNS, KEY, Rows, View
from tests.integration.proof.sinks.ground import Ground, Server
from tests.integration.sinks.kafka_place import messages


@dataclass(frozen=True)
class TopicPlace:
    """A topic; the last message of a key counts, where there are keys."""

    ground: Ground
    kind: str
    view: View
    server: Server | None = "kafka"

    def make(self) -> None:
        """Nothing."""

    def options(self) -> dict[str, str]:
        host, port = self.ground.doors.get("kafka", (self._endpoint.host, self._endpoint.port))
        keys = {"mode": "upsert", "key.columns": KEY} if self.view == "balances" else {}
        return {
            "connector": "kafka",
            "bootstrap.servers": f"{host}:{port}",
            "topic": self._topic,
            # A case shares nothing with those before it, which leave transactions open.
            "ledger.topic": self._ledger_topic,
            "partitions": "2",
            "replication": "1",
            "transaction.timeout.ms": str(round(self.ground.expiry * 1000)),
            "connect_timeout": "8s",
            "commit_timeout": "10s",
            **keys,
        }

    def is_commit(self, request: bytes) -> bool:
        return is_kafka_end_txn(request)

    def ledger(self) -> int:
        key = f"{self.ground.name}/{self.kind}/0".encode()
        epochs = [
            int(json.loads(message.value() or b"")["epoch"])
            for message in messages(self._endpoint.bootstrap, self._ledger_topic)
            if message.key() == key
        ]
        # What is compacted away is old; what is there is in order, each once.
        assert epochs == sorted(set(epochs))
        return epochs[-1] if epochs else 0

    def rows(self) -> Rows:
        found: Rows = Counter()
        latest: dict[bytes | str | None, Rows] = {}
        for message in messages(self._endpoint.bootstrap, self._topic):
            value = message.value()
            row = json.loads(value) if value is not None else None
            one = Counter([tuple(row[name] for name in COLUMNS[self.view])] if row else [])
            if self.view == "moves":
                found += one
            else:
                latest[message.key()] = one
        return sum(latest.values(), found)

    def has_open_transaction(self) -> bool:
        """Whether there are messages of which nobody knows yet what becomes of them."""
        admin = AdminClient({"bootstrap.servers": self._endpoint.bootstrap})
        known = admin.list_topics(self._topic, 20).topics[self._topic].partitions
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(self._topic, each): latest for each in known}
        ends = []
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
            found = admin.list_offsets(wanted, isolation_level=level, request_timeout=20)
            ends.append({lane.partition: each.result().offset for lane, each in found.items()})
        return ends[0] != ends[1]

    @property
    def _topic(self) -> str:
        return f"{self.ground.name}-{self.kind}"

    @property
    def _ledger_topic(self) -> str:
        return f"{self._topic}-ledger"

    @property
    def _endpoint(self) -> KafkaEndpoint:
        endpoint = self.ground.servers["kafka"]
        assert isinstance(endpoint, KafkaEndpoint)
        return endpoint
