"""Every service by name, in the order they start, and everything that can be installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from infra import chromium
from infra.kafka import Kafka
from infra.mariadb import Mariadb
from infra.mysql import Mysql
from infra.postgres import Postgres
from infra.s3 import S3
from infra.schema_registry import SchemaRegistry
from infra.service import Service
from infra.spark_connect import SparkConnect

SERVICES: dict[str, type[Service[Any]]] = {
    kind.name: kind for kind in (S3, SparkConnect, Postgres, Mariadb, Mysql, Kafka, SchemaRegistry)
}

# Installed like a service, and started by whoever uses it.
TOOLS: dict[str, Callable[[], None]] = {chromium.NAME: chromium.install}
