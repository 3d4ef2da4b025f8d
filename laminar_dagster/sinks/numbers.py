"""Arrow values as numpy arrays, and a length check that databases share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.sinks.bad_values import refuse

Numbers = npt.NDArray[Any]
Int64s = npt.NDArray[np.int64]


def numbers(array: pa.Array) -> Numbers:
    """Values as a numpy array; a null is 0."""
    found: Numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
    return found


def flags(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Booleans as a numpy array; a null is False."""
    found: npt.NDArray[np.bool_] = array.fill_null(False).to_numpy(zero_copy_only=False)
    return found


def of_length(array: pa.Array, length: int, *, exactly: bool) -> pa.Array:
    """Texts of at most, or exactly, ``length`` characters.

    A server would silently drop excess trailing spaces, and pad a ``char`` that is too short.

    Raises:
        BadValues: A text has another length.
    """
    array = array.cast(pa.string())
    lengths = pc.utf8_length(array)
    bad = pc.not_equal(lengths, length) if exactly else pc.greater(lengths, length)
    wanted = f"{length} characters" if exactly else f"at most {length} characters"
    refuse(flags(bad), f"do not have {wanted}")
    return array
