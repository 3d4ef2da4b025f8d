"""What the proofs share."""

from __future__ import annotations

import uuid

import pytest

from infra.spark_connect import SparkConnectEndpoint


@pytest.fixture(scope="module")
def warm_spark(spark_connect: SparkConnectEndpoint) -> dict[str, str]:
    """The environment of workers that come one after the other: one session for all of them."""
    return {**spark_connect.environment(), "SPARK_REMOTE": spark_connect.session_url(uuid.uuid4())}
