"""Whether a view ever puts out a key twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from laminar_dagster.config.model import View, WindowAggregate
from laminar_dagster.core.ids import OperatorId

_BOUNDS: Final = ("window_start", "window_end")


@dataclass(frozen=True, slots=True)
class KeyedByWindow:
    """A key that holds the window of a row, and everything that the row is grouped by.

    Attributes:
        column: The column of the key that holds the window's start, or its end.
    """

    operator_id: OperatorId
    column: str
    is_end: bool
    size_micros: int


def keyed_by_window(view: View, key: Iterable[str]) -> KeyedByWindow | None:
    """Why no key of a view is put out twice: a window closes once. None where that may happen.

    Args:
        view: Which view.
        key: Columns of its output.
    """
    query = view.query
    if not isinstance(query, WindowAggregate):
        return None
    held = {each.sql: each.name for each in query.columns if each.name in set(key)}
    bound = next((each for each in _BOUNDS if each in held), None)
    if bound is None or not all(each.name in held for each in query.keys):
        return None
    return KeyedByWindow(
        operator_id=OperatorId(view.name),
        column=held[bound],
        is_end=bound == "window_end",
        size_micros=query.window.size_micros,
    )
