"""Declares the package's own sources and reference tables.

Adapters are imported when they are built: each brings the client of its system.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from laminar_dagster.config.connectors import SourceTraits
from laminar_dagster.config.model import ReferenceTable, SourceTable
from laminar_dagster.core.ports import Reference, Source
from laminar_dagster.plugins import (
    Extra,
    ReferenceConnector,
    ReferenceContext,
    SourceConnector,
    SourceContext,
)

_AVRO: Final = frozenset({"avro"})
_PROTOBUF: Final = frozenset({"protobuf"})


def _file(table: SourceTable, context: SourceContext) -> Source:
    from laminar_dagster.sources.file.source import FileSource

    return FileSource.from_table(table, context.project, context.defaults)


def _kafka(table: SourceTable, context: SourceContext) -> Source:
    from laminar_dagster.sources.kafka.source import KafkaSource

    return KafkaSource.from_table(table, context.project, context.defaults)


def _kafka_traits(options: Mapping[str, str]) -> SourceTraits:
    from laminar_dagster.sources.kafka.traits import kafka_traits

    return kafka_traits(options)


def _kafka_mistakes(options: Mapping[str, str]) -> Iterable[tuple[str, str, str]]:
    from laminar_dagster.clients.kafka.properties import property_mistakes

    return property_mistakes(options)


def _kafka_doubts(options: Mapping[str, str]) -> Iterable[tuple[str, str, str]]:
    from laminar_dagster.clients.kafka.options import secrets_in_plain_text

    return secrets_in_plain_text(options)


def _mysql_cdc(table: SourceTable, context: SourceContext) -> Source:
    from laminar_dagster.sources.mysql.source import MysqlCdcSource

    return MysqlCdcSource.from_table(table, context.project, context.defaults, context.snapshots)


def _mysql_cdc_traits(options: Mapping[str, str]) -> SourceTraits:
    from laminar_dagster.sources.changes.traits import change_traits

    return change_traits(options)


def _postgres_cdc(table: SourceTable, context: SourceContext) -> Source:
    from laminar_dagster.sources.postgres.source import PostgresCdcSource

    return PostgresCdcSource.from_table(table, context.project, context.defaults, context.snapshots)


def _postgres_cdc_traits(options: Mapping[str, str]) -> SourceTraits:
    from laminar_dagster.sources.postgres.traits import postgres_cdc_traits

    return postgres_cdc_traits(options)


def _delta_reference(table: ReferenceTable, context: ReferenceContext) -> Reference:
    from laminar_dagster.sources.references.delta import DeltaReference

    return DeltaReference.from_table(table, context.project)


def _file_reference(table: ReferenceTable, context: ReferenceContext) -> Reference:
    from laminar_dagster.sources.references.file import FileReference

    return FileReference.from_table(table, context.project)


def _postgres_reference(table: ReferenceTable, context: ReferenceContext) -> Reference:
    from laminar_dagster.sources.references.postgres import PostgresReference

    return PostgresReference.from_table(table, context.project)


FILE: Final = SourceConnector(interface=1, build=_file)
KAFKA: Final = SourceConnector(
    interface=1,
    build=_kafka,
    traits=_kafka_traits,
    mistakes=_kafka_mistakes,
    doubts=_kafka_doubts,
    extras=(
        Extra("kafka", ("confluent_kafka", "urllib3")),
        Extra("avro", ("fastavro",), "format", _AVRO),
        Extra("avro", ("fastavro",), "key.format", _AVRO),
        Extra("protobuf", ("grpc_tools",), "format", _PROTOBUF),
        Extra("protobuf", ("grpc_tools",), "key.format", _PROTOBUF),
    ),
)
MYSQL_CDC: Final = SourceConnector(
    interface=1,
    build=_mysql_cdc,
    traits=_mysql_cdc_traits,
    extras=(Extra("mysql", ("pymysql",)),),
)
POSTGRES_CDC: Final = SourceConnector(
    interface=1,
    build=_postgres_cdc,
    traits=_postgres_cdc_traits,
    extras=(Extra("postgres", ("psycopg",)),),
)

DELTA_REFERENCE: Final = ReferenceConnector(
    interface=1, build=_delta_reference, extras=(Extra("delta", ("deltalake",)),)
)
FILE_REFERENCE: Final = ReferenceConnector(interface=1, build=_file_reference)
POSTGRES_REFERENCE: Final = ReferenceConnector(
    interface=1, build=_postgres_reference, extras=(Extra("postgres", ("psycopg",)),)
)
