"""Lists and opens the files of a directory; nothing outside it is ever opened.

Which files belong to a source: regular files below the root whose relative path matches the
pattern, except where a part of the path begins with ``.`` or ``_`` or the name ends in ``.tmp``
(files still being written). A link that stays inside the root is passed over: its target is read
under its own name. A link that leads out of the root is refused.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from laminar_dagster.clients.transience import is_forbidden, is_passing
from laminar_dagster.core.errors import (
    AuthFailed,
    InvalidConfig,
    LaminarError,
    RetentionExpired,
    SeekFailed,
    ServiceFailed,
    SourceUnavailable,
)

MAX_PATH: Final = 4096

_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR})


@dataclass(frozen=True, slots=True)
class OpenFile:
    """An open file, with its size at the time of opening; bytes appended later are not read."""

    source_id: str
    path: str
    descriptor: int
    size: int
    modified_ns: int

    def read(self, start: int, length: int) -> bytes:
        """Exactly the bytes [start, start + length).

        Raises:
            RetentionExpired: The file has become shorter than that.
            SourceUnavailable, AuthFailed: The file cannot be read.
        """
        parts: list[bytes] = []
        while length > 0:
            try:
                part = os.pread(self.descriptor, length, start)
            except OSError as error:
                raise as_named(error, self.source_id, self.path) from error
            if not part:
                wanted = f"bytes {start} to {start + length} of {self.path}"
                raise RetentionExpired(self.source_id, wanted, f"its first {start} bytes")
            parts.append(part)
            start += len(part)
            length -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


@dataclass(frozen=True, slots=True)
class Directory:
    """The files of a source: those below ``root`` that match ``pattern``.

    Attributes:
        root: Absolute. May itself be a link.
        pattern: Matched against the relative path: ``*`` and ``?`` within a part, ``**`` for any
            number of folders.
    """

    source_id: str
    root: Path
    pattern: str

    def require_folder(self, where: str) -> None:
        """Refuse a missing folder before the first epoch, where it is a mistake in the config.

        Raises:
            InvalidConfig: The folder does not exist.
        """
        try:
            is_folder = stat.S_ISDIR(os.stat(self.root).st_mode)
        except OSError as error:
            if error.errno not in _GONE:
                raise as_named(error, self.source_id, str(self.root)) from error
            is_folder = False
        if not is_folder:
            problem = f"source {self.source_id}: there is no folder {_shown(str(self.root))}"
            raise InvalidConfig(where, problem, "make it, or mend `path`")

    def files(self, limit: int) -> tuple[str, ...]:
        """The relative paths of the files, sorted by their UTF-8 bytes.

        Raises:
            SourceUnavailable: The directory cannot be reached.
            AuthFailed: A folder may not be read.
            InvalidConfig: A link leads out, a name cannot be recorded, or there are too many.
        """
        matcher = _Matcher(self.pattern)
        found: list[str] = []
        folders = [""]
        while folders:
            folder = folders.pop()
            for entry in self._scan(folder):
                relative = f"{folder}/{entry.name}" if folder else entry.name
                if entry.name.startswith((".", "_")):
                    continue
                try:
                    if entry.is_symlink():
                        self._refuse_way_out(relative)
                    elif entry.is_dir(follow_symlinks=False):
                        if matcher.may_hold(relative):
                            folders.append(relative)
                    elif (
                        entry.is_file(follow_symlinks=False)
                        and not entry.name.endswith(".tmp")
                        and matcher.matches(relative)
                    ):
                        found.append(self._recordable(relative))
                except OSError as error:
                    if error.errno not in _GONE:
                        raise as_named(error, self.source_id, relative) from error
        if len(found) > limit:
            raise InvalidConfig(
                f"source {self.source_id}",
                f"{len(found)} files match in {self.root}, more than `max.files` = {limit}",
                "move finished files away with `on_vanished` = 'forget', or raise `max.files`",
            )
        return tuple(sorted(found, key=str.encode))

    def size(self, relative: str) -> int:
        """A file's size; 0 if it cannot be read."""
        try:
            return os.stat(self.root / relative, follow_symlinks=False).st_size
        except (OSError, ValueError):
            return 0

    def takes(self, relative: str) -> bool:
        """Whether a new file of that name would be one of the source's.

        Raises:
            SourceReplaced: The path could lead out of the directory.
        """
        self._refuse_odd_path(relative)
        return _Matcher(self.pattern).matches(relative)

    @contextmanager
    def open(self, relative: str) -> Iterator[OpenFile]:
        """Open a file below the root.

        Raises:
            SeekFailed: The path is not one that this source could have listed.
            FileNotFoundError: The file does not exist, or no longer.
            SourceUnavailable, AuthFailed: The file cannot be read.
        """
        self._refuse_odd_path(relative)
        try:
            root = os.path.realpath(self.root)
            full = os.path.join(root, relative)
            # A link in the middle of the path would lead elsewhere.
            if os.path.realpath(full) != full:
                raise SeekFailed(self.source_id, f"{relative} leads through a link")
            # Non-blocking: a pipe put in the file's place must not hang the epoch.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(full, flags)
        except OSError as error:
            if error.errno in _GONE:
                raise FileNotFoundError(relative) from None
            raise as_named(error, self.source_id, relative) from error
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise SeekFailed(self.source_id, f"{relative} is not a regular file")
            yield OpenFile(self.source_id, relative, descriptor, status.st_size, status.st_mtime_ns)
        finally:
            os.close(descriptor)

    def _scan(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.root / folder) as entries:
                return list(entries)
        except OSError as error:
            if folder and error.errno in _GONE:
                return []
            shown = folder or str(self.root)
            raise as_named(error, self.source_id, shown) from error

    def _refuse_way_out(self, relative: str) -> None:
        root = os.path.realpath(self.root)
        target = os.path.realpath(os.path.join(root, relative))
        if os.path.commonpath([root, target]) != root:
            raise InvalidConfig(
                f"source {self.source_id}",
                f"{_shown(relative)} is a link that leads out of {self.root}",
                "remove the link, or copy the file",
            )

    def _recordable(self, relative: str) -> str:
        problem = ""
        try:
            relative.encode()
        except UnicodeEncodeError:
            problem = "is not UTF-8"
        if len(relative) > MAX_PATH:
            problem = f"is longer than {MAX_PATH} characters"
        if problem:
            where, what = f"source {self.source_id}", f"the name of {_shown(relative)} {problem}"
            raise InvalidConfig(where, what, "rename the file")
        return relative

    def _refuse_odd_path(self, relative: str) -> None:
        parts = PurePosixPath(relative).parts
        if (
            not parts
            or relative != "/".join(parts)
            or any(part.startswith((".", "_")) for part in parts)
            or "\0" in relative
        ):
            raise SeekFailed(self.source_id, f"{relative!r} is not a path below {self.root}")


