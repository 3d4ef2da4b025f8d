"""A Delta table in an object store: its keys, and what others do to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from infra.s3 import S3Endpoint
from laminar_dagster.core.errors import InvalidConfig, SinkUnavailable, WriteFailed
from laminar_dagster.core.ids import EpochNumber, PipelineName
from laminar_dagster.sinks.delta.sink import DeltaSink
from tests.services.faulty_wire import WireFactory
from tests.unit.sinks.staging import SINK, staged

pytestmark = pytest.mark.service("s3")

ROWS = pa.table({"k": pa.array([2**53, 2**53 + 1]).cast(pa.decimal128(20, 0)), "v": ["a", "b"]})


@dataclass(frozen=True)
class Lake:
    """A table in a bucket."""

    NAME: ClassVar[str] = "lake/rows of k"

    bucket: str
    options: dict[str, str]

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.NAME}"

    def sink(self, **others: str) -> DeltaSink:
        options = {**self.options, **others}
        pipeline = PipelineName("clicks")
        return DeltaSink(
            SINK, pipeline, self.url, mode="upsert", key=("k",), storage_options=options
        )

    def table(self) -> DeltaTable:
        return DeltaTable(self.url, storage_options=self.options)


@pytest.fixture
def lake(s3_service: S3Endpoint, s3_bucket: str) -> Lake:
    options = {
        "aws_endpoint": s3_service.url,
        "aws_access_key_id": s3_service.access_key,
        "aws_secret_access_key": s3_service.secret_key,
        "aws_region": s3_service.region,
        "aws_allow_http": "true",
    }
    return Lake(s3_bucket, options)


def test_rows_that_others_took_out_are_refused(lake: Lake) -> None:
    sink = lake.sink()
    for epoch, rows in ((1, ROWS.slice(0, 1)), (2, ROWS.slice(1)), (3, ROWS)):
        sink.commit(EpochNumber(epoch), staged(rows))
    table = lake.table()
    assert sorted(table.to_pyarrow_table()["k"].to_pylist()) == [2**53, 2**53 + 1]
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    sink.commit(EpochNumber(4), staged(ROWS))
    version = lake.table().version()
    lake.table().delete("v = 'a'")
    with pytest.raises(InvalidConfig, match=f"RESTORE the table to version {version},"):
        sink.check(ROWS.schema, staged(ROWS))
    with pytest.raises(WriteFailed, match=f"RESTORE the table to version {version},"):
        sink.commit(EpochNumber(5), staged(ROWS))
    lake.table().restore(version)
    sink.commit(EpochNumber(5), staged(ROWS))
    assert lake.table().to_pyarrow_table().num_rows == 2


def test_keys_with_several_rows_are_found(lake: Lake) -> None:
    sink = lake.sink()
    sink.commit(EpochNumber(1), staged(ROWS))
    assert sink.repeated_keys().count == 0
    write_deltalake(lake.url, ROWS.slice(1), mode="append", storage_options=lake.options)
    assert sink.repeated_keys().count == 1


def test_a_log_that_cannot_be_read_is_no_log_without_entries(
    lake: Lake, s3_service: S3Endpoint, faulty_wire: WireFactory
) -> None:
    """Only an object that is not there was cleaned up."""
    lake.sink().commit(EpochNumber(1), staged(ROWS))
    wire = faulty_wire(s3_service.host, s3_service.port)
    wire.refuse()
    away = lake.sink(aws_endpoint=wire.url, max_retries="0")
    with pytest.raises(SinkUnavailable):
        away._log_entry(0)
    assert lake.sink()._log_entry(1) is None
