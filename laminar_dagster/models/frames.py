"""The frames in which a function takes and gives its rows: Arrow's, or pandas' data frames.

An author chooses by annotation. In a data frame every column stays what it was in Arrow
(``pandas.ArrowDtype``), so nulls, decimals, moments in UTC, lists, structs and maps come and go as
they are, and nothing is copied on the way in.
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
    """In which frames a function takes and gives rows, by its annotations; Arrow's without.

    Raises:
        ValueError: It takes others, or gives others than it takes.
    """
    taken, given = map(_frame, _annotations(function))
    if taken == "pandas" and given not in (None, taken):
        raise ValueError("the function takes a pandas.DataFrame, and has to give one")
    if given == "pandas" and taken != given:
        raise ValueError("the function gives a pandas.DataFrame, and has to take one")
    return taken or "arrow"


def _annotations(function: Callable[..., Any]) -> tuple[Any, Any]:
    """What a function says of its first argument, and of what it gives."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception:
        # Of a name that is there for a checker of types alone, the text is left.
        signature = inspect.signature(function)
    taken = next(iter(signature.parameters.values()), None)
    return taken.annotation if taken else None, signature.return_annotation


def _frame(annotation: Any) -> Frame | None:
    """The frame that an annotation names; None for one that is no frame.

    Raises:
        ValueError: It is a frame that there is no way to.
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
    """Rows in the frame that a function takes."""
    if frame == "arrow":
        return rows
    import pandas as pd

    return rows.to_pandas(types_mapper=pd.ArrowDtype)


def columns_of(frame: Frame, found: Any) -> Columns:
    """What a function gave, as columns of Arrow.

    The index of a data frame is no column. numpy has no null: NaN in a column of its floats is
    one, as pandas means it.

    Raises:
        ValueError: It gave another frame, or columns that Arrow has no type for.
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
