"""Fixtures for a real S3 server: `s3_service`, `s3_client`, `s3_bucket`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.config import Config

from infra.s3 import S3, S3Endpoint
from tests.services.sharing import Services

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def connect(endpoint: S3Endpoint, *, url: str | None = None, attempts: int = 1) -> S3Client:
    """Return a client of the server.

    Args:
        endpoint: Where the server is, and its credentials.
        url: Another way to the same server, such as a `FaultyWire`.
        attempts: How often the client tries a request; 1 shows each fault to the test.
    """
    return boto3.client(
        "s3",
        endpoint_url=url or endpoint.url,
        region_name=endpoint.region,
        aws_access_key_id=endpoint.access_key,
        aws_secret_access_key=endpoint.secret_key,
        config=Config(
            s3={"addressing_style": "path"},
            retries={"total_max_attempts": attempts, "mode": "standard"},
            connect_timeout=5,
            read_timeout=30,
        ),
    )


@pytest.fixture(scope="session")
def s3_service(services: Services) -> S3Endpoint:
    """One S3 server per run."""
    return services.endpoint("s3", S3)


@pytest.fixture(scope="session")
def s3_client(s3_service: S3Endpoint) -> Iterator[S3Client]:
    """A client without retries."""
    client = connect(s3_service)
    yield client
    client.close()


@pytest.fixture
def s3_bucket(s3_client: S3Client) -> Iterator[str]:
    """The name of an empty bucket that no other test uses; removed with all it holds."""
    name = f"test-{uuid.uuid4().hex}"
    s3_client.create_bucket(Bucket=name)
    yield name
    for upload in s3_client.list_multipart_uploads(Bucket=name).get("Uploads", []):
        s3_client.abort_multipart_upload(
            Bucket=name, Key=upload["Key"], UploadId=upload["UploadId"]
        )
    for page in s3_client.get_paginator("list_objects_v2").paginate(Bucket=name):
        for entry in page.get("Contents", []):
            s3_client.delete_object(Bucket=name, Key=entry["Key"])
    s3_client.delete_bucket(Bucket=name)
