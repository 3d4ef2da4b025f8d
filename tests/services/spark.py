"""A Spark session, one for the whole run: starting it is the slow part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from infra.errors import ServiceUnavailable
from infra.s3 import S3Endpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A local session. Its executors may use the S3 server, if a test of the run does."""
    from laminar_dagster.spark.session import open_session

    with pytest.MonkeyPatch.context() as patch:
        # Of a server that somebody keeps running between commands.
        patch.delenv("SPARK_REMOTE", raising=False)
        for name, value in executor_credentials(request).items():
            patch.setenv(name, value)
        session = open_session({"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


def executor_credentials(request: pytest.FixtureRequest) -> Mapping[str, str]:
    """For the S3 server. Executors use what their environment held when Spark was started."""
    marks = (mark for item in request.session.items for mark in item.iter_markers("service"))
    if not any("s3" in mark.args for mark in marks):
        return {}
    try:
        endpoint: S3Endpoint = request.getfixturevalue("s3_service")
    except ServiceUnavailable:
        return {}
    return endpoint.environment()
