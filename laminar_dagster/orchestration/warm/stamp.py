"""Detects whether the code has changed since this process loaded it.

Two sets of files count. Files below the code's folder that look like code or configuration: these
may be read without being imported, and a new one counts as a change. And the file of every module
that is loaded, wherever it lies, except installed packages, which change only together with their
environment.

Files are compared by time, size and inode, never by content: comparing a few thousand takes some
milliseconds, and a file that was touched without a change costs no more than a cold start.
"""

import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

_SUFFIXES: Final = (".py", ".yml", ".yaml", ".sql")
_ENV_FILE: Final = ".env"
_SKIPPED: Final = frozenset(
    {
        "__pycache__",
        "build",
        "dist",
        "env",
        "logs",
        "node_modules",
        "site-packages",
        "target",
        "venv",
    }
)
# A folder with more entries (a home, a disk) is no code folder; loaded modules in it still count.
_MAX_ENTRIES: Final = 50_000

_log = logging.getLogger(__name__)

Signature: TypeAlias = tuple[int, int, int]


@dataclass(slots=True)
class CodeStamp:
    """The files as they were when the code was loaded.

    Attributes:
        folder: The code's folder.
        ignored: Folders below it that hold no code, such as Dagster's own storage.
        env_file: The ``.env`` file that Dagster reads when a process starts.
    """

    folder: Path
    ignored: frozenset[str]
    env_file: str
    _tree: dict[str, Signature] = field(default_factory=dict)
    _modules: dict[str, Signature | None] = field(default_factory=dict)
    _taken_ns: int = 0

    @classmethod
    def take(cls, folder: Path, ignored: Sequence[str] = ()) -> "CodeStamp":
        """Take the stamp; to be called before the code is loaded, so that no change is missed."""
        stamp = cls(folder, frozenset(ignored), os.path.abspath(_ENV_FILE))
        # File times are rounded: a file written just before this may have a later time.
        stamp._taken_ns = time.time_ns()
        stamp._tree = stamp._files()
        stamp._modules = {path: _signature(path) for path in _module_files()}
        return stamp

    def change(self) -> str | None:
        """A file that changed since, or None. Modules loaded since are included from now on."""
        tree = self._files()
        if tree != self._tree:
            return min(
                path
                for path in tree.keys() | self._tree.keys()
                if tree.get(path) != self._tree.get(path)
            )
        return self._changed_module()

    def _files(self) -> dict[str, Signature]:
        files = dict(_tree_files(self.folder, self.ignored))
        signature = _signature(self.env_file)
        return files if signature is None else {**files, self.env_file: signature}

    def _changed_module(self) -> str | None:
        for path in _module_files():
            if path in self._tree:
                continue
            now = _signature(path)
            if path not in self._modules:
                # Loaded and written after the stamp: perhaps written after it was loaded.
                if now is not None and now[0] > self._taken_ns:
                    return path
                self._modules[path] = now
            elif self._modules[path] != now:
                return path
        return None


def _tree_files(folder: Path, ignored: frozenset[str]) -> Iterator[tuple[str, Signature]]:
    waiting = [str(folder)]
    entries_seen = 0
    while waiting:
        current = waiting.pop()
        try:
            entries = os.scandir(current)
        except OSError:
            continue
        with entries:
            for entry in entries:
                entries_seen += 1
                if entries_seen > _MAX_ENTRIES:
                    _log.warning(
                        "%s has more than %d entries: changed files there may go unnoticed",
                        folder,
                        _MAX_ENTRIES,
                    )
                    return
                if entry.name.endswith(_SUFFIXES) or entry.name == _ENV_FILE:
                    signature = _signature(entry.path)
                    if signature is not None:
                        yield entry.path, signature
                elif _may_hold_code(entry, ignored):
                    waiting.append(entry.path)


def _may_hold_code(entry: "os.DirEntry[str]", ignored: frozenset[str]) -> bool:
    return (
        not entry.name.startswith(".")
        and entry.name not in _SKIPPED
        and entry.path not in ignored
        and entry.is_dir(follow_symlinks=False)
    )


def _module_files() -> Iterator[str]:
    """The files of the modules that are loaded and not installed."""
    installed = tuple({os.path.join(prefix, "") for prefix in (sys.prefix, sys.base_prefix)})
    for module in tuple(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or not os.path.isabs(path):
            continue
        if path.startswith(installed) or f"{os.sep}site-packages{os.sep}" in path:
            continue
        yield path


def _signature(path: str) -> Signature | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)
