"""Copies messages to Arrow with numpy alone, where there is no compiled library.

The members of the messages are read with one numpy index for each member, their values are
described to Arrow as views of librdkafka's memory, and Arrow copies them into an array of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_dagster.sources.kafka import librdkafka
from laminar_dagster.sources.kafka.gathering import NONE, Gather, Gathered, TooLarge
from laminar_dagster.sources.kafka.librdkafka import Addresses, Library, MessageFields, Numbers
from laminar_dagster.sources.kafka.messages import MessageBatch, Wanted, empty_batch

# Arrow stores values up to this length inline in their view.
_INLINE: Final = 12
# The offsets of views within their buffer have 31 bits.
_REGION: Final = 1 << 30


class NumpyGather(Gather):
    """Copies values, offsets and keys; timestamps and headers would take a call per message."""

    def __init__(self, library: Library) -> None:
        """Start without messages."""
        self._library = library
        # Every message handed out is in here or in `pointers`, even when an interrupt comes.
        self._leaving: Iterator[int] = iter(())

    def gather(self, count: int, wanted: Wanted) -> Gathered:
        """Copy the messages.

        Raises:
            ValueError: Timestamps or headers are wanted.
        """
        if wanted.timestamps or wanted.headers:
            raise ValueError("timestamps and headers are for the others")
        if not count:
            return Gathered(empty_batch(wanted), np.empty(0, np.int64))
        fields = librdkafka.read_messages(self.pointers[:count])
        others = np.flatnonzero(fields.errors)
        if len(others) == count:
            return Gathered(empty_batch(wanted), others)
        if len(others):
            fields = _without(fields, others)
        batch = MessageBatch(
            offsets=fields.offsets,
            values=copy_values(fields.values, fields.value_bytes),
            keys=copy_values(fields.keys, fields.key_bytes) if wanted.keys else None,
        )
        return Gathered(batch, others)

    def give_back(self) -> None:
        """Release the messages, with a call for each."""
        self._library.destroy_messages(self._leaving)
        leaving = iter(self.pointers[self.pointers != 0].tolist())
        # An interrupt can only come at a call: none between these two assignments.
        self._leaving = leaving
        self.pointers = NONE
        self._library.destroy_messages(self._leaving)


def copy_values(addresses: Addresses, lengths: Numbers) -> pa.BinaryArray:
    """Copy pieces of memory into one array; the address 0 is null.

    Raises:
        TooLarge: They are more bytes than an array can hold.
    """
    count = len(addresses)
    present = addresses != 0
    if int(lengths[present].sum()) > np.iinfo(np.int32).max:
        raise TooLarge
    views = np.zeros((count, 4), np.int32)
    views[:, 0] = np.where(present, lengths, 0)
    buffers: list[pa.Buffer] = []
    is_long = present & (lengths > _INLINE)
    if is_long.any():
        buffers = _point_outside(views, is_long, addresses, lengths)
    is_short = present & (lengths > 0) & ~is_long
    if is_short.any():
        _put_inside(views, np.flatnonzero(is_short), addresses[is_short], lengths[is_short])
    validity = None if present.all() else pa.array(present).buffers()[1]
    viewed = pa.Array.from_buffers(
        pa.binary_view(), count, [validity, pa.py_buffer(views), *buffers]
    )
    return viewed.cast(pa.binary())


def _point_outside(
    views: npt.NDArray[np.int32],
    rows: npt.NDArray[np.bool_],
    addresses: Addresses,
    lengths: Numbers,
) -> list[pa.Buffer]:
    """Point the views of long values at them. Other bytes of the buffers may not be mapped."""
    if not rows.all():
        addresses, lengths = addresses[rows], lengths[rows]
    lowest, longest = int(addresses.min()), int(lengths.max())
    if int(addresses.max()) - lowest <= _REGION:
        views[rows, 3] = addresses - np.uint64(lowest)
        return [pa.foreign_buffer(lowest, _REGION + longest)]
    # The values are in distant parts of the heap: use several buffers.
    bases, numbers = np.unique(addresses // np.uint64(_REGION), return_inverse=True)
    views[rows, 2] = numbers
    views[rows, 3] = addresses % np.uint64(_REGION)
    return [pa.foreign_buffer(int(base) * _REGION, _REGION + longest) for base in bases]


def _put_inside(
    views: npt.NDArray[np.int32], rows: Numbers, addresses: Addresses, lengths: Numbers
) -> None:
    """Copy short values into their views, byte by byte: bytes after a value may be unmapped."""
    lowest = int(addresses.min())
    span = int(addresses.max()) - lowest + _INLINE
    memory = np.frombuffer(pa.foreign_buffer(lowest, span), np.uint8)
    starts = (addresses - np.uint64(lowest)).astype(np.int64)
    inside = views.view(np.uint8)
    for place in range(int(lengths.max())):
        reaching = lengths > place
        inside[rows[reaching], 4 + place] = memory[starts[reaching] + place]


def _without(fields: MessageFields, places: Numbers) -> MessageFields:
    """The messages but for those at some places."""
    return MessageFields(
        errors=np.delete(fields.errors, places),
        offsets=np.delete(fields.offsets, places),
        values=np.delete(fields.values, places),
        value_bytes=np.delete(fields.value_bytes, places),
        keys=np.delete(fields.keys, places),
        key_bytes=np.delete(fields.key_bytes, places),
    )
