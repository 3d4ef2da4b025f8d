"""A fixture for a Spark Connect server: `spark_connect`, one warm Spark for many processes."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from infra.errors import ServiceUnavailable
from infra.spark_connect import SparkConnect, SparkConnectEndpoint
from tests.services.spark import executor_credentials

# What `pyspark[connect]` adds to pyspark.
_CLIENT_NEEDS = ("grpc", "grpc_status", "zstandard")


@pytest.fixture(scope="session")
def spark_connect(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkConnectEndpoint]:
    """One server per test process. Its executors may use the S3 server, if a test does."""
    missing = [name for name in _CLIENT_NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        reason = f"its client lacks {', '.join(missing)}; install pyspark[connect]"
        raise ServiceUnavailable(SparkConnect.name, reason)
    from laminar_dagster.spark.session_settings import WORKER_DAEMON

    # As a session in a process of its own has it.
    settings = {"spark.master": "local[2]", "spark.python.daemon.module": WORKER_DAEMON}
    with SparkConnect(settings, executor_credentials(request)) as server:
        yield server.start(tmp_path_factory.mktemp("spark_connect"))
