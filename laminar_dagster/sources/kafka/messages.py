"""Messages of a partition as columns, as they come from the broker."""

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
    """What of each message is wanted besides its offset and value."""

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
        """As it is written in errors."""
        return f"{place_of(self.topic, self.partition)}, offsets {self.start} to {self.end}"


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Messages of one partition, in order.

    Attributes:
        offsets: Ascending; they may leave holes.
        values: Null is no value, a tombstone; an empty value is not null.
        keys: Null is no key. None if not asked for, as with the next two.
        timestamps: Milliseconds since 1970; -1 is not known.
        headers: In the order in which they were set; keys may repeat. Null where the name of one
            is not UTF-8.
        fetch_seconds: How long was waited for them.
        pauses: How often the partition was paused before them.
        errors: What librdkafka complained of before them and got over by itself.
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
        """How many there are."""
        return len(self.offsets)

    @property
    def size_bytes(self) -> int:
        """How much memory they take."""
        columns = (self.offsets, self.values, self.keys, self.timestamps, self.headers)
        return sum(int(each.nbytes) for each in columns if each is not None)

    def ends(self) -> Numbers:
        """Where each message ends if they are laid end to end.

        Of a message, what counts is its value, and its key and headers if they were asked for.
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
        """Those at [low, high), without a copy."""
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
    """No message."""
    return MessageBatch(
        offsets=np.empty(0, np.int64),
        values=pa.array([], pa.binary()),
        keys=pa.array([], pa.binary()) if wanted.keys else None,
        timestamps=np.empty(0, np.int64) if wanted.timestamps else None,
        headers=pa.array([], HEADERS_TYPE) if wanted.headers else None,
        fetch_seconds=fetch_seconds,
    )


def join(parts: Sequence[MessageBatch], fetch_seconds: float = 0.0) -> MessageBatch:
    """Batches that follow each other as one; there has to be one at least."""
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
    """A partition, as it is written in errors."""
    return f"{topic}[{partition}]"
