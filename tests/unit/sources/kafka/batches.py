"""Batches of messages, and what a decoder makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from laminar_dagster.sources.decoded import PlacedChunk
from laminar_dagster.sources.kafka.decoding import MessageDecoder
from laminar_dagster.sources.kafka.messages import HEADERS_TYPE, MessageBatch
from laminar_dagster.sources.kafka.options import KafkaOptions

Value = bytes | None


def options(**given: Any) -> KafkaOptions:
    """Options of a source of one topic."""
    return KafkaOptions(bootstrap_servers="b:9092", group_id="g", topics=("t",), **given)


def batch_of(
    values: Sequence[Value],
    keys: Sequence[Value] | None = None,
    timestamps: Sequence[int] | None = None,
    headers: Sequence[list[dict[str, Any]] | None] | None = None,
    offsets: Sequence[int] | None = None,
) -> MessageBatch:
    """A batch of messages; by default their offsets are 0, 3, 6, …"""
    return MessageBatch(
        offsets=np.array(
            offsets if offsets is not None else range(0, 3 * len(values), 3), np.int64
        ),
        values=pa.array(values, pa.binary()),
        keys=None if keys is None else pa.array(keys, pa.binary()),
        timestamps=None if timestamps is None else np.array(timestamps, np.int64),
        headers=None if headers is None else pa.array(headers, HEADERS_TYPE),
        fetch_seconds=0.25,
        pauses=2,
        errors=1,
    )


def decode(schema: pa.Schema, batch: MessageBatch, **given: Any) -> PlacedChunk:
    """What a fresh decoder makes of a batch."""
    return MessageDecoder(schema, options(**given), "s").decode("t", 7, batch)


def rows(chunk: PlacedChunk) -> list[dict[str, Any]]:
    """The rows of a chunk."""
    found: list[dict[str, Any]] = chunk.rows.to_pylist()
    return found


def bad(chunk: PlacedChunk) -> list[tuple[int, bytes, str]]:
    """Offset, value and reason of the bad messages of a chunk."""
    return [(each["position"], each["raw"], each["reason"]) for each in chunk.bad.to_pylist()]
