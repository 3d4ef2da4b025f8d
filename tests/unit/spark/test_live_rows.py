"""Expressions of an epoch see one clock, and texts that speak of it stay texts."""

from __future__ import annotations

from datetime import UTC, datetime

from laminar_dagster.spark.live_rows import LiveRows


def test_the_clock_of_an_epoch_is_put_into_calls_alone() -> None:
    rows = LiveRows(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    found = rows.sql("IF(ts < Epoch_Time (), 'call epoch_time()', \"epoch_time()\")")
    assert found == "IF(ts < timestamp_micros(1000000), 'call epoch_time()', \"epoch_time()\")"
