"""What goes wrong in a transaction, under the names of this project, whichever the driver is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from laminar_dagster.core.errors import InvalidName, LaminarError, WriteFailed
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.sinks.changes import Unwritable

E = TypeVar("E", bound=Exception)


@contextmanager
def reported(
    sink_id: SinkId, epoch: EpochNumber, kind: type[E], named: Callable[[E], LaminarError]
) -> Iterator[None]:
    """Errors under their names. The transaction is rolled back by then.

    Args:
        sink_id: Whose transaction it is.
        epoch: What it publishes.
        kind: The errors of the driver.
        named: What such an error is called, if nothing was published.

    Raises:
        WriteFailed: The rows cannot be published as they are.
    """
    try:
        yield
    except kind as error:
        raise named(error) from error
    except (Unwritable, InvalidName) as problem:
        raise WriteFailed(sink_id, epoch, str(problem)) from problem
