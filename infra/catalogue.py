"""Every service by name, in the order they start."""

from __future__ import annotations

from typing import Any

from infra.s3 import S3
from infra.service import Service
from infra.spark_connect import SparkConnect

SERVICES: dict[str, type[Service[Any]]] = {kind.name: kind for kind in (S3, SparkConnect)}
