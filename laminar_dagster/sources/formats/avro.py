"""Avro messages, a column at a time.

A library for Avro decodes record by record, because where a field begins is known only when the
one before it was read. Here the records take turns the other way round: the first field of all
records is read, then the second of all, and so on, along the writer's schema. Each step is a few
operations on whole arrays (see ``binary.lanes``), and each field comes out as an Arrow column.

Every read is checked against the end of its record, and a record must end with its last field. So
a bad one is found where it goes wrong, and its neighbours are decoded as if it were not there.
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
        writer_schema: The schema, as JSON, of messages that name none: there is no registry then.
    """

    writer_schema: str = ""

    def plan(self, schema_id: int | None) -> Plan:
        """Work out how to read messages of a schema."""
        if schema_id is None or self.registry is None:
            return plan_of(self.schema, *parse_avro(self.writer_schema))
        found = self.registry.schema(schema_id)
        if found.kind != "AVRO":
            raise ValueError(f"it is a schema of {found.kind}, not of AVRO")
        references = [each.schema.text for each in found.in_order()]
        return plan_of(self.schema, *parse_avro(found.text, references))
