"""Confluent's wire format: a header with the schema's id before each message.

The byte 0, the schema's id as four big-endian bytes, and the message. For Protobuf, the path of the
message's type within its file comes before the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sinks.formats.binary.varints import varint_bytes
from laminar_dagster.sinks.pieces import binary

_MAGIC: Final = b"\0"
_LARGEST_ID: Final = 2**31 - 1


def framed(bodies: pa.Array, schema_id: int, message_index: bytes = b"") -> pa.Array:
    """Messages with the header that names their schema.

    Args:
        bodies: The encoded messages; a null stays null.
        schema_id: The registry's id of the schema.
        message_index: For Protobuf, the header's path of the message type; see ``message_index``.

    Raises:
        ValueError: The id is out of range.
    """
    if not 0 <= schema_id <= _LARGEST_ID:
        raise ValueError(f"a schema's id is a positive number of 32 bits, not {schema_id}")
    header = _MAGIC + schema_id.to_bytes(4, "big") + message_index
    whole = bodies.cast(pa.large_binary())
    return pc.binary_join_element_wise(binary(header), whole, binary(b""))


def message_index(path: Sequence[int]) -> bytes:
    """The path of a message's type within its file, as encoded in the header.

    Args:
        path: The index of the outermost type in its file, of the next one within it, and so on.
    """
    if list(path) == [0]:
        return b"\0"
    return b"".join(varint_bytes(2 * number) for number in (len(path), *path))
