"""What a source says of itself."""

from __future__ import annotations

from laminar_dagster.core.errors import SourceUnavailable
from laminar_dagster.core.health import HealthReport, PartitionHealth


def test_lag_adds_up_and_the_scarcest_headroom_counts() -> None:
    parts = (
        PartitionHealth("t/0", 5, 0.5),
        PartitionHealth("t/1", 7, 0.05),
        PartitionHealth("t/2", 0),
    )
    report = HealthReport(True, "fine", partitions=parts)
    assert (report.total_lag, report.headroom) == (12, 0.05)
    assert report.scarce(0.1) == (parts[1],)
    assert report.scarce(0.05) == (), "as much as is wanted is enough"


def test_nothing_that_can_expire_is_no_headroom() -> None:
    report = HealthReport(True, "fine", partitions=(PartitionHealth("t/0", 5),))
    assert report.headroom is None
    assert report.scarce(1.0) == ()


def test_of_a_source_that_could_not_be_asked_nothing_is_known() -> None:
    error = SourceUnavailable("s", "no route")
    report = HealthReport.unreachable(error, {"topics": "t"})
    assert (report.healthy, report.message, report.error) == (False, str(error), error)
    assert (report.total_lag, report.details) == (None, {"topics": "t"})
