"""Copies messages to Arrow with the compiled library: calls to measure, to copy and to release."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_dagster.sources.kafka.gathering import NONE, Gather, Gathered, TooLarge
from laminar_dagster.sources.kafka.librdkafka import Library
from laminar_dagster.sources.kafka.messages import (
    HEADERS_TYPE,
    MessageBatch,
    Wanted,
    empty_batch,
)
from laminar_dagster.sources.native.library import OK, TOO_LARGE

_KEYS: Final = 1
_TIMESTAMPS: Final = 2
_HEADERS: Final = 4

_address = ctypes.c_void_p
_number = ctypes.c_int64


class Calls(ctypes.Structure):
    """``struct calls`` of gather.c: functions of librdkafka."""

    _fields_ = (
        ("destroy", _address),
        ("timestamp", _address),
        ("headers", _address),
        ("header", _address),
    )

    @classmethod
    def of(cls, library: Library) -> Calls:
        """The function addresses of a loaded librdkafka."""
        names = ("message_destroy", "message_timestamp", "message_headers", "header_get_all")
        return cls(*map(library.address, names))


class _Sums(ctypes.Structure):
    _fields_ = (
        ("messages", _number),
        ("others", _number),
        ("value_bytes", _number),
        ("key_bytes", _number),
        ("headers", _number),
        ("header_name_bytes", _number),
        ("header_value_bytes", _number),
    )


class _BytesOut(ctypes.Structure):
    _fields_ = (("edges", _address), ("valid", _address), ("data", _address))


class _Out(ctypes.Structure):
    _fields_ = (
        ("offsets", _address),
        ("timestamps", _address),
        ("header_edges", _address),
        ("others", _address),
        ("values", _BytesOut),
        ("keys", _BytesOut),
        ("header_names", _BytesOut),
        ("header_values", _BytesOut),
    )


class CompiledGather(Gather):
    """Copies values, keys, timestamps and headers of messages."""

    def __init__(self, native: ctypes.CDLL, calls: Calls) -> None:
        """Start without messages."""
        self._native = native
        self._calls = calls

    def gather(self, count: int, wanted: Wanted) -> Gathered:
        """Copy the messages."""
        flags = _KEYS * wanted.keys + _TIMESTAMPS * wanted.timestamps + _HEADERS * wanted.headers
        into, sums = self.pointers.ctypes.data, _Sums()
        calls = ctypes.byref(self._calls)
        _require(
            self._native.laminar_measure(into, count, calls, flags, ctypes.byref(sums)),
        )
        rows = int(sums.messages)
        others, offsets = np.empty(sums.others, np.int64), np.empty(rows, np.int64)
        timestamps = np.empty(rows if wanted.timestamps else 0, np.int64)
        edges = np.empty(rows + 1 if wanted.headers else 0, np.int32)
        values = _Bytes.room(rows, sums.value_bytes)
        keys = _Bytes.room(rows if wanted.keys else 0, sums.key_bytes)
        names = _Bytes.room(sums.headers, sums.header_name_bytes)
        contents = _Bytes.room(sums.headers, sums.header_value_bytes)
        out = _Out(
            *(each.ctypes.data for each in (offsets, timestamps, edges, others)),
            *(each.described() for each in (values, keys, names, contents)),
        )
        _require(
            self._native.laminar_gather(
                into, count, calls, flags, ctypes.byref(sums), ctypes.byref(out)
            )
        )
        if not rows:
            return Gathered(empty_batch(wanted), others)
        batch = MessageBatch(
            offsets=offsets,
            values=values.array(),
            keys=keys.array() if wanted.keys else None,
            timestamps=timestamps if wanted.timestamps else None,
            headers=_headers(edges, names, contents) if wanted.headers else None,
        )
        return Gathered(batch, others)

    def give_back(self) -> None:
        """Release the messages to librdkafka in one call, which clears their pointers."""
        self._native.laminar_give_back(
            self.pointers.ctypes.data, len(self.pointers), ctypes.byref(self._calls)
        )
        self.pointers = NONE


@dataclass(frozen=True, slots=True)
class _Bytes:
    """The memory of a BINARY column."""

    edges: npt.NDArray[np.int32]
    valid: npt.NDArray[np.uint8]
    data: npt.NDArray[np.uint8]

    @classmethod
    def room(cls, rows: int, size: int) -> _Bytes:
        # The library sets the first edge only where there is a row.
        edges = np.empty(rows + 1, np.int32) if rows else np.zeros(1, np.int32)
        return cls(edges, np.empty(rows, np.uint8), np.empty(size, np.uint8))

    def described(self) -> _BytesOut:
        return _BytesOut(self.edges.ctypes.data, self.valid.ctypes.data, self.data.ctypes.data)

    def array(self) -> pa.BinaryArray:
        count = len(self.valid)
        validity = None
        if not self.valid.all():
            validity = pa.py_buffer(np.packbits(self.valid, bitorder="little"))
        return pa.Array.from_buffers(
            pa.binary(), count, [validity, pa.py_buffer(self.edges), pa.py_buffer(self.data)]
        )


def _headers(edges: npt.NDArray[np.int32], names: _Bytes, contents: _Bytes) -> pa.Array:
    kept, values = names.array(), contents.array()
    try:
        text = kept.cast(pa.string())
    except pa.ArrowInvalid:
        return _readable_headers(edges.tolist(), kept.to_pylist(), values.to_pylist())
    pairs = pa.StructArray.from_arrays([text, values], fields=list(HEADERS_TYPE.value_type))
    return pa.ListArray.from_arrays(pa.array(edges), pairs, type=HEADERS_TYPE)


def _readable_headers(edges: list[int], names: list[bytes], values: list[Any]) -> pa.Array:
    """Headers message by message; null where a name is not UTF-8, which Kafka allows."""
    found: list[Any] = []
    for first, last in pairwise(edges):
        try:
            texts = [name.decode() for name in names[first:last]]
        except UnicodeDecodeError:
            found.append(None)
            continue
        pairs = zip(texts, values[first:last], strict=True)
        found.append([{"key": key, "value": value} for key, value in pairs])
    return pa.array(found, HEADERS_TYPE)


def _require(outcome: int) -> None:
    """Check the return code of the library.

    Raises:
        TooLarge: The messages do not fit into one batch.
    """
    if outcome == TOO_LARGE:
        raise TooLarge
    if outcome != OK:
        raise RuntimeError(f"messages changed while they were copied: {outcome}")
