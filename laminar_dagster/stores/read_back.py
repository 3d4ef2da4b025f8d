"""Decide the outcome of a conditional write; every store shares this logic.

A refused conditional write may have been refused because of its own earlier request, and an
unanswered one may have been carried out, or may yet be. So nothing is concluded from a reply other
than "written": the object is read back, and its content decides.

::

    the object holds …             the write …
    our bytes                      succeeded, now or earlier
    another version, other bytes   lost; it can no longer succeed either
    what was there before          has not happened (yet): send it again, the condition still guards
    unreadable                     is unknown
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import assert_never

from laminar_dagster.core.errors import (
    LaminarError,
    ObjectExists,
    StoreUnavailable,
    WriteOutcomeUnknown,
)
from laminar_dagster.core.ports import VersionedObject


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often a request is tried, and how long to wait in between, with jitter."""

    attempts: int = 5
    first: float = 0.1
    ceiling: float = 5.0

    def pauses(self) -> Iterator[float | None]:
        """One item per attempt: the seconds to wait if it fails; None after the last."""
        for attempt in range(self.attempts - 1):
            # Writers that collided once would collide again if they waited equally long.
            yield min(self.ceiling, self.first * 2**attempt) * random.uniform(0.5, 1.0)
        yield None


ONCE = Backoff(attempts=1)


@dataclass(frozen=True, slots=True)
class Written:
    """The store confirmed the write."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """The store refused the request: its condition failed or it lost a race. It wrote nothing."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The request was sent, and its reply leaves the outcome open. It may even be applied later.

    Attributes:
        lasting: The error to raise in the end, if the reply is one that retries do not improve.
    """

    reason: str
    lasting: LaminarError | None = None


@dataclass(frozen=True, slots=True)
class NotSent:
    """The request certainly never reached the store; a retry may succeed."""

    error: StoreUnavailable


Reply = Written | Conflict | Unanswered | NotSent


class Verdict(Enum):
    """Whose write the stored object shows."""

    OURS = auto()
    THEIRS = auto()
    UNTOUCHED = auto()


def judge(found: VersionedObject | None, data: bytes, expected: str | None) -> Verdict:
    """Compare the stored object with the data to write and the version it was to replace."""
    if found is not None and found.data == data:
        return Verdict.OURS
    version = None if found is None else found.version
    return Verdict.UNTOUCHED if version == expected else Verdict.THEIRS


def settle(
    key: str,
    data: bytes,
    expected: str | None,
    *,
    store: str,
    send: Callable[[], Reply],
    read: Callable[[], VersionedObject | None],
    backoff: Backoff,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Send a conditional write until its outcome is known, or raise that it is unknown.

    Args:
        key: The object's key, for errors.
        data: What to write.
        expected: The version to write over; None for no object.
        store: The store's address, for errors.
        send: Sends the write once, without retries of its own. A ``LaminarError`` out of it means
            that this request was refused for good and wrote nothing.
        read: Reads the object in one attempt. What it returns must be durable, since callers act
            upon it.
        backoff: How often to send.
        sleep: Waits.

    Raises:
        ObjectExists: Another writer's bytes are stored.
        WriteOutcomeUnknown: A request may have been, or may yet be, carried out.
        StoreUnavailable: No request was carried out, and none can be.
        LaminarError: Whatever ``send`` raised, provided that no earlier request is in doubt.
    """
    # Why a request of this call may have taken effect, or may yet. Never cleared: a request in
    # flight can land after the object was seen to be absent.
    doubt = ""
    lasting: LaminarError | None = None
    may_pass = False
    failure = StoreUnavailable(store, f"writes of {key} keep conflicting")
    for pause in backoff.pauses():
        try:
            reply = send()
        except LaminarError as error:
            if doubt:
                raise WriteOutcomeUnknown(key, f"{doubt}; then {error}") from error
            raise
        match reply:
            case Written():
                return
            case NotSent(away):
                failure = away
            case Conflict() | Unanswered():
                if isinstance(reply, Unanswered):
                    doubt, lasting = reply.reason, reply.lasting
                    may_pass = may_pass or lasting is None
                try:
                    found = read()
                except LaminarError as error:
                    doubt = doubt or f"there is an object, but it cannot be read back: {error}"
                else:
                    match judge(found, data, expected):
                        case Verdict.OURS:
                            return
                        case Verdict.THEIRS:
                            raise ObjectExists(key)
                        case Verdict.UNTOUCHED:
                            pass
                        case other:
                            assert_never(other)
            case unknown:
                assert_never(unknown)
        if pause is not None:
            sleep(pause)
    if lasting and not may_pass:
        raise lasting
    if doubt:
        raise WriteOutcomeUnknown(key, doubt)
    raise failure
