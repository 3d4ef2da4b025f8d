"""Upkeep in a plan: what it may say, how it is written, and what an epoch of it leaves."""

from __future__ import annotations

from typing import Any

import pytest

from laminar_dagster.core.document import decode, decode_part, encode
from laminar_dagster.core.errors import InvalidName, MalformedDocument
from laminar_dagster.core.gate import refusal
from laminar_dagster.core.ids import BranchName
from laminar_dagster.core.manifest import RecordCounts, SourceReading
from laminar_dagster.core.offsets import Gap, SourceRange
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.upkeep import Promotion, Rescale, Upkeep, describe_upkeep
from laminar_dagster.core.upkeep_output import output_of_upkeep
from tests.unit.core.samples import (
    AGG,
    checkpoint,
    kafka,
    manifest,
    operator,
    plan,
    sha,
    source,
    source_plan,
    state_file,
)

STILL = source_plan(SourceRange(start=kafka(9), end=kafka(9)))
RESCALE = Rescale(buckets_before=8, buckets_after=6)
PROMOTION = Promotion(
    branch=BranchName("trial"), checkpoint_id=checkpoint(4), manifest_checksum=sha("m")
)


@pytest.mark.parametrize(
    ("upkeep", "text", "words"),
    [
        (
            RESCALE,
            b'"upkeep":{"type":"rescale","buckets_before":8,"buckets_after":6}',
            "rescale from 8 to 6 buckets",
        ),
        (
            PROMOTION,
            b'"upkeep":{"type":"promotion","branch":"trial","checkpoint_id":"',
            f"promotion of branch trial, checkpoint {checkpoint(4)}",
        ),
    ],
)
def test_upkeep_survives_the_round_trip(upkeep: Upkeep, text: bytes, words: str) -> None:
    document = plan(3, sources=(STILL,), upkeep=upkeep)
    data = encode(document)
    assert text in data
    assert decode(data, EpochPlan, "plan") == document
    assert describe_upkeep(upkeep) == words


def test_an_ordinary_plan_does_not_mention_it() -> None:
    assert b"upkeep" not in encode(plan(3))


@pytest.mark.parametrize(
    ("number", "changes", "reason"),
    [
        (1, {"sources": (STILL,)}, "needs a checkpoint"),
        (
            2,
            {"sources": (source_plan(SourceRange(start=kafka(0), end=kafka(1))),)},
            "reads nothing",
        ),
        (
            2,
            {
                "sources": (
                    source_plan(
                        SourceRange(start=kafka(9), end=kafka(9)),
                        gaps=(Gap(lost=SourceRange(start=kafka(0), end=kafka(9)), reason="gone"),),
                    ),
                )
            },
            "accepts no loss",
        ),
    ],
)
def test_upkeep_that_contradicts_its_plan_is_refused(
    number: int, changes: dict[str, Any], reason: str
) -> None:
    plan(number, **changes)
    with pytest.raises(ValueError, match=reason):
        plan(number, **changes, upkeep=RESCALE)


@pytest.mark.parametrize(
    "text",
    [
        b'{"type":"rescale","buckets_before":0,"buckets_after":6}',
        b'{"type":"rescale","buckets_before":8}',
        b'{"type":"compaction"}',
        b'{"type":"promotion","branch":"../up","checkpoint_id":"x","manifest_checksum":"y"}',
    ],
)
def test_a_stored_upkeep_is_believed_only_if_it_is_one(text: bytes) -> None:
    with pytest.raises(MalformedDocument):
        decode_part(text, Upkeep, "upkeep")  # type: ignore[arg-type]


def test_a_branch_has_a_name_that_stays_in_its_folder() -> None:
    with pytest.raises(InvalidName, match="branch name"):
        BranchName("a/b")


def test_what_an_epoch_of_upkeep_leaves() -> None:
    stood = source(
        kafka(9),
        watermarks=(5,),
        watermark=5,
        schema_ids=(7,),
        reading=SourceReading(records=3),
        gaps=(Gap(lost=SourceRange(start=kafka(0), end=kafka(2)), reason="gone"),),
    )
    parent = manifest(2, sources=(stood,), watermark=5)
    document = plan(3, sources=(STILL,), upkeep=RESCALE)
    now = (operator(state_file(3), operator_id=AGG),)
    output = output_of_upkeep(document, parent, now)
    (entry,) = output.sources
    assert (entry.positions, entry.watermarks, entry.watermark, entry.gaps) == (
        stood.positions,
        (5,),
        5,
        stood.gaps,
    )
    assert (entry.schema_ids, entry.reading) == ((), None)
    assert (output.operators, output.watermark, output.counts) == (now, 5, RecordCounts())
    assert [(each.sink_id, each.files, each.output_sha256) for each in output.sinks] == [
        (each.sink_id, (), sha("")) for each in document.sinks
    ]
    assert refusal(document, parent, output) is None