class _Matcher:
    """A pattern, part by part, so that ``*`` does not cross a folder."""

    def __init__(self, pattern: str) -> None:
        self._parts = tuple(pattern.split("/"))
        self._deep = "**" in self._parts

    def matches(self, relative: str) -> bool:
        # Tracks every prefix of the pattern that fits so far: linear, whatever the pattern.
        reached = _skip_folders({0}, self._parts)
        for part in relative.split("/"):
            after: set[int] = set()
            for place in reached:
                if place < len(self._parts):
                    if self._parts[place] == "**":
                        after.add(place)
                    elif fnmatch.fnmatchcase(part, self._parts[place]):
                        after.add(place + 1)
            reached = _skip_folders(after, self._parts)
        return len(self._parts) in reached

    def may_hold(self, folder: str) -> bool:
        return self._deep or folder.count("/") + 1 < len(self._parts)


def _skip_folders(places: set[int], parts: tuple[str, ...]) -> set[int]:
    """The places with every ``**`` also skipped: it may stand for no folder at all."""
    reached = set(places)
    for place in sorted(places):
        while place < len(parts) and parts[place] == "**":
            place += 1
            reached.add(place)
    return reached


def problem_with_pattern(pattern: str) -> str:
    """What is wrong with a pattern; empty when nothing is."""
    parts = pattern.split("/")
    if not pattern or "" in parts or "\0" in pattern:
        return "must be a relative path such as *.ndjson or **/*.csv"
    if any(part in (".", "..") for part in parts):
        return "must not hold '.' or '..'"
    if any("**" in part and part != "**" for part in parts):
        return "has '**' next to other characters in one part"
    return ""


def as_named(error: OSError, source_id: str, path: str) -> LaminarError:
    """Translate an error of the operating system into one of ours."""
    reason = f"{_shown(path)}: {os.strerror(error.errno) if error.errno else error}"
    if is_forbidden(error):
        return AuthFailed(f"source {source_id}", reason)
    if is_passing(error):
        return SourceUnavailable(source_id, reason)
    return ServiceFailed(f"source {source_id}", reason)


def _shown(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode()[:MAX_PATH]
