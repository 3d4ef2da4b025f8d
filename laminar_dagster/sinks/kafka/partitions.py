"""Choose the partition of each row, the same on every re-run.

Rows with a key go where a Java producer (``murmur2``) or one on librdkafka (``crc32``) would put
them by default, so that a key's rows share a partition with those of other writers. Rows without a
key go round-robin, by their position in the epoch: a client would choose at random.
"""

from __future__ import annotations

import zlib
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_dagster.sinks.pieces import lengths_of, parts_of

Partitioner = Literal["murmur2", "crc32"]
Partitions = npt.NDArray[np.int32]

_MULTIPLIER: Final = np.uint32(0x5BD1E995)
_SEED: Final = 0x9747B28C
_POSITIVE: Final = np.uint32(0x7FFFFFFF)


def by_key(keys: pa.Array, count: int, partitioner: Partitioner) -> Partitions:
    """The partitions of messages with these keys.

    Args:
        keys: The encoded keys, a LargeBinaryArray without nulls.
        count: The number of partitions.
        partitioner: The hash function.
    """
    if partitioner == "crc32":
        hashes = np.fromiter(map(zlib.crc32, keys.to_pylist()), np.uint32, len(keys))
    else:
        hashes = murmur2(keys) & _POSITIVE
    return (hashes % np.uint32(count)).astype(np.int32)


def by_turns(first: int, rows: int, count: int) -> Partitions:
    """The partitions of messages without a key, round-robin.

    Args:
        first: The turn of the first message.
        rows: The number of messages.
        count: The number of partitions.
    """
    return ((first + np.arange(rows, dtype=np.int64)) % count).astype(np.int32)


def murmur2(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """The hash of Kafka's Java client, vectorised over the keys: one 4-byte word at a time."""
    offsets, data = parts_of(keys)
    lengths = lengths_of(keys)
    # Padding: reading a whole word at the end of the last key must not run past the buffer.
    padded = np.zeros(len(data) + 4, np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    starts = offsets[:-1]
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    with np.errstate(over="ignore"):
        for word in range(int(lengths.max(initial=0)) // 4):
            rows = np.flatnonzero(lengths >= 4 * (word + 1))
            mixed = _word(padded, starts[rows] + 4 * word) * _MULTIPLIER
            mixed ^= mixed >> np.uint32(24)
            hashes[rows] = (hashes[rows] * _MULTIPLIER) ^ (mixed * _MULTIPLIER)
        left = lengths % 4
        rows = np.flatnonzero(left)
        keep = (np.uint32(1) << (8 * left[rows]).astype(np.uint32)) - np.uint32(1)
        tail = _word(padded, starts[rows] + lengths[rows] - left[rows]) & keep
        hashes[rows] = (hashes[rows] ^ tail) * _MULTIPLIER
        hashes ^= hashes >> np.uint32(13)
        hashes *= _MULTIPLIER
        hashes ^= hashes >> np.uint32(15)
    return hashes


def _word(data: npt.NDArray[np.uint8], places: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """The little-endian 32-bit word at each offset."""
    found = np.zeros(len(places), np.uint32)
    for byte in range(4):
        found |= data[places + byte].astype(np.uint32) << np.uint32(8 * byte)
    return found
