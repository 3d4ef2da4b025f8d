"""Who has asked hears of every point, in the thread that is there; nobody else does."""

from __future__ import annotations

import threading

import pytest

from laminar_dagster.core.points import Point, reach, unwatch, watch


def test_all_who_have_asked_hear_of_it_in_their_order_until_they_do_not_care() -> None:
    heard: list[tuple[str, Point, str]] = []

    def first(point: Point, name: str) -> None:
        heard.append(("first", point, name))

    def second(point: Point, name: str) -> None:
        heard.append((threading.current_thread().name, point, name))

    reach(Point.STEP_BEGINS, "Plan")
    watch(first)
    watch(second)
    try:
        there = threading.Thread(target=reach, args=(Point.SINK_BEGINS, "a"), name="sink")
        there.start()
        there.join()
        unwatch(first)
        reach(Point.STEP_ENDS, "Plan")
    finally:
        unwatch(first)
        unwatch(second)
    reach(Point.STEP_ENDS, "Gate")
    assert heard == [
        ("first", Point.SINK_BEGINS, "a"),
        ("sink", Point.SINK_BEGINS, "a"),
        (threading.current_thread().name, Point.STEP_ENDS, "Plan"),
    ]


def test_what_a_watcher_raises_comes_out_where_the_point_is() -> None:
    def fail(_point: Point, name: str) -> None:
        raise ValueError(name)

    watch(fail)
    try:
        with pytest.raises(ValueError, match="Plan"):
            reach(Point.STEP_BEGINS, "Plan")
    finally:
        unwatch(fail)
