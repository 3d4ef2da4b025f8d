"""Messages of a partition as columns, undecoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

HEADERS_TYPE: Final = pa.list_(
    pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
)

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which parts of a message to fetch besides its offset and value."""

    keys: bool = False
    timestamps: bool = False
    headers: bool = False


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The offsets [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        """The text for errors."""
        return f"{place_of(self.topic, self.partition)}, offsets {self.start} to {self.end}"


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Messages of one partition, in order.

    Attributes:
        offsets: Ascending; they may leave holes.
        values: Null for a tombstone; an empty value is not null.
        keys: Null for no key. None if not wanted, as with the next two.
        timestamps: Milliseconds since 1970; -1 if unknown.
        headers: In the order in which they were set; keys may repeat. Null for a message with a
            header name that is not UTF-8.
        fetch_seconds: How long fetching them took.
        pauses: How often the partition was paused before them.
        errors: How many errors librdkafka reported before them and recovered from.
    """

    offsets: Numbers
    values: pa.BinaryArray
    keys: pa.BinaryArray | None = None
    timestamps: Numbers | None = None
    headers: pa.Array | None = None
    fetch_seconds: float = 0.0
    pauses: int = 0
    errors: int = 0

    def __len__(self) -> int:
        """The number of messages."""
        return len(self.offsets)

    @property
    def size_bytes(self) -> int:
        """The memory that the columns take."""
        columns = (self.offsets, self.values, self.keys, self.timestamps, self.headers)
        return sum(int(each.nbytes) for each in columns if each is not None)

    def ends(self) -> Numbers:
        """The cumulative sizes of the messages.

        A message's size is that of its value, and of its key and headers if they were fetched.
        """
        edges = _edges(self.values)
        if self.keys is not None:
            edges = edges + _edges(self.keys)
        if self.headers is not None:
            firsts: Numbers = self.headers.offsets.to_numpy().astype(np.int64)
            pairs = self.headers.values
            edges = edges + _edges(pairs.field(0))[firsts] + _edges(pairs.field(1))[firsts]
        ends: Numbers = edges[1:] - edges[0]
        return ends

    def slice(self, low: int, high: int) -> MessageBatch:
        """The messages at [low, high), without a copy."""
        if low == 0 and high == len(self):
            return self
        return replace(
            self,
            offsets=self.offsets[low:high],
            values=self.values[low:high],
            keys=None if self.keys is None else self.keys[low:high],
            timestamps=None if self.timestamps is None else self.timestamps[low:high],
            headers=None if self.headers is None else self.headers[low:high],
        )


def empty_batch(wanted: Wanted, fetch_seconds: float = 0.0) -> MessageBatch:
    """A batch without messages."""
    return MessageBatch(
        offsets=np.empty(0, np.int64),
        values=pa.array([], pa.binary()),
        keys=pa.array([], pa.binary()) if wanted.keys else None,
        timestamps=np.empty(0, np.int64) if wanted.timestamps else None,
        headers=pa.array([], HEADERS_TYPE) if wanted.headers else None,
        fetch_seconds=fetch_seconds,
    )


def join(parts: Sequence[MessageBatch], fetch_seconds: float = 0.0) -> MessageBatch:
    """Join consecutive batches; there must be at least one."""
    first = parts[0]
    if len(parts) == 1:
        return replace(first, fetch_seconds=fetch_seconds)
    return MessageBatch(
        offsets=np.concatenate([each.offsets for each in parts]),
        values=pa.concat_arrays([each.values for each in parts]),
        keys=None if first.keys is None else pa.concat_arrays([each.keys for each in parts]),
        timestamps=None
        if first.timestamps is None
        else np.concatenate([each.timestamps for each in parts if each.timestamps is not None]),
        headers=None
        if first.headers is None
        else pa.concat_arrays([each.headers for each in parts]),
        fetch_seconds=fetch_seconds,
    )


def _edges(values: pa.Array) -> Numbers:
    """Where each value begins in the array's data, and where the last one ends."""
    if not len(values):
        return np.zeros(1, np.int64)
    first = values.offset
    edges = np.frombuffer(values.buffers()[1], np.int32)[first : first + len(values) + 1]
    return edges.astype(np.int64)


def place_of(topic: str, partition: int) -> str:
    """The name of a partition in errors."""
    return f"{topic}[{partition}]"
