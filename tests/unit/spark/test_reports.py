"""What tasks report is sorted out, and checked against each other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from laminar_dagster.core.errors import ComputeFailed, ObjectMissing
from laminar_dagster.core.ids import CheckpointId, OperatorId, SinkId
from laminar_dagster.core.manifest import SourceReading
from laminar_dagster.core.ports import Violation
from laminar_dagster.spark.reports import sort_out

OWN = CheckpointId.from_parts(1, 1)


def split(part: int = 0, **changes: Any) -> str:
    report = {
        "source": "s",
        "part": part,
        "attempt": OWN,
        "read": 10,
        "bytes": 100,
        "passed": 7,
        "late": 2,
        "dead": 1,
        "ahead": 1,
        "watermark": 5,
        "files": [],
        "added": 0,
        "skipped": 0,
        "schema_ids": [],
        "chunks": 1,
        "fetch_micros": 10,
        "decode_micros": 20,
        "pauses": 0,
        "errors": 0,
        "chunk_times": [0, 1],
    }
    return json.dumps({**report, **changes})


def tally(processed: int, filtered: int, sequence: int = 0) -> str:
    return json.dumps(
        {
            "operator": "v",
            "part": 0,
            "sequence": sequence,
            "processed": processed,
            "filtered": filtered,
        }
    )


FED = {OperatorId("v"): ("s",)}


def test_what_adds_up_is_not_complained_of() -> None:
    reports = sort_out([split(), tally(5, 2)], OWN)
    assert reports.miscounts(FED, {"s": 1}) == ()
    counts = reports.counts(FED)
    assert counts.is_balanced
    assert (counts.read, counts.processed, counts.filtered) == (10, 5, 2)


def test_updates_add_rows_and_tombstones_hold_none() -> None:
    reports = sort_out([split(added=4, skipped=1, passed=10), tally(8, 2)], OWN)
    assert reports.miscounts(FED, {"s": 1}) == ()
    counts = reports.counts(FED)
    assert counts.is_balanced
    assert (counts.added, counts.skipped) == (4, 1)


def test_what_reading_took_is_added_up() -> None:
    reports = sort_out(
        [
            split(),
            split(1, fetch_micros=5, pauses=2, errors=3, chunk_times=[0, 0, 4]),
            tally(14, 0),
        ],
        OWN,
    )
    assert reports.reading("s") == SourceReading(
        records=20,
        size_bytes=200,
        chunks=2,
        fetch_micros=15,
        decode_micros=40,
        pauses=2,
        errors=3,
        chunk_times=(0, 1, 4),
        ahead=2,
    )


def test_a_source_that_is_read_twice_is_counted_twice_by_its_reader_alone() -> None:
    reports = sort_out([split(), tally(9, 5)], OWN)
    assert reports.miscounts(FED, {"s": 1})
    twice = {OperatorId("v"): ("s", "s")}
    assert reports.miscounts(twice, {"s": 1}) == ()
    assert reports.counts(twice).is_balanced
    assert reports.counts(twice).filtered == 0


def test_a_report_that_came_two_ways_counts_once() -> None:
    reports = sort_out([split(), split(), tally(3, 1), tally(3, 1), tally(2, 1, sequence=1)], OWN)
    assert reports.miscounts(FED, {"s": 1}) == ()


@pytest.mark.parametrize(
    "texts",
    [
        [split(), tally(5, 1)],
        [split(), tally(5, 3)],
        [split()],
        [split(passed=8), tally(6, 2)],
        [split(skipped=1), tally(5, 2)],
        [split(added=1), tally(5, 2)],
        [tally(0, 0)],
    ],
)
def test_what_got_lost_or_doubled_is_found(texts: list[str]) -> None:
    assert sort_out(texts, OWN).miscounts(FED, {"s": 1})


def test_an_error_of_a_task_is_raised_under_its_name() -> None:
    with pytest.raises(ObjectMissing) as caught:
        sort_out([json.dumps(ObjectMissing("some/key").to_record()), split()], OWN)
    assert caught.value.key == "some/key"


def test_files_of_a_sink_are_in_the_order_of_their_names() -> None:
    def staged(name: str) -> str:
        report = {
            "staged": "v",
            "files": [["out", f"staged/out/{name}"]],
            "size_bytes": 1,
            "sha256": "0" * 64,
            "rows": 1,
            "schema": "x",
            "broken": [f"{name} is odd"] if name == "b" else [],
        }
        return json.dumps(report)

    reports = sort_out([staged("b"), staged("a")], OWN)
    assert [file.path[-1] for file in reports.staged[SinkId("out")]] == ["a", "b"]
    assert reports.broken == (Violation("contract", "v", "b is odd"),)


def test_what_was_read_for_another_attempt_is_refused() -> None:
    stranger = CheckpointId.from_parts(2, 2)
    with pytest.raises(ComputeFailed, match=f"split 0 was read for the attempt {stranger}"):
        sort_out([split(attempt=stranger), tally(5, 2)], OWN)
