"""Named points of an epoch, at which a proof strikes: it kills the process, or has it wait.

The package says at each of them that it is there. Nobody listens in a process that has not asked to
by ``watch``: no variable of an environment, no option and no file can, and to say so costs a loop
over nothing. ``laminar_dagster.testing.crash`` has what strikes.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class Point(Enum):
    """A place in the package. Each says what its ``name`` is.

    ``SINK_SENDS_COMMIT`` is where a sink calls ``TransactionProgress.committing``: everything is
    written, and the next that it sends publishes the epoch.
    """

    STEP_BEGINS = "a step of the protocol begins; its class in core.protocol"
    STEP_ENDS = "a step of the protocol has ended; its class in core.protocol"
    ATTEMPT_BEGUN = "an attempt has its record, and nothing was read; its checkpoint"
    SINK_BEGINS = "a sink is about to be asked to commit; the sink"
    SINK_SENDS_COMMIT = "a sink is about to publish what it wrote; the sink"
    SINK_COMMITTED = "a sink has confirmed its commit; the sink"
    SNAPSHOT_FILE_KEPT = "a file of a snapshot of a table is in the store; the file"


# Called in whatever thread is at the point.
Watcher = Callable[[Point, str], None]

_watchers: tuple[Watcher, ...] = ()


def reach(point: Point, name: str) -> None:
    """Say that this thread is at a point."""
    for watcher in _watchers:
        watcher(point, name)


def watch(watcher: Watcher) -> None:
    """Have a function called at every point that this process reaches from now on."""
    global _watchers
    _watchers = (*_watchers, watcher)


def unwatch(watcher: Watcher) -> None:
    """Have it called no more."""
    global _watchers
    _watchers = tuple(each for each in _watchers if each is not watcher)
