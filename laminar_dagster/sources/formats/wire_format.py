"""Decodes messages with or without a schema id.

Confluent's wire format: a byte 0, the schema's id in the registry as four big-endian bytes, and
the body. The records of a batch are grouped by the id, each group is decoded with the plan of its
schema, and the rows are put back into the order of the records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol

import numpy as np
import pyarrow as pa

from laminar_dagster.clients.schema_registry import SchemaRegistry, UnknownSchema
from laminar_dagster.core.errors import DecodeFailed
from laminar_dagster.sources.formats.binary.assemble import merge
from laminar_dagster.sources.formats.binary.lanes import PADDING, Blame, Body, Int64s, Lanes
from laminar_dagster.sources.formats.records import Outcome, Records, settle

HEADER: Final = 5
_MAGIC: Final = 0
_NO_ID: Final = -1

OnProblem = Literal["bad", "fail"]


class Plan(Protocol):
    """Reads messages of one schema into the declared columns."""

    def columns(self, lanes: Lanes) -> list[pa.Array]:
        """Read the message of every lane. Marks unreadable records as bad."""
        ...


@dataclass
class MessageDecoder(ABC):
    """Decodes messages, of any mix of schemas, into the declared columns.

    Attributes:
        schema: The declared columns.
        registry: Resolves schema ids. None: messages have no schema id.
        source_id: The source's name, for errors.
        on_unknown: Whether records whose schema id the registry does not know are bad, or stop
            the pipeline.
        on_incompatible: The same for a schema that cannot be read into the declared columns.
    """

    schema: pa.Schema
    registry: SchemaRegistry | None = None
    source_id: str = ""
    on_unknown: OnProblem = "bad"
    on_incompatible: OnProblem = "bad"
    _plans: dict[int, Plan | str] = field(init=False, default_factory=dict, repr=False)

    @abstractmethod
    def plan(self, schema_id: int | None) -> Plan:
        """The plan to read messages of a schema, or messages without a schema id.

        Raises:
            ValueError: The schema cannot be read into the declared columns.
            UnknownSchema: The registry does not know the id.
        """

    def decode(self, records: Records) -> Outcome:
        """Decode the records, each of which is a message.

        Raises:
            DecodeFailed: A schema is unknown or incompatible, and the options say to fail.
            RegistryUnavailable, AuthFailed: The registry cannot be queried.
        """
        blame = Blame()
        body = Body(records.data)
        owner = np.arange(len(records))
        lanes = Lanes(body, records.starts + PADDING, records.ends + PADDING, owner, blame)
        groups = self._groups(lanes)
        parts: list[tuple[list[pa.Array], Int64s]] = []
        used: set[int] = set()
        for schema_id, places in groups:
            group = lanes if len(places) == len(lanes) else lanes.select(places)
            plan = self._plan(schema_id, records, places)
            if isinstance(plan, str):
                blame.add(places, plan)
                continue
            used.add(schema_id)
            try:
                columns = plan.columns(group)
            except RecursionError:
                blame.add(places, "the schema is nested too deeply to be read")
                continue
            left = group.end - group.at
            group.lose(np.flatnonzero(left), "bytes are left over after the last field")
            parts.append((columns, places))
        rows = [
            merge([(columns[place], places) for columns, places in parts], each.type, len(records))
            for place, each in enumerate(self.schema)
        ]
        found = settle(
            records,
            pa.RecordBatch.from_arrays(rows, names=self.schema.names),
            blame.reasons,
            [],
            self.schema,
        )
        return replace(found, schema_ids=frozenset(used - {_NO_ID}))

    def _groups(self, lanes: Lanes) -> list[tuple[int, Int64s]]:
        """Group the records by schema id, and skip headers; records without a header are bad."""
        everything = np.arange(len(lanes))
        if self.registry is None or not len(lanes):
            return [(_NO_ID, everything)] if len(lanes) else []
        short = lanes.end - lanes.at < HEADER
        magic = lanes.body.raw[lanes.at]
        lanes.refuse(np.flatnonzero(short), f"shorter than the {HEADER} bytes that name a schema")
        other = np.flatnonzero(~short & (magic != _MAGIC))
        for place in other.tolist():
            lanes.blame.add(
                [place], f"begins with byte {magic[place]} instead of {_MAGIC} and a schema's id"
            )
        ids = (lanes.body.words[lanes.at].byteswap() >> np.uint64(24)) & np.uint64(0xFFFFFFFF)
        good = np.flatnonzero(~short & (magic == _MAGIC))
        lanes.at = lanes.at + HEADER
        found, number = np.unique(ids[good], return_inverse=True)
        if len(found) == 1:
            return [(int(found[0]), good)]
        return [(int(each), good[number == place]) for place, each in enumerate(found.tolist())]

    def _plan(self, schema_id: int, records: Records, places: Int64s) -> Plan | str:
        known = self._plans.get(schema_id)
        if known is not None:
            return known
        try:
            plan: Plan | str = self.plan(None if schema_id == _NO_ID else schema_id)
        except UnknownSchema as error:
            if self.on_unknown == "fail":
                raise self._failed(records, places, str(error)) from None
            # Not cached: the schema may be registered by the next time.
            return str(error)
        except ValueError as error:
            reason = str(error) if schema_id == _NO_ID else f"schema id {schema_id}: {error}"
            if self.on_incompatible == "fail":
                raise self._failed(records, places, reason) from None
            plan = reason
        self._plans[schema_id] = plan
        return plan

    def _failed(self, records: Records, places: Int64s, reason: str) -> DecodeFailed:
        return DecodeFailed(self.source_id, str(records.positions[places[0]]), reason)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the plans out of a pickle: they are compiled again where it is loaded."""
        return {**self.__dict__, "_plans": {}}
