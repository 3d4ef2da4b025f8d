"""Plans, attempts, the record of the winner, and the pointer to the latest checkpoint."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from msgspec import structs

from laminar_dagster.core.document import checksum, decode, encode
from laminar_dagster.core.errors import MalformedDocument
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.offsets import Gap, SourceRange
from laminar_dagster.core.plan import EpochPlan, SinkPlan
from laminar_dagster.core.prepared import AttemptRecord, LatestPointer, Prepared
from tests.unit.core import strategies
from tests.unit.core.samples import (
    LAKE,
    MOMENT,
    checkpoint,
    kafka,
    manifest,
    parent,
    plan,
    source_plan,
)

RANGE = SourceRange(start=kafka(0), end=kafka(10))
OTHER = SourceRange(start=kafka(0, partition=1), end=kafka(0, partition=1))


@given(strategies.plans())
def test_a_plan_survives_the_round_trip(document: EpochPlan) -> None:
    assert decode(encode(document), EpochPlan, "plan") == document


@pytest.mark.parametrize(
    ("number", "changes", "reason"),
    [
        (1, {"epoch": EpochNumber(0)}, "numbered from 1"),
        (1, {"parent": parent(1)}, "epoch 1 cannot build on epoch 1"),
        (3, {"parent": None}, "epoch 3 cannot build on epoch 0"),
        (3, {"parent": parent(1)}, "epoch 3 cannot build on epoch 1"),
        (3, {"parent": parent(3)}, "epoch 3 cannot build on epoch 3"),
        (2, {"sources": (source_plan(), source_plan())}, "source is planned twice"),
        (2, {"sinks": (SinkPlan(sink_id=LAKE, joined_at=EpochNumber(1)),) * 2}, "planned twice"),
        (2, {"sinks": (SinkPlan(sink_id=LAKE, joined_at=EpochNumber(3)),)}, "joins after"),
        (2, {"sinks": (SinkPlan(sink_id=LAKE, joined_at=EpochNumber(0)),)}, "joins after"),
        (2, {"clock": MOMENT.replace(tzinfo=None)}, "clock"),
        (2, {"clock": MOMENT.astimezone(timezone(timedelta(hours=2)))}, "clock"),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused(
    number: int, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        plan(number, **changes)


def test_a_plan_of_the_first_epoch_builds_on_no_checkpoint() -> None:
    """Epoch 0 stands before the first and has no checkpoint that could be a parent."""
    with pytest.raises(ValueError, match="builds on no checkpoint"):
        plan(1, parent=parent(0))


def test_a_stored_plan_that_contradicts_itself_is_malformed() -> None:
    data = encode(plan(3))
    wrong = data[: -len(',"checksum":""}') - 64].replace(b'"epoch":2', b'"epoch":1') + b"}"
    seal = hashlib.sha256(wrong).hexdigest().encode()
    with pytest.raises(MalformedDocument, match="cannot build on epoch 1"):
        decode(wrong[:-1] + b',"checksum":"' + seal + b'"}', EpochPlan, "plan")


def test_a_partition_is_planned_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        source_plan(RANGE, SourceRange(start=kafka(10), end=kafka(20)))
    assert source_plan(RANGE, OTHER).ranges == (RANGE, OTHER)


def test_an_idle_partition_is_one_of_those_planned() -> None:
    assert source_plan(RANGE, OTHER, idle=(OTHER.start,)).idle == (OTHER.start,)
    with pytest.raises(ValueError, match="idle"):
        source_plan(RANGE, idle=(OTHER.start,))


def test_a_gap_is_recorded() -> None:
    gap = Gap(lost=RANGE, reason="retention")
    document = plan(sources=(source_plan(gaps=(gap,)),))
    assert decode(encode(document), EpochPlan, "p").sources[0].gaps == (gap,)


# --- the winner ---------------------------------------------------------------------------------


@given(strategies.manifests())
def test_the_bytes_of_the_manifest_follow_from_the_prepared_record(
    document: CheckpointManifest,
) -> None:
    stored = encode(Prepared.of(document))
    one = decode(stored, Prepared, "prepared")
    two = decode(stored, Prepared, "prepared")
    assert encode(one.manifest) == encode(two.manifest) == encode(document)
    assert encode(Prepared.of(one.manifest)) == stored
    assert (one.epoch, one.checkpoint_id) == (document.epoch, document.checkpoint_id)


@pytest.mark.parametrize(
    ("member", "value"), [("epoch", EpochNumber(4)), ("checkpoint_id", checkpoint(9))]
)
def test_a_prepared_record_with_somebody_elses_manifest_is_refused(member: str, value: Any) -> None:
    members: dict[str, Any] = {"epoch": EpochNumber(3), "checkpoint_id": checkpoint(3)}
    assert Prepared(version=1, manifest=manifest(3), **members) == Prepared.of(manifest(3))
    with pytest.raises(ValueError, match="belongs to another"):
        Prepared(version=1, manifest=manifest(3), **(members | {member: value}))


def test_a_prepared_record_with_another_plan_is_refused() -> None:
    """The plan in it is the one that was carried out, or none."""
    with pytest.raises(ValueError, match="not the one that was carried out"):
        Prepared.of(manifest(3), plan(3))
    carried_out = structs.replace(manifest(3), plan_checksum=checksum(plan(3)))
    stored = encode(Prepared.of(carried_out, plan(3)))
    assert decode(stored, Prepared, "prepared").plan == plan(3)


# --- the pointer and the attempt ----------------------------------------------------------------


@given(strategies.manifests())
def test_the_pointer_names_exact_content(document: CheckpointManifest) -> None:
    pointer = LatestPointer.to(document)
    again = decode(encode(pointer), LatestPointer, "latest")
    assert again == pointer
    assert again.manifest_checksum == checksum(document)
    stored = decode(encode(document), CheckpointManifest, "m")
    assert checksum(stored) == again.manifest_checksum


def test_the_pointer_as_a_parent() -> None:
    below = LatestPointer.to(manifest(3)).as_parent()
    assert below.checkpoint_id == checkpoint(3)
    assert below.epoch == 3
    assert below.manifest_checksum == checksum(manifest(3))
    assert plan(4, parent=below).parent == below


def test_an_attempt_survives_the_round_trip() -> None:
    record = AttemptRecord(
        version=1, epoch=EpochNumber(3), checkpoint_id=checkpoint(3), started_at=MOMENT
    )
    assert decode(encode(record), AttemptRecord, "attempt") == record


@pytest.mark.parametrize(
    "moment", [MOMENT.replace(tzinfo=None), MOMENT.astimezone(timezone(timedelta(hours=2)))]
)
def test_an_attempt_begins_at_a_time_in_utc(moment: datetime) -> None:
    with pytest.raises(ValueError, match="started_at"):
        AttemptRecord(
            version=1, epoch=EpochNumber(3), checkpoint_id=checkpoint(3), started_at=moment
        )
