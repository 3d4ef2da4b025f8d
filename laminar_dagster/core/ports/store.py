"""The store port: immutable objects, and one pointer that moves forward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from laminar_dagster.core.errors import LaminarError


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object in a listing."""

    key: str
    size: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class VersionedObject:
    """An object and the version to name when replacing it."""

    data: bytes
    version: str


class ObjectStore(Protocol):
    """A flat space of immutable objects below a base, and one that moves forward (``_latest``).

    Keys come from ``core.layout`` and are relative to the base; nothing outside the base is ever
    read, listed or deleted. A reader sees a whole object or none. What a call reported as written
    survives a crash of the machine. Adapters time out on every request and retry, with backoff and
    jitter, what is safe to retry.

    Every method raises ``StoreUnavailable`` when the store does not answer and ``AuthFailed`` when
    it refuses the credentials. Adapters are safe to share between threads, and pickle (without
    their connections), because executors open the same store.
    """

    @property
    def url(self) -> str:
        """The store's address, without secrets, for people."""
        ...

    def probe(self) -> None:
        """Prove that conditions are honoured. Leaves nothing behind.

        Raises:
            ConditionsIgnored: A second conditional create or a stale replace went through.
        """
        ...

    def create(self, key: str, data: bytes) -> None:
        """Write an object that must not exist.

        Exactly one of several racing writers succeeds. Idempotent for one writer: when the same
        bytes are already there, the call succeeds, because the conflict may be with its own
        earlier request whose reply was lost.

        Raises:
            ObjectExists: Somebody else's bytes are there.
            WriteOutcomeUnknown: No usable reply, and the object cannot be read back.
        """
        ...

    def replace(self, key: str, data: bytes, expected: str | None) -> None:
        """Write an object if its version is still the expected one; None expects no object.

        Idempotent as ``create`` is.

        Raises:
            ObjectExists: The object is at another version (or there, or gone) with other bytes.
            WriteOutcomeUnknown: No usable reply, and the object cannot be read back.
        """
        ...

    def put(self, key: str, data: bytes | memoryview) -> None:
        """Write an object without a condition, under a key that only this writer uses."""
        ...

    def put_file(self, key: str, path: Path) -> None:
        """As ``put``, from a local file of any size, in parts where the store has them."""
        ...

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        """The whole object, fetched in parallel ranges when it is large.

        Raises:
            ObjectMissing: There is none.
            MalformedDocument: It is larger than ``limit``; it is then not fetched.
        """
        ...

    def read_versioned(self, key: str, *, limit: int | None = None) -> VersionedObject | None:
        """The whole object with its version, or None."""
        ...

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``start``; fewer at the end, none past it.

        Raises:
            ObjectMissing: There is none.
        """
        ...

    def read_many(
        self, keys: Iterable[str], *, limit: int | None = None
    ) -> Iterator[tuple[str, bytes | LaminarError]]:
        """Several objects, read in parallel, in the given order; an error in place of an object."""
        ...

    def download(self, key: str, path: Path) -> None:
        """The object into a local file, which appears whole or not at all.

        Raises:
            ObjectMissing: There is none.
        """
        ...

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Every object whose key begins with ``prefix`` and sorts after ``start_after``, sorted.

        Objects whose writing never finished are not listed.
        """
        ...

    def list_folders(self, prefix: str) -> Iterator[str]:
        """The names directly below a prefix that ends with ``/``, sorted; a thousand a request."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects. Idempotent: one that is gone already is no error."""
        ...

    def sweep(self, before: datetime) -> int:
        """Remove what unfinished writes left behind before a moment; returns how many."""
        ...
