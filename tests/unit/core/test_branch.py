"""The record of a branch, the plans it carries out, and the versions that a promotion ends."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from laminar_dagster.core import layout
from laminar_dagster.core.branch import BranchRecord, BranchSink, replayed_plan
from laminar_dagster.core.document import decode, encode
from laminar_dagster.core.errors import InvalidName, VersionReplaced
from laminar_dagster.core.ids import GENESIS, BranchName, EpochNumber, OperatorId, SinkId
from laminar_dagster.core.prepared import LatestPointer
from laminar_dagster.core.succession import (
    REPLACED,
    after_promotion,
    inherited,
    replaced_versions,
    require_current,
)
from laminar_dagster.core.upkeep import Rescale
from tests.golden import write_v1

RECORD = write_v1.branch()
MANIFEST = write_v1.small_manifest()


def changed(**changes: Any) -> BranchRecord:
    return structs.replace(RECORD, **changes)


def test_a_record_comes_back_as_it_was_written() -> None:
    assert decode(encode(RECORD), BranchRecord, "branch.json") == RECORD
    assert RECORD.pipeline_name == "clickstream.fix-1"
    assert layout.branch_key(RECORD.name) == "branches/fix-1/branch.json"
    assert layout.branch_folder(RECORD.name) == "branches/fix-1/"


@pytest.mark.parametrize(
    "changes",
    [
        {"from_epoch": EpochNumber(1)},
        {"start": None},
        {"sinks": (RECORD.sinks[0], RECORD.sinks[0])},
        {"from_epoch": GENESIS},
    ],
)
def test_a_record_that_contradicts_itself_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"checkpoint|twice"):
        BranchRecord(**{**structs.asdict(RECORD), **changes})


def test_a_key_belongs_to_upserts() -> None:
    with pytest.raises(ValueError, match="if and only if"):
        BranchSink(sink_id=SinkId("a"), view=OperatorId("v"), mode="append", key=("k",))
    with pytest.raises(ValueError, match="if and only if"):
        BranchSink(sink_id=SinkId("a"), view=OperatorId("v"), mode="upsert")


def test_what_tells_two_branches_of_one_name_apart() -> None:
    assert RECORD.mismatch(changed(created_at=MANIFEST.completed_at)) == ""
    assert RECORD.start
    start = structs.replace(RECORD.start, manifest_checksum="0" * 64)
    for other, words in (
        (changed(from_epoch=GENESIS, start=None), "was made from epoch 2, not 0"),
        (changed(start=start), "another checkpoint of epoch 2"),
        (changed(fingerprint="other"), "by version 9f86d081884c of the pipeline, and this one is"),
        (changed(sinks=RECORD.sinks[:1]), "there was a sink warehouse"),
    ):
        assert words in RECORD.mismatch(other)
    assert "no sink warehouse" in changed(sinks=RECORD.sinks[:1]).mismatch(RECORD)


def test_a_replayed_plan_keeps_what_was_read_and_when() -> None:
    stored = write_v1.plan()
    start = structs.replace(MANIFEST, epoch=EpochNumber(1))
    plan = replayed_plan(stored, changed(from_epoch=GENESIS, start=None), start, write_v1.PLAN_ID)
    assert (plan.sources, plan.clock, plan.epoch) == (stored.sources, stored.clock, stored.epoch)
    assert (plan.pipeline, plan.fingerprint) == ("clickstream.fix-1", RECORD.fingerprint)
    assert plan.parent == LatestPointer.to(start).as_parent()
    assert [(each.sink_id, each.joined_at) for each in plan.sinks] == [
        ("lake", 1),
        ("warehouse", 1),
    ]


def test_upkeep_of_the_pipeline_is_no_upkeep_of_the_branch() -> None:
    still = tuple(
        structs.replace(
            source,
            ranges=tuple(structs.replace(part, start=part.end) for part in source.ranges),
            gaps=(),
        )
        for source in write_v1.plan().sources
    )
    rescale = Rescale(buckets_before=4, buckets_after=8)
    stored = structs.replace(write_v1.plan(), sources=still, upkeep=rescale)
    start = structs.replace(MANIFEST, epoch=EpochNumber(1))
    record = changed(from_epoch=GENESIS, start=None)
    assert replayed_plan(stored, record, start, write_v1.PLAN_ID).upkeep is None


def test_a_hostile_name_makes_no_key() -> None:
    for name in ("..", "a/b", "", "."):
        with pytest.raises(InvalidName):
            layout.branch_key(BranchName(name))


# --- succession ---------------------------------------------------------------------------------


def test_replaced_versions_are_carried_on_and_can_come_back() -> None:
    first = structs.replace(MANIFEST, metadata=after_promotion(MANIFEST, ["b", "a"], "c"))
    assert replaced_versions(first) == ("a", "b")
    later = structs.replace(MANIFEST, metadata=inherited(first))
    assert replaced_versions(later) == ("a", "b")
    back = structs.replace(MANIFEST, metadata=after_promotion(later, ["c"], "a"))
    assert replaced_versions(back) == ("b", "c")
    assert inherited(MANIFEST) == {} == inherited(None)
    assert REPLACED in first.metadata


def test_only_a_replaced_version_is_refused() -> None:
    parent = structs.replace(MANIFEST, metadata={REPLACED: "old older"})
    require_current("new", EpochNumber(3), parent)
    require_current("old", EpochNumber(1), None)
    with pytest.raises(VersionReplaced, match=r"epoch 3 .*\(older\)"):
        require_current("older", EpochNumber(3), parent)
