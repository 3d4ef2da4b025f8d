"""Reads ranges of partitions on executors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from laminar_dagster.core.errors import SeekFailed
from laminar_dagster.core.offsets import KafkaPosition, SourceRange
from laminar_dagster.sources.decoded import PlacedChunk
from laminar_dagster.sources.kafka.backpressure import BackpressureController
from laminar_dagster.sources.kafka.decoding import MessageDecoder
from laminar_dagster.sources.kafka.fetching import choose_fetcher
from laminar_dagster.sources.kafka.messages import PartitionRange, Wanted
from laminar_dagster.sources.kafka.options import KafkaOptions
from laminar_dagster.sources.kafka.prefetch import DEFAULT_CAPACITY, Prefetcher
from laminar_dagster.sources.kafka.ranges import Polling


@dataclass(frozen=True, slots=True)
class KafkaSplitReader:
    """Decodes a range into the declared columns. Connects anew for each range.

    The same range gives the same rows in the same chunks, on any machine and with any fetcher.

    Attributes:
        settings: librdkafka's settings.
    """

    source_id: str
    schema: pa.Schema
    options: KafkaOptions
    settings: dict[str, str] = field(repr=False)

    def read(self, split: SourceRange) -> Iterator[PlacedChunk]:
        """All records of the half-open range, in order; bad ones beside decoded ones.

        Raises:
            RetentionExpired: Some of the range was deleted.
            SourceUnavailable, AuthFailed, RegistryUnavailable: The range cannot be read.
        """
        wanted = _partition_range(self.source_id, split)
        options = self.options
        settings = {
            **self.settings,
            "group.id": options.group_id,
            "partition.assignment.strategy": options.partition_assignment_strategy,
        }
        fetcher = choose_fetcher(options.reader, settings, wanted_by(options), self.source_id)
        decoder = MessageDecoder(self.schema, options, self.source_id)
        polling = Polling(
            options.max_poll_records,
            options.poll_timeout.total_seconds(),
            options.connect_timeout.total_seconds(),
        )
        pressure = BackpressureController(
            DEFAULT_CAPACITY, options.backpressure_high, options.backpressure_low
        )
        with Prefetcher(
            fetcher, wanted, self.source_id, pressure=pressure, polling=polling
        ) as batches:
            for batch in batches:
                yield decoder.decode(wanted.topic, wanted.partition, batch)


def wanted_by(options: KafkaOptions) -> Wanted:
    """The parts of a message that a source needs."""
    columns = options.include_metadata
    return Wanted(keys=columns or bool(options.key_columns), timestamps=columns, headers=columns)


def _partition_range(source_id: str, part: SourceRange) -> PartitionRange:
    start, end = part.start, part.end
    if not isinstance(start, KafkaPosition) or not isinstance(end, KafkaPosition):
        raise SeekFailed(source_id, f"{type(start).__name__} is not a position in a topic")
    return PartitionRange(start.topic, start.partition, start.offset, end.offset)
