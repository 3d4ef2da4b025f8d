"""What is refused before it is published: miscounts, gaps between epochs, broken contracts."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

from laminar_dagster.core import layout
from laminar_dagster.core.gate import refusal
from laminar_dagster.core.ids import CheckpointId, EpochNumber, PipelineName, SourceId
from laminar_dagster.core.manifest import CheckpointManifest, RecordCounts, SourceOffsetEntry
from laminar_dagster.core.offsets import CustomIdentity, Gap, KafkaPosition, SourceRange
from laminar_dagster.core.plan import EpochPlan, SourcePlan
from laminar_dagster.core.ports import EpochOutput, Violation
from laminar_dagster.core.prepared import LatestPointer

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLICKS = SourceId("clicks")


def at(offset: int, partition: int = 0) -> KafkaPosition:
    return KafkaPosition(topic="t", partition=partition, offset=offset)


def between(start: int, end: int, partition: int = 0) -> SourceRange:
    return SourceRange(start=at(start, partition), end=at(end, partition))


def stands(*positions: KafkaPosition) -> SourceOffsetEntry:
    return SourceOffsetEntry(
        source_id=CLICKS, positions=positions, path=layout.offsets_path(CLICKS)
    )


def manifest(*positions: KafkaPosition) -> CheckpointManifest:
    return CheckpointManifest(
        version=1,
        checkpoint_id=CheckpointId.from_parts(1, 1),
        epoch=EpochNumber(1),
        pipeline=PipelineName("p"),
        fingerprint="f",
        plan_checksum="0" * 64,
        previous_checkpoint_id=None,
        started_at=NOW,
        completed_at=NOW,
        total_size_bytes=0,
        counts=RecordCounts(),
        sources=(stands(*positions),),
    )


def plan(
    parent: CheckpointManifest | None, *ranges: SourceRange, gaps: tuple[Gap, ...] = ()
) -> EpochPlan:
    return EpochPlan(
        version=1,
        plan_id=CheckpointId.from_parts(2, 2),
        pipeline=PipelineName("p"),
        epoch=EpochNumber(2 if parent else 1),
        clock=NOW,
        fingerprint="f",
        parent=LatestPointer.to(parent).as_parent() if parent else None,
        sources=(
            SourcePlan(
                source_id=CLICKS,
                identity=CustomIdentity(source_type="log", identity="l"),
                ranges=ranges,
                gaps=gaps,
            ),
        ),
        sinks=(),
    )


def output(*positions: KafkaPosition) -> EpochOutput:
    return EpochOutput(
        operators=(),
        sources=(stands(*positions),),
        sinks=(),
        dead_letters=(),
        counts=RecordCounts(read=3, processed=3),
        watermark=None,
    )


def test_an_epoch_that_joins_the_last_one_passes() -> None:
    parent = manifest(at(5))
    assert refusal(plan(parent, between(5, 8)), parent, output(at(8))) is None


def test_the_first_epoch_and_a_new_partition_begin_anywhere() -> None:
    assert refusal(plan(None, between(7, 9)), None, output(at(9))) is None
    parent = manifest(at(5))
    planned = plan(parent, between(5, 5), between(3, 4, partition=1))
    assert refusal(planned, parent, output(at(5), at(4, 1))) is None


def test_records_that_do_not_add_up_are_refused() -> None:
    wrong = dataclasses.replace(output(at(8)), counts=RecordCounts(read=4, processed=3))
    found = refusal(plan(None, between(5, 8)), None, wrong)
    assert found and found.check == "record accounting"


def test_a_hole_between_two_epochs_is_refused() -> None:
    parent = manifest(at(5))
    found = refusal(plan(parent, between(6, 8)), parent, output(at(8)))
    assert found and found.check == "offset contiguity"
    assert "clicks t/0: it begins at offset 6, the last ended at offset 5" in found.reason


def test_a_range_that_is_read_again_is_refused() -> None:
    parent = manifest(at(5))
    found = refusal(plan(parent, between(4, 8)), parent, output(at(8)))
    assert found and found.check == "offset contiguity"


def test_an_accepted_gap_is_no_hole_but_only_where_it_was_accepted() -> None:
    parent = manifest(at(5))
    accepted = (Gap(lost=between(5, 6), reason="retention"),)
    assert refusal(plan(parent, between(6, 8), gaps=accepted), parent, output(at(8))) is None
    found = refusal(plan(parent, between(7, 8), gaps=accepted), parent, output(at(8)))
    assert found and found.check == "offset contiguity"


def test_a_range_that_was_not_read_to_its_end_is_refused() -> None:
    planned = plan(None, between(5, 8))
    short = refusal(planned, None, output(at(7)))
    assert short and "it ends at offset 7, planned was offset 8" in short.reason
    forgotten = refusal(planned, None, output(at(8, partition=3)))
    assert forgotten and "there is no position of it" in forgotten.reason


def test_a_violation_is_named_with_its_view_and_others_of_its_kind() -> None:
    broken = dataclasses.replace(
        output(at(8)),
        violations=(
            Violation("contract", "minutes", "views is 0"),
            Violation("contract", "hours", "page is null"),
            Violation("record accounting", "minutes", "3 sent, 2 arrived"),
        ),
    )
    found = refusal(plan(None, between(5, 8)), None, broken)
    assert found and (found.check, found.subject) == ("contract", "minutes")
    assert found.reason == "minutes: views is 0; hours: page is null"
