"""The decision about conditional writes, over every run of replies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.core.errors import (
    AuthFailed,
    LaminarError,
    ObjectExists,
    StoreUnavailable,
    WriteOutcomeUnknown,
)
from laminar_dagster.core.ports import VersionedObject
from laminar_dagster.stores.read_back import (
    Backoff,
    Conflict,
    NotSent,
    Reply,
    Unanswered,
    Verdict,
    Written,
    judge,
    settle,
)

AWAY = StoreUnavailable("store", "away")
DENIED = AuthFailed("store", "denied")
OURS = VersionedObject(b"ours", "2")
THEIRS = VersionedObject(b"theirs", "2")
BEFORE = VersionedObject(b"before", "1")


@pytest.mark.parametrize(
    ("found", "expected", "verdict"),
    [
        (None, None, Verdict.UNTOUCHED),
        (OURS, None, Verdict.OURS),
        (THEIRS, None, Verdict.THEIRS),
        (None, "1", Verdict.THEIRS),
        (OURS, "1", Verdict.OURS),
        (THEIRS, "1", Verdict.THEIRS),
        (BEFORE, "1", Verdict.UNTOUCHED),
        # Somebody wrote our bytes over a version that we did not know.
        (OURS, "0", Verdict.OURS),
    ],
)
def test_judge(found: VersionedObject | None, expected: str | None, verdict: Verdict) -> None:
    assert judge(found, b"ours", expected) is verdict


class Script:
    """Replies and read-backs in the order they will come."""

    def __init__(
        self,
        replies: list[Reply | LaminarError],
        found: list[VersionedObject | LaminarError | None],
    ) -> None:
        self.replies, self.found = iter(replies), iter(found)
        self.sent = 0
        self.pauses: list[float] = []

    def send(self) -> Reply:
        self.sent += 1
        reply = next(self.replies)
        if isinstance(reply, LaminarError):
            raise reply
        return reply

    def read(self) -> VersionedObject | None:
        found = next(self.found)
        if isinstance(found, LaminarError):
            raise found
        return found

    def run(self, expected: str | None = None, attempts: int = 3) -> None:
        settle(
            "key",
            b"ours",
            expected,
            store="store",
            send=self.send,
            read=self.read,
            backoff=Backoff(attempts=attempts),
            sleep=self.pauses.append,
        )


@pytest.mark.parametrize(
    ("replies", "found", "sent"),
    [
        ([Written()], [], 1),
        ([Conflict()], [OURS], 1),
        ([Unanswered("lost")], [OURS], 1),
        ([Unanswered("lost"), Written()], [None], 2),
        ([Unanswered("lost"), Conflict()], [None, OURS], 2),
        ([Unanswered("lost"), Conflict()], [AWAY, OURS], 2),
        ([Conflict(), Written()], [None], 2),
        ([NotSent(AWAY), NotSent(AWAY), Written()], [], 3),
    ],
)
def test_it_succeeds(
    replies: list[Reply | LaminarError],
    found: list[VersionedObject | LaminarError | None],
    sent: int,
) -> None:
    script = Script(replies, found)
    script.run()
    assert script.sent == sent
    assert len(script.pauses) == sent - 1


@pytest.mark.parametrize(
    ("replies", "found", "error"),
    [
        ([Conflict()], [THEIRS], ObjectExists),
        ([Unanswered("lost")], [THEIRS], ObjectExists),
        ([Unanswered("lost"), Conflict()], [None, THEIRS], ObjectExists),
        ([Conflict()] * 3, [None] * 3, StoreUnavailable),
        ([NotSent(AWAY)] * 3, [], StoreUnavailable),
        ([Conflict(), NotSent(AWAY), NotSent(AWAY)], [None], StoreUnavailable),
        ([DENIED], [], AuthFailed),
        ([NotSent(AWAY), DENIED], [], AuthFailed),
        ([Conflict(), DENIED], [None], AuthFailed),
        ([Unanswered("lost")] * 3, [None] * 3, WriteOutcomeUnknown),
        ([Unanswered("lost")] * 3, [AWAY] * 3, WriteOutcomeUnknown),
        ([Unanswered("lost"), NotSent(AWAY), NotSent(AWAY)], [None], WriteOutcomeUnknown),
        ([Unanswered("lost"), DENIED], [None], WriteOutcomeUnknown),
        ([Unanswered("lost"), Conflict(), Conflict()], [None] * 3, WriteOutcomeUnknown),
        ([Conflict()] * 3, [DENIED] * 3, WriteOutcomeUnknown),
    ],
)
def test_it_fails(
    replies: list[Reply | LaminarError],
    found: list[VersionedObject | LaminarError | None],
    error: type[LaminarError],
) -> None:
    with pytest.raises(error):
        Script(replies, found).run()


def test_a_replace_goes_on_only_while_the_old_version_is_there() -> None:
    script = Script([Unanswered("lost"), Written()], [BEFORE])
    script.run(expected="1")
    assert script.sent == 2
    with pytest.raises(ObjectExists):
        Script([Unanswered("lost")], [None]).run(expected="1")


@given(st.integers(1, 9), st.floats(0.001, 1), st.floats(0.001, 10))
def test_pauses_grow_up_to_a_ceiling(attempts: int, first: float, ceiling: float) -> None:
    *pauses, last = Backoff(attempts, first, ceiling).pauses()
    assert last is None
    assert len(pauses) == attempts - 1
    for number, pause in enumerate(pauses):
        assert pause is not None
        assert 0 < pause <= min(ceiling, first * 2**number)


class Server:
    """A model of a store whose requests and replies get lost, and whose requests come late."""

    def __init__(self, fates: Iterator[str], rival_first: bool) -> None:
        self.fates = fates
        self.content: bytes | None = b"theirs" if rival_first else None
        self.late = 0
        self.ever_ours = False

    def _apply(self) -> bool:
        if self.content is not None:
            return False
        self.content, self.ever_ours = b"ours", True
        return True

    def send(self) -> Reply:
        match next(self.fates, "ok"):
            case "ok":
                return Written() if self._apply() else Conflict()
            case "lost reply":
                self._apply()
                return Unanswered("lost reply")
            case "late":
                self.late += 1
                return Unanswered("late")
            case "rival":
                self.content = self.content or b"theirs"
                return Unanswered("rival")
            case _:
                return NotSent(AWAY)

    def read(self) -> VersionedObject | None:
        if next(self.fates, "ok") == "unreadable":
            raise AWAY
        content = self.content
        return None if content is None else VersionedObject(content, "1")


FATES = ("ok", "lost reply", "late", "rival", "not sent", "unreadable")


@given(st.lists(st.sampled_from(FATES)), st.booleans())
def test_whatever_is_lost_the_answer_is_true(fates: list[str], rival_first: bool) -> None:
    server = Server(iter(fates), rival_first)
    outcome: type[LaminarError] | None = None
    try:
        settle(
            "key",
            b"ours",
            None,
            store="store",
            send=server.send,
            read=server.read,
            backoff=Backoff(attempts=4),
            sleep=lambda _: None,
        )
    except LaminarError as error:
        outcome = type(error)
    # Requests that are still under way arrive only now.
    late = server.late > 0 and server._apply()
    if outcome is None:
        assert server.content == b"ours"
        assert not late
    elif outcome is ObjectExists:
        assert server.content == b"theirs"
        assert not server.ever_ours
    elif outcome is StoreUnavailable:
        assert not server.ever_ours
    else:
        assert outcome is WriteOutcomeUnknown
