"""Progress of an epoch that is written in several transactions, one per group of partitions."""

from __future__ import annotations

import threading

from laminar_dagster.core.ports import TransactionProgress


class GroupProgress:
    """Reports all groups as one transaction, which is committing once the last group is."""

    def __init__(self, progress: TransactionProgress, groups: int) -> None:
        """Begin with ``groups`` groups, none of which is committing."""
        self._progress = progress
        self._left = groups
        # Groups are committed concurrently.
        self._lock = threading.Lock()

    def begun(self) -> None:
        """Report that the first group's transaction is open."""
        self._progress.begun()

    def wrote(self, rows: int) -> None:
        """Report more rows handed over, of any group."""
        with self._lock:
            self._progress.wrote(rows)

    def committing(self) -> None:
        """Count one more group that is about to commit; report it if it is the last one."""
        with self._lock:
            self._left -= 1
            if not self._left:
                self._progress.committing()
