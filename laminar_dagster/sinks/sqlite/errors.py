"""Error translation: from SQLite's result codes to this project's errors."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

from laminar_dagster.clients.transience import is_forbidden, is_passing
from laminar_dagster.core.errors import (
    AuthFailed,
    LaminarError,
    ServiceFailed,
    SinkUnavailable,
    WriteFailed,
)
from laminar_dagster.core.ids import EpochNumber, SinkId

# Transient errors: the same call may succeed later.
_TRANSIENT: Final = {
    sqlite3.SQLITE_BUSY: "another connection holds its lock",
    sqlite3.SQLITE_LOCKED: "another connection holds its lock",
    sqlite3.SQLITE_PROTOCOL: "another connection holds its lock",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk failed",
    sqlite3.SQLITE_NOMEM: "there is not enough memory",
    sqlite3.SQLITE_INTERRUPT: "it was interrupted",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
}
_LASTING: Final = {
    sqlite3.SQLITE_READONLY: "it may not be written",
    sqlite3.SQLITE_PERM: "it may not be written",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite database",
}


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection's lock is in the way."""
    return _code(error) == sqlite3.SQLITE_BUSY


def is_left_halfway(error: sqlite3.Error) -> bool:
    """Whether a writer died and left a journal that only a writable connection can roll back."""
    found = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return found in (sqlite3.SQLITE_READONLY_ROLLBACK, sqlite3.SQLITE_READONLY_RECOVERY)


def describe(error: sqlite3.Error, path: Path) -> str:
    """The text of an error, for messages."""
    code = _code(error)
    known = _TRANSIENT.get(code) or _LASTING.get(code)
    if path.is_dir():
        known = "it is a folder"
    elif code == sqlite3.SQLITE_CANTOPEN and not path.exists():
        known = "it does not exist"
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return f"{path}: {known} ({name}: {error})" if known else f"{path}: {error} ({name})"


def while_reading(error: sqlite3.Error, sink_id: SinkId, path: Path) -> LaminarError:
    """The error to raise if a read-only statement failed, or the file could not be opened."""
    reason = describe(error, path)
    if _is_passing(error, path):
        return SinkUnavailable(sink_id, reason)
    return ServiceFailed(f"the SQLite database of sink {sink_id}", reason)


def of_system(error: OSError, sink_id: SinkId, path: Path) -> LaminarError:
    """Translate an error of the operating system."""
    service, reason = f"the SQLite database of sink {sink_id}", f"{path}: {error.strerror or error}"
    if is_forbidden(error):
        return AuthFailed(service, reason)
    if is_passing(error):
        return SinkUnavailable(sink_id, reason)
    return ServiceFailed(service, reason)


def before_commit(
    error: sqlite3.Error, sink_id: SinkId, epoch: EpochNumber, path: Path
) -> LaminarError:
    """The error to raise before COMMIT was sent: SQLite rolls back, nothing is published."""
    if _is_passing(error, path):
        return SinkUnavailable(sink_id, describe(error, path))
    return WriteFailed(sink_id, epoch, describe(error, path))


def _is_passing(error: sqlite3.Error, path: Path) -> bool:
    # Not transient: a folder in the file's place, or a file without read permission.
    is_blocked = path.is_dir() or (path.exists() and not os.access(path, os.R_OK))
    return _code(error) in _TRANSIENT and not is_blocked


def _code(error: sqlite3.Error) -> int:
    """The primary result code; the extended ones keep it in their lowest byte."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
