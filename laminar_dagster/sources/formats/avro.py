"""Decodes Avro messages column by column.

A library for Avro decodes record by record, because a field's start is known only once the field
before it was read. Here the loops are swapped: the first field of all records is read, then the
second of all, and so on, along the writer's schema. Each step is a few operations on whole arrays
(see ``binary.lanes``), and each field becomes an Arrow column.

Every read is checked against the end of its record, and a record must end with its last field. So
a bad record is found where it goes wrong, and does not disturb the decoding of its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

from laminar_dagster.encoding.avro_schema import parse_avro
from laminar_dagster.sources.formats.avro_plan import plan_of
from laminar_dagster.sources.formats.wire_format import MessageDecoder, Plan


@dataclass
class AvroDecoder(MessageDecoder):
    """Decodes Avro messages into the declared columns.

    Attributes:
        writer_schema: The schema, as JSON, of messages without a schema id (no registry).
    """

    writer_schema: str = ""

    def plan(self, schema_id: int | None) -> Plan:
        """The plan to read messages of a writer's schema."""
        if schema_id is None or self.registry is None:
            return plan_of(self.schema, *parse_avro(self.writer_schema))
        found = self.registry.schema(schema_id)
        if found.kind != "AVRO":
            raise ValueError(f"it is a schema of {found.kind}, not of AVRO")
        references = [each.schema.text for each in found.in_order()]
        return plan_of(self.schema, *parse_avro(found.text, references))
