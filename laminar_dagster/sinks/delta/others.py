"""Detect rows that other writers removed from a Delta table since the sink's newest commit.

RESTORE, an overwrite and DELETE leave the application transactions as they are: the ledger would
claim epochs whose rows are gone. So each commit first reads the log entries newer than the sink's
own newest one; usually there are none.

Each entry names the files that it adds and removes, and whether that changed rows. OPTIMIZE says
that it did not, and VACUUM removes nothing that the log still names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from laminar_dagster.sinks.changes import Unwritable

# The prefix of the application ids of all sinks of this package; see ``DeltaSink``.
APPLICATIONS: Final = "laminar:"
# Before the first version of any table.
NO_VERSION: Final = -1
_ANY: Final = math.inf
# A data file's path and its deletion vector: deleting rows adds the same path with another vector.
_File = tuple[str, str]


@dataclass(frozen=True, slots=True)
class LogEntry:
    """What one version of a table did.

    Attributes:
        operation: The operation's name, as its writer gave it.
        restored: The version that a RESTORE went back to, if the entry says so.
        applications: The application ids of its transactions.
        added: The files that it added.
        removed: The files that it removed.
        changes_rows: Whether it changed rows, not only moved them between files.
    """

    version: int
    operation: str
    restored: int | None
    applications: frozenset[str]
    added: frozenset[_File]
    removed: frozenset[_File]
    changes_rows: bool

    @property
    def is_of_a_sink(self) -> bool:
        """Whether a sink of this package wrote the entry."""
        return any(each.startswith(APPLICATIONS) for each in self.applications)


def parse_entry(version: int, text: str) -> LogEntry:
    """Parse a log entry, which has one JSON action per line."""
    about: dict[str, Any] = {}
    applications: set[str] = set()
    added: set[_File] = set()
    removed: set[_File] = set()
    changes_rows = False
    # Not `splitlines`: a JSON value may contain other line separators, such as U+2028.
    for line in filter(None, text.split("\n")):
        for kind, action in json.loads(line).items():
            if kind == "commitInfo":
                about = action
            elif kind == "txn":
                applications.add(action["appId"])
            elif kind in ("add", "remove"):
                deleted = json.dumps(action.get("deletionVector"), sort_keys=True)
                (added if kind == "add" else removed).add((unquote(action["path"]), deleted))
                changes_rows = changes_rows or action.get("dataChange", True)
    operation = str(about.get("operation", "a commit without a name"))
    restored = _restored(about) if operation == "RESTORE" else None
    return LogEntry(
        version,
        operation,
        restored,
        frozenset(applications),
        frozenset(added),
        frozenset(removed),
        changes_rows,
    )


def check_others(
    application: str, version: int, accepted: float, read: Callable[[int], str | None]
) -> None:
    """Refuse a table from which other writers removed rows since the sink's newest commit.

    Args:
        application: The sink's application id; it has committed to the table before.
        version: The table's newest version.
        accepted: Changes up to this version are intended, and not checked.
        read: Reads a log entry; None if the log does not have it any more.

    Raises:
        Unwritable: Says which version removed rows, and what can be done.
    """
    entries: list[LogEntry] = []
    own = version
    while own > accepted:
        text = read(own)
        if text is None:
            raise Unwritable(
                f"the log of the Delta table has its version {own} no more, and what others did to"
                " the table since the newest epoch cannot be told; look at its rows, and if they"
                f" are right, set accept_changes_until = '{version}'"
            )
        entry = parse_entry(own, text)
        if application in entry.applications:
            break
        entries.append(entry)
        own -= 1
    if culprit := _culprit(entries[::-1], own):
        raise Unwritable(
            f"version {culprit.version} of the Delta table ({culprit.operation}, by another writer)"
            " takes rows out of it or changes them, after its version"
            f" {own}; a ledger must not go on over rows that are gone: RESTORE the table to version"
            f" {own}, or, if it was meant, set accept_changes_until = '{version}'"
        )


def accepted_version(text: str) -> float | None:
    """Parse the option ``accept_changes_until``; None if the text is not valid."""
    match text:
        case "none":
            return NO_VERSION
        case "any":
            return _ANY
        case _ if text.isascii() and text.isdecimal():
            return int(text)
        case _:
            return None


def _culprit(entries: list[LogEntry], own: int) -> LogEntry | None:
    """The first entry that removed files which no later entry brought back."""
    found = _Losses()
    by_version = {own: found}
    for entry in entries:
        if entry.restored in by_version:
            found = by_version[entry.restored]
        elif not entry.is_of_a_sink:
            found = found.after(entry)
        by_version[entry.version] = found
    return next(iter(found.lost.values()), None)


@dataclass(frozen=True, slots=True)
class _Losses:
    """Files lost since the sink's commit, with the entry at fault; files that others added."""

    lost: dict[_File, LogEntry] = field(default_factory=dict)
    brought: frozenset[_File] = frozenset()

    def after(self, entry: LogEntry) -> _Losses:
        if not entry.changes_rows:
            # The same rows in other files, such as OPTIMIZE. Files that replace ones of other
            # writers are not in `brought`, and so count as the sink's.
            return self
        lost = dict(self.lost)
        for file in entry.removed - self.brought:
            lost.setdefault(file, entry)
        for file in entry.added & lost.keys():
            del lost[file]
        return _Losses(lost, self.brought | entry.added)


def _restored(about: dict[str, Any]) -> int | None:
    parameters = about.get("operationParameters") or {}
    version = str(parameters.get("version"))
    return int(version) if version.isdecimal() else None
