"""Values that a target column cannot hold, and error messages that show their rows."""

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
        rows: A mask of the rows with bad values.
        reason: What is wrong with them, phrased to follow "has values that".
        path: The field names that lead to them in a nested column, outermost first.
    """

    def __init__(self, rows: Rows, reason: str, path: tuple[str, ...] = ()) -> None:
        """Describe the bad rows."""
        super().__init__(reason)
        self.rows = rows
        self.reason = reason
        self.path = path

    def within(self, owners: npt.NDArray[np.int64], count: int, step: str = "") -> BadValues:
        """The same error one level up: for the parent rows that hold these values.

        Args:
            owners: For each value, the parent row that holds it.
            count: The number of parent rows.
            step: The field name that leads from a parent row to its values.
        """
        rows = np.zeros(count, np.bool_)
        rows[owners[self.rows]] = True
        return BadValues(rows, self.reason, (step, *self.path) if step else self.path)


def refuse(rows: Rows, reason: str) -> None:
    """Refuse the rows of a mask, if any is set.

    Raises:
        BadValues: A row is set.
    """
    if rows.any():
        raise BadValues(rows, reason)


@contextmanager
def blamed_on(batch: pa.RecordBatch, column: str, key: tuple[str, ...] = ()) -> Iterator[None]:
    """Translate errors of encoding a column into ``Unwritable``, with a sample of the bad rows.

    Raises:
        Unwritable: A value does not fit.
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
    """The first bad rows as text: key and value, or the value alone."""
    names = dict.fromkeys((*key, column))
    count = min(_SAMPLE, blamed.num_rows)
    return "; ".join(show_row(blamed, place, names) for place in range(count))


def _shown(value: pa.Scalar) -> str:
    try:
        return repr(value.as_py())
    except (ValueError, OverflowError, pa.ArrowException):
        # Python has no date after the year 9999.
        return " ".join(str(pa.repeat(value, 1)).split())[1:-1].strip()
