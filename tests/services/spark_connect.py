"""A fixture for a Spark Connect server: `spark_connect`, one warm Spark for many processes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial

import pytest

from infra.errors import ServiceUnavailable
from infra.spark_connect import SparkConnect, SparkConnectEndpoint
from tests.services.sharing import Services
from tests.services.spark import executor_credentials

# What `pyspark[connect]` adds to pyspark.
_CLIENT_NEEDS = ("grpc", "grpc_status", "zstandard")


@pytest.fixture(scope="session")
def spark_connect(request: pytest.FixtureRequest, services: Services) -> SparkConnectEndpoint:
    """One server per run. Its executors may use the S3 server, if a test does."""
    return services.endpoint("spark_connect", warm_server(request))


def warm_server(request: pytest.FixtureRequest) -> Callable[[], SparkConnect]:
    """Makes a server whose sessions are as one in a process of its own has it.

    Raises:
        ServiceUnavailable: Nobody could talk to it.
    """
    missing = [name for name in _CLIENT_NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        reason = f"its client lacks {', '.join(missing)}; install pyspark[connect]"
        raise ServiceUnavailable(SparkConnect.name, reason)
    from laminar_dagster.spark.session_settings import WORKER_DAEMON

    settings = {
        "spark.master": "local[2]",
        "spark.python.daemon.module": WORKER_DAEMON,
        # It keeps the sessions of all processes for an hour, also of those that were killed.
        "spark.driver.memory": "2g",
    }
    return partial(SparkConnect, settings, dict(executor_credentials(request)))
