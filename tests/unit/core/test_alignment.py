"""Partitions that keep step in event time."""

from __future__ import annotations

from msgspec import structs

from laminar_dagster.core.alignment import aligned
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.offsets import KafkaIdentity, SourceRange
from laminar_dagster.core.plan import SourcePlan
from tests.unit.core.samples import kafka, manifest

SECOND = 1_000_000


def planned(source: str, *ends: int) -> SourcePlan:
    """Ranges from offset 10 on; an end of 10 has nothing to read."""
    return SourcePlan(
        source_id=SourceId(source),
        identity=KafkaIdentity(cluster_id="c", topic_ids={source: "id"}),
        ranges=tuple(
            SourceRange(
                start=kafka(10, partition=number, topic=source),
                end=kafka(end, partition=number, topic=source),
            )
            for number, end in enumerate(ends)
        ),
    )


def parent(**marks: list[int | None]) -> CheckpointManifest:
    base = manifest()
    entry = base.sources[0]
    sources = tuple(
        structs.replace(
            entry,
            source_id=SourceId(name),
            path=f"sources/{name}.offsets",
            positions=tuple(
                kafka(10, partition=number, topic=name) for number in range(len(found))
            ),
            watermarks=tuple(None if mark is None else mark * SECOND for mark in found),
        )
        for name, found in marks.items()
    )
    return structs.replace(base, sources=sources)


def amounts(plans: tuple[SourcePlan, ...]) -> list[list[int]]:
    return [
        [part.end.offset - 10 for part in plan.ranges]  # type: ignore[union-attr]
        for plan in plans
    ]


def test_without_a_limit_nothing_is_held_back() -> None:
    plans = (planned("a", 20, 20), planned("b", 20))
    assert aligned(plans, parent(a=[0, 10_000], b=[99]), None) == plans


def test_what_is_too_far_ahead_waits_for_the_slowest() -> None:
    plans = (planned("a", 20, 20), planned("b", 20))
    found = aligned(plans, parent(a=[0, 100], b=[61]), 60 * SECOND)
    assert amounts(found) == [[10, 0], [0]]
    assert amounts(aligned(plans, parent(a=[0, 60], b=[60]), 60 * SECOND)) == [[10, 10], [10]]


def test_one_that_has_nothing_to_read_is_not_waited_for() -> None:
    plans = (planned("a", 10), planned("b", 20))
    assert amounts(aligned(plans, parent(a=[0], b=[1000]), SECOND)) == [[0], [10]]


def test_a_partition_without_events_holds_nobody_back_and_goes_on() -> None:
    plans = (planned("a", 20, 20), planned("b", 20))
    found = aligned(plans, parent(a=[None, 1000], b=[0]), SECOND)
    assert amounts(found) == [[10, 0], [10]]
    assert amounts(aligned(plans, parent(a=[None, 1000], b=[None]), SECOND)) == [[10, 10], [10]]


def test_a_source_without_event_time_takes_no_part() -> None:
    plans = (planned("a", 20), planned("b", 20))
    assert amounts(aligned(plans, parent(a=[], b=[1000]), SECOND)) == [[10], [10]]


def test_the_first_epoch_knows_no_drift() -> None:
    plans = (planned("a", 20),)
    assert aligned(plans, None, SECOND) == plans


def test_everything_comes_up_in_the_end() -> None:
    """Held back, never lost: ranges begin where they stood."""
    (found,) = aligned((planned("a", 20, 20),), parent(a=[0, 100]), SECOND)
    for part in found.ranges:
        assert part.start.offset == 10  # type: ignore[union-attr]
