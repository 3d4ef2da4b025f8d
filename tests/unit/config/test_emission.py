"""Whether a key of a view is put out once is told by the view alone."""

from __future__ import annotations

import pytest

from laminar_dagster.config.aggregate import Aggregate
from laminar_dagster.config.emission import keyed_by_window
from laminar_dagster.config.model import Place, View
from laminar_dagster.config.relations import (
    Projection,
    Select,
    TableInput,
    Window,
    WindowAggregate,
)
from laminar_dagster.core.ids import OperatorId

MINUTE = 60_000_000
WINDOWS = WindowAggregate(
    source=TableInput("clicks"),
    window=Window("at", MINUTE, MINUTE),
    keys=(Projection("_k0", "page"), Projection("_k1", "country")),
    aggregates=(Aggregate("_a0", "count", None),),
    columns=(
        Projection("page", "_k0"),
        Projection("land", "_k1"),
        Projection("short", "lower(_k1)"),
        Projection("minute", "window_start"),
        Projection("until", "window_end"),
        Projection("hour", "date_trunc('hour', window_start)"),
        Projection("n", "_a0"),
    ),
)


def view(query: WindowAggregate | Select) -> View:
    return View(OperatorId("v"), query, "", Place("v.sql", 1))


@pytest.mark.parametrize(
    ("key", "column", "is_end"),
    [
        (("page", "land", "minute"), "minute", False),
        (("until", "page", "land"), "until", True),
        (("page", "land", "minute", "n"), "minute", False),
    ],
)
def test_a_window_and_all_that_it_is_grouped_by(
    key: tuple[str, ...], column: str, is_end: bool
) -> None:
    found = keyed_by_window(view(WINDOWS), key)
    assert found is not None
    assert (found.column, found.is_end, found.size_micros) == (column, is_end, MINUTE)


@pytest.mark.parametrize(
    "key",
    [
        ("page", "minute"),
        ("page", "land"),
        ("page", "short", "minute"),
        ("page", "land", "hour"),
        (),
    ],
)
def test_less_than_that_may_be_put_out_twice(key: tuple[str, ...]) -> None:
    assert keyed_by_window(view(WINDOWS), key) is None


def test_records_may_be_put_out_twice() -> None:
    query = Select(TableInput("clicks"), (Projection("page", "page"),))
    assert keyed_by_window(view(query), ("page",)) is None
