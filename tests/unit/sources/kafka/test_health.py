"""Lag and headroom of a partition."""

from __future__ import annotations

import pytest

from laminar_dagster.core.health import PartitionHealth
from laminar_dagster.sources.kafka.health import PartitionLag, report


@pytest.mark.parametrize(
    ("position", "earliest", "end", "lag", "headroom"),
    [
        pytest.param(None, 10, 30, 20, None, id="before the first epoch"),
        pytest.param(30, 10, 30, 0, None, id="nothing waits"),
        pytest.param(20, 0, 30, 10, None, id="nothing was ever deleted"),
        pytest.param(20, 10, 30, 10, 0.5, id="half of it has been read"),
        pytest.param(10, 10, 30, 20, 0.0, id="the next to go was not read"),
        pytest.param(5, 10, 30, 20, 0.0, id="some are gone, and wait no more"),
        pytest.param(31, 10, 30, 0, None, id="further than there is"),
    ],
)
def test_lag_and_headroom(
    position: int | None, earliest: int, end: int, lag: int, headroom: float | None
) -> None:
    found = PartitionLag("t", 0, position, earliest, end)
    assert (found.lag, found.headroom) == (lag, headroom)


def test_a_report_names_brokers_and_the_lag_of_every_partition() -> None:
    parts = [PartitionLag("t", 0, 20, 10, 1030), PartitionLag("t", 1, 0, 0, 234)]
    found = report(3, parts, {"group_id": "g"})
    assert found.healthy
    assert found.message == "connected to 3 broker(s), lag 1,244"
    assert found.details == {"group_id": "g", "brokers": "3"}
    assert found.partitions == (
        PartitionHealth("t/0", 1010, 10 / 1020),
        PartitionHealth("t/1", 234, None),
    )
