"""What a plan says, as Dagster shows it."""

from __future__ import annotations

from laminar_dagster.core.offsets import SourceRange
from laminar_dagster.core.upkeep import Rescale
from laminar_dagster.orchestration.metadata import plan_metadata
from tests.unit.core.samples import kafka, plan, source_plan


def test_an_epoch_of_upkeep_says_what_it_did() -> None:
    still = source_plan(SourceRange(start=kafka(9), end=kafka(9)))
    upkeep = Rescale(buckets_before=8, buckets_after=12)
    found = plan_metadata(plan(3, sources=(still,), upkeep=upkeep))
    assert found["upkeep"].value == "rescale from 8 to 12 buckets"
    assert found["partitions_with_data"].value == 0
    assert "upkeep" not in plan_metadata(plan(3))
