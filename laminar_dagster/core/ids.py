"""Identifiers. Each is checked when it is made, so that later code can rely on it.

Names become parts of object keys and file names; the rules keep a name from leaving its folder,
on any store and any operating system.
"""

from __future__ import annotations

import re
import unicodedata
import uuid
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final, Self

from laminar_dagster.core.errors import InvalidCheckpointId, InvalidName

MAX_NAME_BYTES: Final = 200
MAX_EPOCH: Final = 2**63 - 1

_PUNCTUATION: Final = frozenset("_-.")
# Hangul fillers: letters to Unicode, but invisible.
_INVISIBLE: Final = frozenset("\u115f\u1160")
# The end of the year 9999, after which Python has no dates.
_LAST_TIME: Final = "e677d21fdbff"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-](?:[A-Za-z0-9_.-]{0,198}[A-Za-z0-9_-])?")
_UUID7: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.ASCII
)
_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Name(str):
    """A string that is safe as one segment of an object key."""

    __slots__ = ()
    noun: ClassVar[str] = "name"

    def __new__(cls, value: str) -> Self:
        """Refuse what could leave its folder or be taken for something else.

        Raises:
            InvalidName: with the reason.
        """
        if type(value) is cls:
            return value
        problem = "" if _is_plain(value) else _problem_with(value)
        if problem:
            raise InvalidName(cls.noun, str(value)[:MAX_NAME_BYTES], problem)
        return super().__new__(cls, value)


def _is_plain(value: object) -> bool:
    """A fast check that accepts the usual ASCII names."""
    return isinstance(value, str) and _PLAIN.fullmatch(value) is not None


def _problem_with(value: object) -> str:
    if not isinstance(value, str):
        return f"must be a string, not {type(value).__name__}"
    if not value:
        return "is empty"
    if value[0] == "." or value[-1] == ".":
        return "must not begin or end with '.'"
    for character in value:
        # Letters and digits of any script are allowed. Separators and their look-alikes are
        # neither, and invisible letters are refused.
        is_usual = character.isalnum() or character in _PUNCTUATION
        if not is_usual or character in _INVISIBLE:
            return f"holds U+{ord(character):04X}, which is not a letter, digit, '_', '-' or '.'"
    if len(value.encode()) > MAX_NAME_BYTES:
        return f"is longer than {MAX_NAME_BYTES} bytes"
    # Two normal forms of one name would be two keys on S3, but one file on some disks.
    if unicodedata.normalize("NFKC", value) != value:
        return "is not in Unicode normal form KC"
    return ""


class SourceId(_Name):
    """A source within a pipeline."""

    __slots__ = ()
    noun = "source id"


class ReferenceId(_Name):
    """A reference table within a pipeline."""

    __slots__ = ()
    noun = "reference table id"


class OperatorId(_Name):
    """An operator of the pipeline's plan, stable across restarts."""

    __slots__ = ()
    noun = "operator id"


class SinkId(_Name):
    """A sink within a pipeline."""

    __slots__ = ()
    noun = "sink id"


class PipelineName(_Name):
    """A pipeline."""

    __slots__ = ()
    noun = "pipeline name"


class BranchName(_Name):
    """A branch of a pipeline."""

    __slots__ = ()
    noun = "branch name"


class FileName(_Name):
    """The name of a file that a job writes into its own folder."""

    __slots__ = ()
    noun = "file name"


class _Count(int):
    """A bounded whole number."""

    __slots__ = ()
    noun: ClassVar[str] = "number"
    largest: ClassVar[int] = MAX_EPOCH

    def __new__(cls, value: int) -> Self:
        """Refuse what is not a whole number between 0 and ``largest``.

        Raises:
            InvalidName: with the reason.
        """
        if type(value) is cls:
            return value
        if isinstance(value, bool) or not isinstance(value, int):
            problem = f"must be a whole number, not {type(value).__name__}"
            raise InvalidName(cls.noun, str(value)[:MAX_NAME_BYTES], problem)
        if not 0 <= value <= cls.largest:
            # Printing a number of a million digits would itself be an attack.
            shown = str(value) if abs(value) <= 2**64 else f"a number of {value.bit_length()} bits"
            raise InvalidName(cls.noun, shown, f"is not between 0 and {cls.largest}")
        return super().__new__(cls, value)


class PartitionId(_Count):
    """A hash bucket of an operator's state."""

    __slots__ = ()
    noun = "partition id"
    largest = 2**32 - 1


class EpochNumber(_Count):
    """An epoch of a pipeline. The first is 1; 0 stands before it and has no checkpoint."""

    __slots__ = ()
    noun = "epoch"

    @property
    def key(self) -> str:
        """The number with twenty digits, so that keys sort like numbers."""
        return f"{self:020d}"

    def next(self) -> EpochNumber:
        """The epoch after this one."""
        return EpochNumber(self + 1)

    def previous(self) -> EpochNumber:
        """The epoch before this one."""
        return EpochNumber(self - 1)


GENESIS: Final = EpochNumber(0)


class CheckpointId(str):
    """A checkpoint, or an attempt at one: a UUID of version 7 (RFC 9562) in lower case.

    Sorts by time of minting. Minted outside this layer, which has no clock and no randomness.
    """

    __slots__ = ()

    def __new__(cls, value: str) -> Self:
        """Take the canonical text of a UUID v7.

        Raises:
            InvalidCheckpointId: for any other text.
        """
        if type(value) is cls:
            return value
        if not _UUID7.fullmatch(str(value)) or value[:8] + value[9:13] > _LAST_TIME:
            raise InvalidCheckpointId(str(value)[:64])
        return super().__new__(cls, value)

    @classmethod
    def from_parts(cls, unix_milliseconds: int, random_bits: int) -> Self:
        """Lay out a version 7 UUID from its 48-bit time and 74 bits of randomness."""
        if not 0 <= unix_milliseconds < 2**48 or not 0 <= random_bits < 2**74:
            raise InvalidCheckpointId(f"{unix_milliseconds}, {random_bits}")
        high, low = random_bits >> 62, random_bits & (2**62 - 1)
        number = unix_milliseconds << 80 | 7 << 76 | high << 64 | 2 << 62 | low
        return cls(str(uuid.UUID(int=number)))

    @property
    def timestamp(self) -> datetime:
        """When it was minted, to the millisecond, in UTC."""
        return _UNIX_EPOCH + timedelta(milliseconds=int(self[:8] + self[9:13], 16))


def is_identifier(kind: type) -> bool:
    """Whether a type is one of this module's, to be rebuilt from its plain JSON value."""
    return issubclass(kind, _Name | _Count | CheckpointId)
