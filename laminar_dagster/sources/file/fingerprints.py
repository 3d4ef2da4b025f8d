"""Tells a file that has grown from one that was replaced.

A fingerprint holds the offset up to which the plan reads the file, the offset up to which it could
have, and hashes of the first and the last bytes before the planned end. Those bytes are complete
records, so appending does not change them; rewriting, rotating or copying over the file does.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from laminar_dagster.core.errors import SourceReplaced
from laminar_dagster.sources.file.directory import OpenFile

SAMPLE_BYTES: Final = 4096

_TEXT: Final = re.compile(r"1:(\d{1,20}):(\d{1,20}):([0-9a-f]{32}):([0-9a-f]{32})")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The fingerprint of a file that a plan pins.

    Attributes:
        end: The offset at which the plan's range ends.
        available: The end of the last complete record seen; at or after ``end``.
        head: Hash of the first bytes before ``end``.
        tail: Hash of the last bytes before ``end``.
    """

    end: int
    available: int
    head: str
    tail: str

    def __str__(self) -> str:
        """The text form that plans store."""
        return f"1:{self.end}:{self.available}:{self.head}:{self.tail}"

    @classmethod
    def parse(cls, source_id: str, path: str, text: str) -> Fingerprint:
        """Read one from a plan.

        Raises:
            SourceReplaced: The text is not the fingerprint of a file.
        """
        found = _TEXT.fullmatch(text)
        if not found:
            raise SourceReplaced(source_id, f"{path} with fingerprint {text[:100]!r}", "a file")
        return cls(int(found[1]), int(found[2]), found[3], found[4])

    @classmethod
    def of(cls, file: OpenFile, end: int, available: int) -> Fingerprint:
        """Take a file's fingerprint."""
        return cls(end, available, head_of(file, end), _tail_of(file, end))

    def held_at(self, before: Fingerprint | None, start: int) -> Fingerprint | None:
        """The fingerprint if the file is not read after all: at ``start``, with more available.

        None if the last plan did not pin ``start``.

        Args:
            before: The file's fingerprint in the last epoch's plan.
            start: Where the last epoch ended, and this one begins.
        """
        if before is None or before.end != start:
            return None
        return Fingerprint(start, self.available, before.head, before.tail)

    @property
    def head_bytes(self) -> int:
        """How many bytes ``head`` is the hash of."""
        return min(SAMPLE_BYTES, self.end)

    @property
    def was_read_to_its_end(self) -> bool:
        """Whether the plan reads all that was available."""
        return self.end == self.available

    def matches(self, file: OpenFile) -> bool:
        """Whether a file still starts with the bytes that this fingerprint was taken of."""
        return (
            file.size >= self.end
            and head_of(file, self.end) == self.head
            and _tail_of(file, self.end) == self.tail
        )

    def require(self, file: OpenFile) -> None:
        """Refuse a file that was replaced or truncated.

        Raises:
            SourceReplaced: The file is shorter, or its bytes differ.
        """
        if file.size < self.end:
            expected = f"{file.path} with {self.end} bytes or more"
            raise SourceReplaced(file.source_id, expected, f"{file.size} bytes: it was cut off")
        if not self.matches(file):
            expected = f"{file.path} with the {self.end} bytes that were read"
            raise SourceReplaced(file.source_id, expected, "other bytes in their place")


def head_of(file: OpenFile, end: int) -> str:
    """Hash of the file's first bytes, none of them at or after ``end``."""
    return _hash(file.read(0, min(SAMPLE_BYTES, end)))


def _tail_of(file: OpenFile, end: int) -> str:
    length = min(SAMPLE_BYTES, end)
    return _hash(file.read(end - length, length))


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
