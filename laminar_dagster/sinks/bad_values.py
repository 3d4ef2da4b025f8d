"""Values that their target cannot hold, and how a person is told which rows have them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from laminar_dagster.sinks.changes import Unwritable

Rows = npt.NDArray[np.bool_]

_SAMPLE: Final = 3
_SHOWN: Final = 200


class BadValues(Exception):
    """Values that the column cannot hold.

    Attributes:
        rows: True for each row to blame.
        reason: What is wrong with them, after "has values that".
        path: Where in a nested column they are, from its outermost field on.
    """

    def __init__(self, rows: Rows, reason: str, path: tuple[str, ...] = ()) -> None:
        """Blame rows."""
        super().__init__(reason)
        self.rows = rows
        self.reason = reason
        self.path = path

    def within(self, owners: npt.NDArray[np.int64], count: int, step: str = "") -> BadValues:
        """The same blame for the rows that hold these values.

        Args:
            owners: For each value, the row that holds it.
            count: How many such rows there are.
            step: The name of what was entered to come from the row to the value.
        """
        rows = np.zeros(count, np.bool_)
        rows[owners[self.rows]] = True
        return BadValues(rows, self.reason, (step, *self.path) if step else self.path)


def refuse(rows: Rows, reason: str) -> None:
    """Refuse the values of the rows that are True, if there is any.

    Raises:
        BadValues: There is.
    """
    if rows.any():
        raise BadValues(rows, reason)


@contextmanager
def blamed_on(batch: pa.RecordBatch, column: str, key: tuple[str, ...] = ()) -> Iterator[None]:
    """What cannot be encoded, told with the rows to blame.

    Raises:
        Unwritable: A value does not fit; with a sample of the rows.
    """
    try:
        yield
    except BadValues as bad:
        places = np.flatnonzero(bad.rows)
        shown = batch.take(pa.array(places[:_SAMPLE]))
        raise Unwritable(
            f"column `{'.'.join((column, *bad.path))}` has {len(places)} values that {bad.reason},"
            f" such as {sample(shown, column, key)}; the first is in row {places[0]} of"
            f" {batch.num_rows}"
        ) from bad
    except (pa.ArrowException, ValueError) as error:
        raise Unwritable(f"a value of column `{column}` does not fit: {error}") from error


def show_row(rows: pa.Table | pa.RecordBatch, place: int, names: Iterable[str]) -> str:
    """One row for an error, cut if it is long."""
    columns = [*names]
    return show_values(columns, (_shown(rows.column(name)[place]) for name in columns))


def show_values(names: Iterable[str], values: Iterable[str]) -> str:
    """Values with the names of their columns, cut if they are long."""
    text = ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def sample(blamed: pa.RecordBatch, column: str, key: tuple[str, ...]) -> str:
    """The first rows to blame: key and value, or the value alone."""
    names = dict.fromkeys((*key, column))
    count = min(_SAMPLE, blamed.num_rows)
    return "; ".join(show_row(blamed, place, names) for place in range(count))


def _shown(value: pa.Scalar) -> str:
    try:
        return repr(value.as_py())
    except (ValueError, OverflowError, pa.ArrowException):
        # Python has no date after the year 9999.
        return " ".join(str(pa.repeat(value, 1)).split())[1:-1].strip()
