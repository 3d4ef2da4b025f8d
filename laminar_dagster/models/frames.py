"""The table types that a model's function takes and returns: Arrow tables or pandas data frames.

An author chooses by annotation. In a data frame every column keeps its Arrow type
(``pandas.ArrowDtype``), so nulls, decimals, UTC timestamps, lists, structs and maps pass through
unchanged, and nothing is copied on the way in.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, Literal

import pyarrow as pa

from laminar_dagster.models.columns import Columns

Frame = Literal["arrow", "pandas"]

_KNOWN: Final[dict[tuple[str, str], Frame]] = {
    ("pyarrow", "Table"): "arrow",
    ("pandas", "DataFrame"): "pandas",
}
_CHOICES: Final = "a model takes and gives pyarrow.Table, or pandas.DataFrame"


def frame_of(function: Callable[..., Any]) -> Frame:
    """The table type that a function takes and returns, by its annotations; Arrow without any.

    Raises:
        ValueError: It takes another type, or returns another than it takes.
    """
    taken, given = map(_frame, _annotations(function))
    if taken == "pandas" and given not in (None, taken):
        raise ValueError("the function takes a pandas.DataFrame, and has to give one")
    if given == "pandas" and taken != given:
        raise ValueError("the function gives a pandas.DataFrame, and has to take one")
    return taken or "arrow"


def _annotations(function: Callable[..., Any]) -> tuple[Any, Any]:
    """The annotations of a function's first argument and of its return value."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception:
        # A name imported for type checkers only cannot be evaluated: take the annotation's text.
        signature = inspect.signature(function)
    taken = next(iter(signature.parameters.values()), None)
    return taken.annotation if taken else None, signature.return_annotation


def _frame(annotation: Any) -> Frame | None:
    """The table type that an annotation names; None if it names none.

    Raises:
        ValueError: It names a data frame that is not supported.
    """
    if isinstance(annotation, str) and annotation.endswith("Frame"):
        raise ValueError(f"`{annotation[:80]}` is not there when the file runs: import it")
    if not isinstance(annotation, type):
        return None
    package = annotation.__module__.partition(".")[0]
    found = _KNOWN.get((package, annotation.__name__))
    if found is None and annotation.__name__ in ("DataFrame", "LazyFrame"):
        raise ValueError(f"there are no frames of {package} here: {_CHOICES}")
    return found


def given_as(frame: Frame, rows: pa.Table) -> Any:
    """Convert rows to the table type that a function takes."""
    if frame == "arrow":
        return rows
    import pandas as pd

    return rows.to_pandas(types_mapper=pd.ArrowDtype)


def columns_of(frame: Frame, found: Any) -> Columns:
    """Convert a function's return value to Arrow columns.

    The index of a data frame is not a column. numpy has no null: NaN in a numpy float column
    becomes null, as in pandas.

    Raises:
        ValueError: It is not of that table type, or has columns that Arrow has no type for.
    """
    if frame == "arrow":
        columns: Columns = found
        return columns
    import pandas as pd

    if not isinstance(found, pd.DataFrame):
        raise ValueError(f"it gave a {type(found).__name__} in place of a DataFrame")
    if not found.columns.is_unique or not all(isinstance(name, str) for name in found.columns):
        raise ValueError("the columns of its DataFrame have no names, or two have the same")
    return {name: _array(str(name), found[name]) for name in found.columns}


def _array(name: str, series: Any) -> pa.Array | pa.ChunkedArray:
    try:
        return pa.array(series, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"`{name}` is {series.dtype}, which Arrow cannot take: {error}") from None
