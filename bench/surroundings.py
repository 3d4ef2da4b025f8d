"""What benchmarks run in: a real disk, a real Spark, and a real S3 server if there is one."""

from __future__ import annotations

import os
import tempfile
import threading
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from unittest import mock

import boto3
from botocore.config import Config

from bench.measure import Effort
from infra.errors import ServiceError
from infra.s3 import S3, S3Endpoint
from laminar_dagster.stores.local import LocalStore
from laminar_dagster.stores.s3 import S3Store

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from pyspark.sql import SparkSession

# Not the system's temporary folder, which may be in memory: a sync must reach a disk.
_SCRATCH = Path(".laminar")


class CountedS3Store(S3Store):
    """An S3 store that counts the requests it sends, those that are retried included."""

    def __init__(self, bucket: str, *, endpoint_url: str, region: str) -> None:
        """Open an existing bucket."""
        super().__init__(bucket, endpoint_url=endpoint_url, region=region)
        self.requests = 0
        self._counting = threading.Lock()
        for client in (self._clients.retrying, self._clients.single):
            client.meta.events.register("before-send.s3", self._count)

    def _count(self, **_: Any) -> None:
        with self._counting:
            self.requests += 1


@dataclass(frozen=True, slots=True)
class Bucket:
    """An empty bucket, seen through the store and through a plain client."""

    name: str
    store: CountedS3Store
    client: S3Client


class Surroundings:
    """Made when first asked for, and gone at the end of the block."""

    def __init__(self, effort: Effort) -> None:
        """Make nothing yet."""
        self.effort = effort
        self._stack = ExitStack()
        self._endpoint: S3Endpoint | ServiceError | None = None
        self._spark: SparkSession | None = None

    def __enter__(self) -> Self:
        """Make the scratch folder."""
        _SCRATCH.mkdir(exist_ok=True)
        folder = tempfile.TemporaryDirectory(
            prefix="bench-", dir=_SCRATCH, ignore_cleanup_errors=True
        )
        self._folder = Path(self._stack.enter_context(folder)).absolute()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the server and remove all files."""
        self._stack.close()

    def folder(self) -> Path:
        """An empty folder."""
        return Path(tempfile.mkdtemp(dir=self._folder))

    def local_store(self) -> LocalStore:
        """An empty store on disk."""
        return LocalStore(self.folder())

    def spark(self) -> SparkSession:
        """The one session of the run, with the settings that epochs have."""
        if self._spark is None:
            # Imported here: other benchmarks do not wait for it, nor need Java.
            from laminar_dagster.spark.session import open_session

            self._spark = open_session({"spark.sql.warehouse.dir": str(self.folder())})
            self._stack.callback(self._spark.stop)
        return self._spark

    def bucket(self) -> Bucket:
        """An empty bucket.

        Raises:
            ServiceError: There is no S3 server to be had.
        """
        endpoint = self._server()
        # The settings of the store's own clients, so that only the protocol makes a difference.
        config = Config(
            s3={"addressing_style": "path"},
            retries={"mode": "standard", "total_max_attempts": 1},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            tcp_keepalive=True,
        )
        client = boto3.client("s3", endpoint_url=endpoint.url, config=config)
        self._stack.callback(client.close)
        name = f"bench-{uuid.uuid4().hex}"
        client.create_bucket(Bucket=name)
        store = CountedS3Store(name, endpoint_url=endpoint.url, region=endpoint.region)
        self._stack.callback(store.close)
        return Bucket(name, store, client)

    def _server(self) -> S3Endpoint:
        if self._endpoint is None:
            try:
                server = self._stack.enter_context(S3())
                self._endpoint = server.start(self.folder())
                environment = mock.patch.dict(os.environ, self._endpoint.environment())
                self._stack.enter_context(environment)
            except ServiceError as error:
                self._endpoint = error
        if isinstance(self._endpoint, ServiceError):
            raise self._endpoint
        return self._endpoint
