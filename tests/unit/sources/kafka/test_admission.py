"""Fair shares of an epoch's limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.core.ports import Admission
from laminar_dagster.sources.kafka.admission import Waiting, admit


def waiting(*amounts: int, mean: float = 100.0) -> list[Waiting]:
    return [Waiting(("t", number), amount, mean) for number, amount in enumerate(amounts)]


def taken(lanes: list[Waiting], limits: Admission) -> list[int]:
    found = admit(lanes, limits)
    return [found[each.lane] for each in lanes]


@pytest.mark.parametrize(
    ("amounts", "limit", "expected"),
    [
        ((10, 10), 20, [10, 10]),
        ((10, 10), 10, [5, 5]),
        ((1, 100, 100), 21, [1, 10, 10]),
        ((100, 1, 100), 21, [10, 1, 10]),
        ((5, 5, 5), 1, [0, 0, 1]),
        ((5, 7, 6), 2, [0, 1, 1]),
        ((), 5, []),
    ],
)
def test_what_one_does_not_need_is_shared_by_the_others(
    amounts: tuple[int, ...], limit: int, expected: list[int]
) -> None:
    assert taken(waiting(*amounts), Admission(max_records=limit)) == expected


def test_bytes_are_shared_by_the_size_of_messages() -> None:
    lanes = [Waiting(("t", 0), 1000, 10.0), Waiting(("t", 1), 1000, 100.0)]
    assert taken(lanes, Admission(max_bytes=20_000)) == [1000, 100]


def test_a_message_larger_than_the_limit_is_still_read() -> None:
    assert taken(waiting(3, 8, mean=1e6), Admission(max_bytes=1)) == [0, 1]


@given(
    st.lists(st.integers(1, 10**9), min_size=1, max_size=20),
    st.integers(1, 10**9),
    st.none() | st.integers(1, 10**12),
)
def test_limits_hold_and_nobody_starves(amounts: list[int], records: int, size: int | None) -> None:
    lanes = waiting(*amounts)
    found = taken(lanes, Admission(max_records=records, max_bytes=size))
    assert 1 <= sum(found) <= records
    assert all(0 <= one <= all_ for one, all_ in zip(found, amounts, strict=True))
    if size is not None and sum(found) > 1:
        assert sum(found) * 100 <= size
    if size is None and records >= sum(amounts):
        assert found == amounts
    # Who gets less than another has less.
    for one, first in zip(found, amounts, strict=True):
        for two, _ in zip(found, amounts, strict=True):
            assert one >= two - len(amounts) or one == first
