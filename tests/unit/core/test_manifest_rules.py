"""One broken manifest for each rule, and the rules of the chains of state files."""

from __future__ import annotations

from typing import Any

import pytest

from laminar_dagster.core.errors import DeltaWithoutBase, IntegrityError, InvalidManifest
from laminar_dagster.core.ids import EpochNumber, OperatorId, SinkId, SourceId
from laminar_dagster.core.manifest import RecordCounts
from tests.unit.core.samples import (
    CLICKS,
    checkpoint,
    dead_letters,
    file_entry,
    kafka,
    manifest,
    operator,
    problem_of,
    sink,
    source,
    state_file,
)

TWO = (kafka(1), kafka(2, partition=1))
STAGED = "staged/lake/a"

BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "epoch 0": ({"epoch": EpochNumber(0)}, "numbered from 1"),
    "no parts": ({"operators": (), "sources": ()}, "neither"),
    "operator twice": (
        {"operators": (operator(state_file(2)), operator(state_file(2)))},
        "operator twice",
    ),
    "source twice": ({"sources": (source(kafka(1)), source(kafka(2)))}, "source twice"),
    "sink twice": ({"sinks": (sink(), sink())}, "sink twice"),
    "dead letters twice": (
        {"dead_letters": (dead_letters(), dead_letters())},
        "dead letters of source twice",
    ),
    "offsets elsewhere": (
        {"sources": (source(kafka(1), path="sources/other.offsets"),)},
        "sources/other.offsets",
    ),
    "two positions in a partition": (
        {"sources": (source(kafka(1), kafka(2)),)},
        "two positions in one partition",
    ),
    "too few watermarks": (
        {"sources": (source(*TWO, watermarks=(1,)),)},
        "one watermark for each position",
    ),
    "too many watermarks": (
        {"sources": (source(kafka(1), watermarks=(1, None)),)},
        "one watermark for each position",
    ),
    "sink from the future": ({"sinks": (sink(joined_at=3),)}, "joins after"),
    "sink from before the first epoch": ({"sinks": (sink(joined_at=0),)}, "joins after"),
    "staged file twice": (
        {"sinks": (sink(files=(file_entry(STAGED), file_entry(STAGED))),)},
        "staged/lake/ twice",
    ),
    "staged file of another sink": (
        {"sinks": (sink(files=(file_entry("staged/other/a"),)),)},
        "not below staged/lake/",
    ),
    "staged file that is none": (
        {"sinks": (sink(files=(file_entry("staged/lake/../../x"),)),)},
        "none of a checkpoint's paths",
    ),
    "staged file that climbs": (
        {"sinks": (sink(files=(file_entry("staged/lake/.."),)),)},
        "must not begin or end with",
    ),
    "dead letters of another source": (
        {"dead_letters": (dead_letters(CLICKS, "dead_letters/views/a"),)},
        "not below dead_letters/clicks/",
    ),
    "sizes do not add up": ({"total_size_bytes": 11}, "add up to 10"),
    "records do not add up": ({"counts": RecordCounts(read=1)}, "counts do not add up"),
    "state of another operator": (
        {"operators": (operator(state_file(2, operator=OperatorId("other"))),)},
        "operators/other/0.snap",
    ),
    "snapshot as a delta": (
        {"operators": (operator(state_file(1, origin=checkpoint(1)), state_file(2, full=False)),)},
        "operators/agg/0.snap",
    ),
    "files out of order": (
        {
            "operators": (
                operator(
                    state_file(2),
                    state_file(1, delta=True, origin=checkpoint(1)),
                ),
            )
        },
        "not in epoch order",
    ),
    "two files of one epoch": (
        {"operators": (operator(state_file(2), state_file(2, delta=True)),)},
        "not in epoch order",
    ),
    "a file from the future": (
        {"operators": (operator(state_file(3, origin=checkpoint(3))),)},
        "not earlier",
    ),
    "a file from before the first epoch": (
        {"operators": (operator(state_file(0, origin=checkpoint(9))),)},
        "not in epoch order",
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_manifest_is_refused_with_the_reason(rule: str) -> None:
    changes, reason = BROKEN[rule]
    with pytest.raises(InvalidManifest) as caught:
        manifest(2, **changes).validate()
    assert reason in caught.value.reason
    assert caught.value.checkpoint_id == checkpoint(2)


def test_the_unbroken_manifest_is_valid() -> None:
    assert problem_of(manifest(2)) == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"sinks": (), "operators": ()},
        {"sources": (), "sinks": ()},
        {"sources": (source(*TWO, watermarks=(1, None)),)},
        {"sources": (source(),)},
        {"sinks": (sink(joined_at=2), sink(SinkId("b"), files=()))},
        {"dead_letters": (dead_letters(SourceId("gone")),)},
        {"operators": (operator(),)},
    ],
    ids=lambda changes: str(list(changes)),
)
def test_what_is_unusual_and_right_is_accepted(changes: dict[str, Any]) -> None:
    assert problem_of(manifest(2, **changes)) == ""


# --- chains -------------------------------------------------------------------------------------


@pytest.mark.parametrize("older", [True, False], ids=["of an earlier epoch", "of this epoch"])
def test_a_delta_without_its_base_is_refused(older: bool) -> None:
    origin = checkpoint(1) if older else None
    files = state_file(1 if older else 3, delta=True, origin=origin)
    with pytest.raises(DeltaWithoutBase) as caught:
        manifest(3, operators=(operator(files),)).validate()
    assert (caught.value.operator_id, caught.value.partition_id) == ("agg", 0)


def test_a_base_of_another_partition_is_no_base() -> None:
    files = (state_file(1, origin=checkpoint(1)), state_file(3, delta=True, partition=1))
    with pytest.raises(DeltaWithoutBase) as caught:
        manifest(3, operators=(operator(*files),)).validate()
    assert caught.value.partition_id == 1


def test_a_full_file_above_another_is_refused() -> None:
    files = (state_file(1, origin=checkpoint(1)), state_file(3))
    with pytest.raises(IntegrityError):
        manifest(3, operators=(operator(*files),)).validate()


def test_a_chain_of_deltas_above_a_snapshot_is_valid() -> None:
    files = (
        state_file(1, origin=checkpoint(1)),
        state_file(2, delta=True, origin=checkpoint(2)),
        state_file(4, delta=True, origin=checkpoint(4)),
        state_file(5, delta=True),
    )
    assert problem_of(manifest(5, operators=(operator(*files),))) == ""


def test_chains_of_several_partitions_may_interleave() -> None:
    files = (
        state_file(1, origin=checkpoint(1)),
        state_file(2, partition=1, origin=checkpoint(2)),
        state_file(3, delta=True),
        state_file(3, delta=True, partition=1),
    )
    assert problem_of(manifest(3, operators=(operator(*files),))) == ""


def test_a_promoted_delta_stands_first_as_full() -> None:
    files = (
        state_file(2, delta=True, full=True, origin=checkpoint(2)),
        state_file(3, delta=True),
    )
    manifest(3, operators=(operator(*files),)).validate()
    with pytest.raises(InvalidManifest, match="a full file stands above others"):
        # Promoted twice: the second would hide the first.
        again = (files[0], state_file(3, delta=True, full=True))
        manifest(3, operators=(operator(*again),)).validate()
