"""Declares the package's own sinks.

Adapters are imported when they are built: each brings the client of its system.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from laminar_dagster.config.model import SinkTable
from laminar_dagster.core.ports import Sink
from laminar_dagster.plugins import Extra, SinkConnector, SinkContext

_AVRO: Final = frozenset({"avro"})
_PROTOBUF: Final = frozenset({"protobuf"})


def _delta(table: SinkTable, context: SinkContext) -> Sink:
    from laminar_dagster.sinks.delta.sink import DeltaSink

    return DeltaSink.from_table(table, context.project, context.pipeline)


def _kafka(table: SinkTable, context: SinkContext) -> Sink:
    from laminar_dagster.sinks.kafka.sink import KafkaSink

    return KafkaSink.from_table(table, context.project, context.pipeline)


def _kafka_mistakes(options: Mapping[str, str]) -> Iterable[tuple[str, str, str]]:
    from laminar_dagster.clients.kafka.properties import property_mistakes

    return property_mistakes(options)


def _kafka_doubts(options: Mapping[str, str]) -> Iterable[tuple[str, str, str]]:
    from laminar_dagster.clients.kafka.options import secrets_in_plain_text

    return secrets_in_plain_text(options)


def _mysql(table: SinkTable, context: SinkContext) -> Sink:
    from laminar_dagster.sinks.mysql.sink import MysqlSink

    return MysqlSink.from_table(table, context.project, context.pipeline)


def _postgres(table: SinkTable, context: SinkContext) -> Sink:
    from laminar_dagster.sinks.postgres.sink import PostgresSink

    return PostgresSink.from_table(table, context.project, context.pipeline)


def _sqlite(table: SinkTable, context: SinkContext) -> Sink:
    from laminar_dagster.sinks.sqlite.sink import SqliteSink

    return SqliteSink.from_table(table, context.project, context.pipeline)


DELTA: Final = SinkConnector(interface=1, build=_delta, extras=(Extra("delta", ("deltalake",)),))
KAFKA: Final = SinkConnector(
    interface=1,
    build=_kafka,
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
MYSQL: Final = SinkConnector(interface=1, build=_mysql, extras=(Extra("mysql", ("pymysql",)),))
POSTGRES: Final = SinkConnector(
    interface=1, build=_postgres, extras=(Extra("postgres", ("psycopg",)),)
)
SQLITE: Final = SinkConnector(interface=1, build=_sqlite)
