"""Decodes Protobuf messages field by field.

The fields of all messages are located in rounds (see ``protobuf_scan``), and each declared one is
then made a column (``protobuf_read``). A message that ends within a field, or holds invalid bytes,
is bad, and does not disturb the decoding of its neighbours.

In Confluent's wire format the path of the message within its file follows the schema's id: the
number of steps and the steps, as zigzag varints; a lone 0 stands for the first message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from laminar_dagster.encoding.protobuf_schema import (
    MAIN,
    compile_proto,
    load,
    message_at,
    message_named,
)
from laminar_dagster.sources.formats.binary.assemble import merge
from laminar_dagster.sources.formats.binary.lanes import Int64s, Lanes
from laminar_dagster.sources.formats.binary.varints import read_signed
from laminar_dagster.sources.formats.protobuf_plan import message_plan
from laminar_dagster.sources.formats.wire_format import MessageDecoder, Plan

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor

_LONGEST_PATH: Final = 32
_PATH: Final = "the path of the message"


@dataclass
class ProtobufDecoder(MessageDecoder):
    """Decodes Protobuf messages into the declared columns.

    Attributes:
        descriptor_set: The output of ``protoc --include_imports --descriptor_set_out``, for
            messages without a schema id (no registry).
        message: The full name of the message type in the descriptor set.
    """

    descriptor_set: bytes = field(default=b"", repr=False)
    message: str = ""

    def plan(self, schema_id: int | None) -> Plan:
        """The plan to read messages of a schema."""
        if schema_id is None or self.registry is None:
            return message_plan(message_named(self.descriptor_set, self.message), self.schema)
        found = self.registry.schema(schema_id)
        if found.kind != "PROTOBUF":
            raise ValueError(f"it is a schema of {found.kind}, not of PROTOBUF")
        imports = {each.name: each.schema.text for each in found.in_order()}
        return FilePlan(load(compile_proto(found.text, imports))[MAIN], self.schema)


@dataclass
class FilePlan:
    """Reads messages of one file; each message states which type in the file it is of."""

    file: FileDescriptor
    schema: pa.Schema
    _plans: dict[tuple[int, ...], Plan | str] = field(init=False, default_factory=dict)

    def columns(self, lanes: Lanes) -> list[pa.Array]:
        """Read the path and the message of every lane."""
        parts: list[tuple[list[pa.Array], Int64s]] = []
        for path, places in _paths(lanes):
            plan = self._plan(path)
            group = lanes if len(places) == len(lanes) else lanes.select(places)
            if isinstance(plan, str):
                group.lose(np.arange(len(group)), plan)
            else:
                parts.append((plan.columns(group), places))
            if group is not lanes:
                lanes.put_back(places, group)
        return [
            merge([(columns[place], places) for columns, places in parts], each.type, len(lanes))
            for place, each in enumerate(self.schema)
        ]

    def _plan(self, path: tuple[int, ...]) -> Plan | str:
        known = self._plans.get(path)
        if known is None:
            try:
                known = message_plan(message_at(self.file, path), self.schema)
            except ValueError as error:
                # Not cached: the number of invalid paths is unlimited.
                return str(error)
            self._plans[path] = known
        return known


def _paths(lanes: Lanes) -> list[tuple[tuple[int, ...], Int64s]]:
    """The places of the messages of each path; the lanes then stand behind the path."""
    counts = read_signed(lanes, _PATH)
    if not counts.any():
        return [((0,), np.arange(len(lanes)))]
    odd = np.flatnonzero((counts < 0) | (counts > _LONGEST_PATH))
    lanes.lose(odd, f"{_PATH} is longer than {_LONGEST_PATH} steps")
    counts[odd] = 0
    found: list[tuple[tuple[int, ...], Int64s]] = []
    for count in np.flatnonzero(np.bincount(counts)).tolist():
        places = np.flatnonzero(counts == count)
        if not count:
            found.append(((0,), places))
            continue
        part = lanes.select(places)
        steps = np.stack([read_signed(part, _PATH) for _ in range(count)], axis=1)
        lanes.put_back(places, part)
        paths, number = np.unique(steps, axis=0, return_inverse=True)
        for place, path in enumerate(paths.tolist()):
            found.append((tuple(path), places[number.reshape(-1) == place]))
    return found
