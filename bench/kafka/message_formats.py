"""The same clicks as messages of every format, and the plain library that reads each one."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from bench.kafka.click_topic import AVRO_SCHEMA
from laminar_dagster.sources.kafka.options import Format

SCHEMA: Final = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("page", pa.string()),
        ("amount", pa.float64()),
        ("n", pa.int32()),
        ("user", pa.string()),
    ]
)
_WITH_WEIGHT: Final = SCHEMA.append(pa.field("_weight", pa.int8()))
_MESSAGE: Final = "bench.Click"
_FIELDS: Final = descriptor_pb2.FieldDescriptorProto


@dataclass(frozen=True, slots=True)
class MessageFormat:
    """Messages of one format.

    Attributes:
        options: What a source needs besides, to read them.
        peer: The library, in words.
        read: Reads one message with it.
    """

    name: Format
    values: Sequence[bytes]
    peer: str
    read: Callable[[bytes], object]
    schema: pa.Schema = SCHEMA
    options: dict[str, Any] = field(default_factory=dict)


def all_formats(clicks: pa.Table, folder: Path) -> tuple[MessageFormat, ...]:
    """Every format, of the same clicks.

    Args:
        clicks: The columns of ``SCHEMA``.
        folder: For the files that describe Avro and Protobuf messages.
    """
    rows: list[dict[str, Any]] = clicks.to_pylist()
    texts = [{**row, "at": row["at"].isoformat().replace("+00:00", "Z")} for row in rows]
    return (
        MessageFormat("json", [_json(row) for row in texts], "json.loads", json.loads),
        MessageFormat("csv", [_csv(row) for row in texts], "csv.reader", _read_csv),
        _avro(rows, folder),
        _protobuf(rows, folder),
        _debezium(rows),
    )


def _json(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _csv(row: dict[str, Any]) -> bytes:
    return ",".join(str(value) for value in row.values()).encode()


def _read_csv(value: bytes) -> object:
    return next(csv.reader((value.decode(),)))


def _avro(rows: Sequence[dict[str, Any]], folder: Path) -> MessageFormat:
    schema = fastavro.parse_schema(json.loads(AVRO_SCHEMA))
    values = []
    for row in rows:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, schema, row)
        values.append(buffer.getvalue())
    file = folder / "click.avsc"
    file.write_text(AVRO_SCHEMA)

    def read(value: bytes) -> object:
        return fastavro.schemaless_reader(io.BytesIO(value), schema, None)

    return MessageFormat(
        "avro", values, "fastavro.schemaless_reader", read, options={"avro_schema": file}
    )


def _protobuf(rows: Sequence[dict[str, Any]], folder: Path) -> MessageFormat:
    described = _descriptors()
    pool = descriptor_pool.DescriptorPool()
    for file in described.file:
        pool.Add(file)  # type: ignore[no-untyped-call]
    found = pool.FindMessageTypeByName(_MESSAGE)  # type: ignore[no-untyped-call]
    click = message_factory.GetMessageClass(found)
    values = []
    for row in rows:
        message: Any = click(**{name: value for name, value in row.items() if name != "at"})
        message.at.FromDatetime(row["at"])
        values.append(message.SerializeToString())
    path = folder / "click.descriptors"
    path.write_bytes(described.SerializeToString())

    def read(value: bytes) -> object:
        # No Python object is made of a field until it is asked for.
        made: Any = click.FromString(value)
        return (made.at.seconds, made.at.nanos, made.page, made.amount, made.n, made.user)

    return MessageFormat(
        "protobuf",
        values,
        "the generated class, each field read",
        read,
        options={"protobuf_descriptor": path, "protobuf_message": _MESSAGE},
    )


def _descriptors() -> descriptor_pb2.FileDescriptorSet:
    click = descriptor_pb2.DescriptorProto(name="Click")
    types = {
        "at": _FIELDS.TYPE_MESSAGE,
        "page": _FIELDS.TYPE_STRING,
        "amount": _FIELDS.TYPE_DOUBLE,
        "n": _FIELDS.TYPE_INT32,
        "user": _FIELDS.TYPE_STRING,
    }
    for number, (name, kind) in enumerate(types.items(), start=1):
        click.field.append(
            _FIELDS(name=name, number=number, type=kind, label=_FIELDS.LABEL_OPTIONAL)
        )
    click.field[0].type_name = ".google.protobuf.Timestamp"
    moments = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(moments)  # type: ignore[no-untyped-call]
    file = descriptor_pb2.FileDescriptorProto(
        name="click.proto",
        package="bench",
        syntax="proto3",
        dependency=[moments.name],
        message_type=[click],
    )
    return descriptor_pb2.FileDescriptorSet(file=[moments, file])


def _debezium(rows: Sequence[dict[str, Any]]) -> MessageFormat:
    """New rows, as a connector writes them without a schema: moments are milliseconds."""
    values = []
    for row in rows:
        millis = int(row["at"].timestamp() * 1000)
        source = {"connector": "postgresql", "db": "shop", "table": "clicks", "lsn": millis}
        after = {**row, "at": millis}
        envelope = {"before": None, "after": after, "source": source, "op": "c", "ts_ms": millis}
        values.append(_json(envelope))
    return MessageFormat("debezium-json", values, "json.loads", json.loads, schema=_WITH_WEIGHT)
