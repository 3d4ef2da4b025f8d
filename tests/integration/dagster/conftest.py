"""One `dagster dev` for the tests that look at pipelines from outside; to start it takes long."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from infra.spark_connect import SparkConnectEndpoint
from tests.integration.dagster.pipelines_project import SECRET_VARIABLE, Shop
from tests.services.dagster_client import DagsterClient
from tests.services.dagster_dev import DagsterDev, DagsterEndpoint
from tests.services.spark_connect import warm_server

PASSWORD: Final = "canary-7f3a9b61"
# Seconds for a run and the sensors' pauses, on a machine that does other things as well.
LONG: Final = 400.0
# The daemon looks at its queue as often as it can; runs of one pipeline come one after the other.
SETTINGS: Final = """
run_coordinator:
  module: dagster
  class: QueuedRunCoordinator
  config: {dequeue_interval_seconds: 1}
concurrency:
  pools: {default_limit: 1, granularity: run}
"""


@dataclass(frozen=True)
class Stand:
    """The project of two pipelines, served by Dagster."""

    shop: Shop
    server: DagsterEndpoint
    dagster: DagsterClient

    def next_key(self, pipeline: str = "clickstream") -> str:
        """The partition of the next epoch, which the commit sensor adds by itself."""
        key = f"{len(self.shop.committed(pipeline)) + 1:012d}"
        asset = f"{pipeline}/checkpoint_manifest"
        self.dagster.wait_for(
            lambda: key in self.dagster.partitions(asset), f"the key of epoch {key}", LONG
        )
        return key


def serve(shop: Shop, spark: SparkConnectEndpoint) -> DagsterDev:
    """A server for the project, whose runs come to one warm session of Spark."""
    environment = {
        **spark.environment(),
        "SPARK_REMOTE": spark.session_url(uuid.uuid4()),
        SECRET_VARIABLE: PASSWORD,
    }
    return DagsterDev(shop.root, dagster_yaml=SETTINGS, environment=environment)


@pytest.fixture(scope="package")
def stand_spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkConnectEndpoint]:
    """A Spark of its own: a test holds all of its Python workers."""
    with warm_server(request)() as server:
        yield server.start(tmp_path_factory.mktemp("stand_spark"))


@pytest.fixture(scope="package")
def stand(
    tmp_path_factory: pytest.TempPathFactory, stand_spark: SparkConnectEndpoint
) -> Iterator[Stand]:
    folder: Path = tmp_path_factory.mktemp("shop")
    shop = Shop(folder / "project")
    shop.lay_out()
    with serve(shop, stand_spark) as server:
        endpoint = server.start(folder / "dagster")
        yield Stand(shop, endpoint, endpoint.client)
