from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.core.errors import AuthFailed, SourceUnavailable
from laminar_dagster.sources.kafka.messages import MessageBatch, PartitionRange
from laminar_dagster.sources.kafka.ranges import ChunkCutter, ChunkLimits, Polling, fetch_range
from tests.unit.sources.kafka.scripted import ScriptedFetcher, Step, batch_of

TEN = PartitionRange("clicks", 3, 0, 10)


def offsets_read(steps: list[Step], wanted: PartitionRange = TEN) -> list[int]:
    fetcher = ScriptedFetcher(steps)
    chunks = list(fetch_range(fetcher, wanted, "source", polling=Polling(stall_seconds=1.0)))
    assert fetcher.calls[-1] == "close"
    return [offset for chunk in chunks for offset in chunk.offsets.tolist()]


def cut(sizes: list[int | None], cuts: set[int], limits: ChunkLimits) -> list[list[int]]:
    """The offsets of the chunks when the messages arrive cut in other places."""
    cutter = ChunkCutter(limits)
    edges = sorted({0, len(sizes), *(each for each in cuts if each < len(sizes))})
    chunks: list[MessageBatch] = []
    for low, high in pairwise(edges):
        values = [None if size is None else b"x" * size for size in sizes[low:high]]
        chunks += cutter.add(batch_of(range(low, high), values))
    chunks += cutter.rest()
    for chunk in chunks:
        got = [None if value is None else len(value) for value in chunk.values.to_pylist()]
        assert got == [sizes[offset] for offset in chunk.offsets.tolist()]
    return [chunk.offsets.tolist() for chunk in chunks]


@given(
    st.lists(st.none() | st.integers(0, 12), max_size=60),
    st.sets(st.integers(1, 60)),
    st.integers(1, 10),
    st.integers(1, 20),
)
def test_chunks_do_not_depend_on_how_messages_arrive(
    sizes: list[int | None], cuts: set[int], records: int, size_bytes: int
) -> None:
    limits = ChunkLimits(records, size_bytes)
    at_once = cut(sizes, set(), limits)
    assert cut(sizes, cuts, limits) == at_once
    assert [offset for chunk in at_once for offset in chunk] == list(range(len(sizes)))
    for chunk in at_once:
        assert 0 < len(chunk) <= records
        total = sum(sizes[offset] or 0 for offset in chunk)
        # Only what follows the large message and takes no room may be with it.
        assert total <= size_bytes or chunk[0] == chunk[-1]


def test_a_chunk_is_as_full_as_can_be() -> None:
    assert cut([4, 4, 4, 4, 4], set(), ChunkLimits(9, 10)) == [[0, 1], [2, 3], [4]]
    assert cut([1] * 5, set(), ChunkLimits(2, 10)) == [[0, 1], [2, 3], [4]]
    assert cut([1, 50, None, 1], set(), ChunkLimits(9, 10)) == [[0], [1], [2, 3]]


def test_seconds_are_those_of_the_messages() -> None:
    cutter = ChunkCutter(ChunkLimits(3))
    slow = MessageBatch(batch_of([0]).offsets, batch_of([0]).values, fetch_seconds=2.0)
    assert list(cutter.add(slow)) == []
    (chunk,) = cutter.add(batch_of([1, 2]))
    assert chunk.fetch_seconds == 2.0


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([batch_of(range(10))], range(10)),
        ([batch_of(range(4)), batch_of(range(4, 10))], range(10)),
        # A message beyond the range ends it, and is none of it.
        ([batch_of([0, 4]), batch_of([12])], [0, 4]),
        ([batch_of([0, 4, 12, 15])], [0, 4]),
        # So does the end of the partition.
        ([batch_of([0, 4]), 10], [0, 4]),
        ([batch_of([0, 4]), 17], [0, 4]),
        ([10], []),
        # An end before it does not.
        ([batch_of([0, 4]), 7, batch_of([9])], [0, 4, 9]),
        ([0.5, batch_of([0]), 0.9, 0.05, batch_of([9])], [0, 9]),
    ],
)
def test_a_range_ends_by_position(steps: list[Step], expected: range | list[int]) -> None:
    assert offsets_read(steps) == list(expected)


def test_no_more_is_asked_for_than_is_left_and_fits() -> None:
    fetcher = ScriptedFetcher([batch_of([0, 1, 2]), batch_of([3, 4, 5]), batch_of([8, 9])])
    list(fetch_range(fetcher, TEN, "source", ChunkLimits(4)))
    assert fetcher.asked == [4, 1, 2]


def test_an_empty_range_needs_no_broker() -> None:
    fetcher = ScriptedFetcher([])
    assert list(fetch_range(fetcher, PartitionRange("clicks", 0, 5, 5), "source")) == []
    assert fetcher.calls == []


def test_silence_ends_in_an_error_that_says_where() -> None:
    fetcher = ScriptedFetcher([batch_of([0, 1])], complaint="connection refused")
    with pytest.raises(SourceUnavailable) as caught:
        list(fetch_range(fetcher, TEN, "source", polling=Polling(stall_seconds=1.0)))
    assert str(caught.value) == (
        "source source is away: clicks[3]: nothing came for 1 s at offset 2, before 10; "
        "the last complaint: connection refused"
    )
    assert not fetcher.is_open


@pytest.mark.parametrize(
    "steps",
    [
        [batch_of([0, 1, 2]), batch_of([2, 3])],
        [batch_of([0, 2, 1])],
        [batch_of([0, 1, 1])],
    ],
)
def test_messages_out_of_order_are_refused(steps: list[Step]) -> None:
    with pytest.raises(SourceUnavailable, match="out of order"):
        offsets_read(steps)


def test_errors_pass_through_and_close_the_fetcher() -> None:
    fetcher = ScriptedFetcher([batch_of([0]), AuthFailed("kafka", "no")])
    with pytest.raises(AuthFailed):
        list(fetch_range(fetcher, TEN, "source"))
    assert not fetcher.is_open


def test_it_stops_when_it_is_told() -> None:
    fetcher = ScriptedFetcher([batch_of([0]), batch_of([1])])
    answers = iter([False, True])
    assert list(fetch_range(fetcher, TEN, "source", stopped=lambda: next(answers))) == []
    assert not fetcher.is_open
