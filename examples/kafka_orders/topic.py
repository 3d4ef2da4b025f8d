"""The topic, as a plain client sees it: nothing here is the engine's."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from examples.kafka_orders.failure import DemoFailed

TOPIC: Final = "orders"
GROUP: Final = "sales-pipeline"
PARTITIONS: Final = 4

_PATIENCE: Final = 30.0
_AT_ONCE: Final = 20_000
_SCHEMA: Final = pa.schema(
    [("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.string())]
)


def create(servers: str) -> None:
    """Make the topic.

    Raises:
        KafkaException: The broker does not do it.
    """
    # It would tell of every connection that ends.
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    made = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)], operation_timeout=_PATIENCE)
    made[TOPIC].result()


class TopicView:
    """Looks at the topic, and at where the pipeline's group stands. It joins no group."""

    def __init__(self, servers: str) -> None:
        """Connect."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )

    def ends(self) -> dict[int, int]:
        """The offset after the last record, by partition.

        Raises:
            KafkaException: The broker does not answer.
        """
        found: dict[int, int] = {}
        for partition in range(PARTITIONS):
            where = TopicPartition(TOPIC, partition)
            edges = self._consumer.get_watermark_offsets(where, timeout=_PATIENCE)
            assert edges is not None
            found[partition] = edges[1]
        return found

    def group_stands(self) -> dict[int, int]:
        """What the group has committed, by partition: what lag tools show.

        Raises:
            KafkaException: The broker does not answer.
        """
        asked = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        return {
            each.partition: each.offset
            for each in self._consumer.committed(asked, timeout=_PATIENCE)
            if each.offset >= 0
        }

    def copy(self, into: Path) -> int:
        """Write all records into a Parquet file; how many there are.

        Raises:
            KafkaException: Reading failed.
            DemoFailed: Nothing came for too long.
        """
        left = {partition: end for partition, end in self.ends().items() if end}
        self._consumer.assign([TopicPartition(TOPIC, each, 0) for each in left])
        count = 0
        with pq.ParquetWriter(into, _SCHEMA) as writer:
            while left:
                messages = self._consumer.consume(_AT_ONCE, timeout=_PATIENCE)
                if not messages:
                    raise DemoFailed(f"the topic gave nothing within {_PATIENCE:g} s: {left}")
                rows: list[tuple[int, int, str]] = []
                for message in messages:
                    if (error := message.error()) is not None:
                        raise KafkaException(error)
                    partition, offset, value = (
                        message.partition(),
                        message.offset(),
                        message.value(),
                    )
                    assert partition is not None
                    assert offset is not None
                    assert value is not None
                    rows.append((partition, offset, value.decode()))
                    if offset + 1 == left.get(partition):
                        del left[partition]
                columns = [list(column) for column in zip(*rows, strict=True)]
                writer.write_table(pa.table(columns, schema=_SCHEMA))
                count += len(rows)
        return count

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()
