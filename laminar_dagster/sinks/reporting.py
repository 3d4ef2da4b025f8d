"""Error translation around a sink's transaction, for any database driver."""

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
    """Translate the driver's errors. The transaction is rolled back by then.

    Args:
        sink_id: The sink.
        epoch: The epoch that the transaction publishes.
        kind: The base class of the driver's errors.
        named: Translates a driver's error, given that nothing was published.

    Raises:
        WriteFailed: The rows cannot be published as they are.
    """
    try:
        yield
    except kind as error:
        raise named(error) from error
    except (Unwritable, InvalidName) as problem:
        raise WriteFailed(sink_id, epoch, str(problem)) from problem
