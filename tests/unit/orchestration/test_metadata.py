"""What plans and manifests say, as Dagster shows it."""

from __future__ import annotations

from datetime import timedelta

import dagster as dg

from laminar_dagster.core.ids import EpochNumber, FileName, ReferenceId
from laminar_dagster.core.offsets import SourceRange
from laminar_dagster.core.reference import ReferencePin
from laminar_dagster.core.snapshot import SnapshotFile
from laminar_dagster.core.upkeep import Rescale
from laminar_dagster.orchestration.metadata import manifest_metadata, plan_metadata
from tests.unit.core.samples import MOMENT, checkpoint, kafka, manifest, plan, sha, source_plan


def test_an_epoch_of_upkeep_says_what_it_did() -> None:
    still = source_plan(SourceRange(start=kafka(9), end=kafka(9)))
    upkeep = Rescale(buckets_before=8, buckets_after=12)
    found = plan_metadata(plan(3, sources=(still,), upkeep=upkeep))
    assert found["upkeep"].value == "rescale from 8 to 12 buckets"
    assert found["partitions_with_data"].value == 0
    assert "upkeep" not in plan_metadata(plan(3))


def test_a_reference_table_is_told_with_its_copy_its_size_and_its_age() -> None:
    file = SnapshotFile(name=FileName("rows.arrow"), rows=7, size_bytes=99, sha256=sha("rows"))
    pin = ReferencePin(
        reference_id=ReferenceId("fruit"),
        version="1",
        declaration=sha("declared"),
        epoch=EpochNumber(1),
        copy_id=checkpoint(1),
        checked_at=MOMENT - timedelta(minutes=5),
        files=(file,),
        unavailable_since=MOMENT,
    )
    found = plan_metadata(plan(3, references=(pin,)))
    assert found["reference_rows_fruit"].value == 7
    assert found["reference_bytes_fruit"].value == 99
    assert found["reference_age_seconds_fruit"].value == 300
    table = found["references"]
    assert table == manifest_metadata(manifest(3, references=(pin,)))["references"]
    assert isinstance(table, dg.TableMetadataValue)
    (row,) = (record.data for record in table.records)
    assert (row["reference"], row["copied for epoch"], row["rows"]) == ("fruit", 1, 7)
    assert (row["away since"], row["copy"]) == (MOMENT.isoformat(), checkpoint(1))
    assert "references" not in plan_metadata(plan(3))
