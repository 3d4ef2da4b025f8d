"""How far an epoch is, of which every group of partitions has a transaction of its own."""

from __future__ import annotations

import threading

from laminar_dagster.core.ports import TransactionProgress


class GroupProgress:
    """Tells of all groups together as of one transaction: it is committing when the last one is."""

    def __init__(self, progress: TransactionProgress, groups: int) -> None:
        """Begin with groups of which none is committing."""
        self._progress = progress
        self._left = groups
        # Groups are committed side by side.
        self._lock = threading.Lock()

    def begun(self) -> None:
        """The first of them is open."""
        self._progress.begun()

    def wrote(self, rows: int) -> None:
        """So many more rows were handed over, in any of them."""
        with self._lock:
            self._progress.wrote(rows)

    def committing(self) -> None:
        """One more is about to be committed."""
        with self._lock:
            self._left -= 1
            if not self._left:
                self._progress.committing()
