"""The contract of ``Sink`` as tests. Subclass it to check an adapter.

::

    @dataclass(frozen=True)
    class MyPlace:                       # pickles; see ``SinkPlace``
        folder: Path
        def open(self, sink_id, mode): ...
        def read(self, sink_id): ...
        def encode(self, rows, weights): ...

    class TestMySink(SinkContract):
        @pytest.fixture
        def place(self, tmp_path: Path) -> SinkPlace:
            return MyPlace(tmp_path)

A sink that is killed with SIGKILL is opened in a process of its own, so the module that defines
the place must be importable.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import ClassVar, Final, Literal, Protocol

import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.errors import (
    ChecksumMismatch,
    LaminarError,
    LedgerMismatch,
    RetryError,
    UnknownOutcome,
    WriteFailed,
)
from laminar_dagster.core.ids import EpochNumber, FileName, SinkId
from laminar_dagster.core.manifest import FileEntry, SinkEntry
from laminar_dagster.core.ports import Sink, StagedOutput
from laminar_dagster.testing.crash import Crash

Row = tuple[int, str]
Mode = Literal["append", "upsert"]
Files = tuple[bytes, ...]

TABLE: Final = SinkId("table")
OTHER: Final = SinkId("other")


class SinkPlace(Protocol):
    """Where a test's sinks write: a database, a folder. Empty at first; pickles."""

    def open(self, sink_id: SinkId, mode: Mode) -> Sink:
        """A new instance that shares nothing with others but the place.

        Its rows have the columns ``key`` (a 64-bit integer) and ``value`` (text); ``key`` is the
        key of mode upsert. It should not wait for a lock for more than a few seconds.
        """
        ...

    def read(self, sink_id: SinkId) -> list[Row]:
        """All rows of a sink at one moment, in any order, as an independent client sees them.

        Empty while there is no table.
        """
        ...

    def encode(self, rows: Sequence[Row], weights: Sequence[int] | None) -> bytes:
        """A staged file; with weights, it has a column ``_weight``."""
        ...


class SinkContract:
    """What every sink has to do.

    Attributes:
        racers: How many committers race for one epoch.
        kills: How many committers are killed, each at a random moment.
        rows: How many rows an epoch of those has.
    """

    racers: ClassVar[int] = 6
    kills: ClassVar[int] = 30
    rows: ClassVar[int] = 3000

    @pytest.fixture
    def place(self) -> SinkPlace:
        """A place that is empty and that no other test uses."""
        raise NotImplementedError("a subclass provides the place")

    # --- the ledger -------------------------------------------------------------------------------

    def test_a_new_sink_has_no_ledger_and_makes_nothing(self, place: SinkPlace) -> None:
        """To ask is not to write."""
        sink = place.open(TABLE, "append")
        assert sink.sink_id == TABLE
        assert "://" in sink.address
        assert sink.address == place.open(TABLE, "append").address
        assert sink.ledger() is None
        assert sink.ledger() is None
        assert place.read(TABLE) == []

    def test_what_was_committed_is_there_for_everybody(self, place: SinkPlace) -> None:
        """Rows and ledger, for this instance and for one that is opened later."""
        sink = place.open(TABLE, "append")
        for epoch, rows in ((1, [(1, "a"), (2, "b")]), (2, [(3, "c")])):
            sink.commit(EpochNumber(epoch), staged(place, rows))
            assert sink.ledger() == place.open(TABLE, "append").ledger() == epoch
        assert sorted(place.read(TABLE)) == [(1, "a"), (2, "b"), (3, "c")]

    def test_committing_again_changes_nothing(self, place: SinkPlace) -> None:
        """By the same instance or another, and however often."""
        for epoch in (1, 2):
            for _ in range(2):
                place.open(TABLE, "append").commit(EpochNumber(epoch), staged(place, [(epoch, "")]))
            sink = place.open(TABLE, "append")
            sink.commit(EpochNumber(epoch), staged(place, [(epoch, "")]))
            sink.commit(EpochNumber(epoch), staged(place, [(epoch, "")]))
        assert sorted(place.read(TABLE)) == [(1, ""), (2, "")]
        assert place.open(TABLE, "append").ledger() == 2

    @pytest.mark.parametrize("wrong", [1, 2, 3, 4, 7, 8, 1000])
    def test_another_epoch_than_the_next_is_refused(self, place: SinkPlace, wrong: int) -> None:
        """A gap or a double is never made good by going on."""
        sink = place.open(TABLE, "append")
        for epoch in (3, 4, 5):
            sink.commit(EpochNumber(epoch), staged(place, [(epoch, "")], joined_at=3))
        with pytest.raises(LedgerMismatch) as caught:
            sink.commit(EpochNumber(wrong), staged(place, [(99, "")], joined_at=3))
        assert (caught.value.epoch, caught.value.ledger) == (wrong, 5)
        assert sink.ledger() == 5
        assert sorted(place.read(TABLE)) == [(3, ""), (4, ""), (5, "")]

    @pytest.mark.parametrize("joined_at", [1, 7])
    def test_the_first_epoch_is_the_one_in_which_the_sink_joined(
        self, place: SinkPlace, joined_at: int
    ) -> None:
        """No other can be: a ledger that is lost must not pass for a new sink."""
        sink = place.open(TABLE, "append")
        for wrong in (joined_at + 1, joined_at + 2, joined_at - 1):
            with pytest.raises(LedgerMismatch):
                sink.commit(EpochNumber(wrong), staged(place, [(0, "")], joined_at=joined_at))
            assert sink.ledger() is None
            assert place.read(TABLE) == []
        sink.commit(EpochNumber(joined_at), staged(place, [(1, "a")], joined_at=joined_at))
        assert sink.ledger() == joined_at
        assert place.read(TABLE) == [(1, "a")]

    @pytest.mark.parametrize("mode", ["append", "upsert"])
    @pytest.mark.parametrize("files", [0, 1, 2])
    def test_an_epoch_without_rows_moves_the_ledger(
        self, place: SinkPlace, mode: Mode, files: int
    ) -> None:
        """Also the first, of which not even the columns may be known."""
        sink = place.open(TABLE, mode)
        nothing = staged(place, *[[]] * files)
        for epoch in (1, 2):
            sink.commit(EpochNumber(epoch), nothing)
            assert sink.ledger() == epoch
        assert place.read(TABLE) == []
        sink.commit(EpochNumber(3), staged(place, [(1, "a")]))
        sink.commit(EpochNumber(4), nothing)
        sink.commit(EpochNumber(4), nothing)
        assert sink.ledger() == 4
        assert place.read(TABLE) == [(1, "a")]

    def test_sinks_in_one_place_do_not_disturb_each_other(self, place: SinkPlace) -> None:
        """Each has its own ledger and its own rows, also at the same time."""
        place.open(TABLE, "append").commit(EpochNumber(1), staged(place, [(1, "a")]))
        other = place.open(OTHER, "append")
        assert other.ledger() is None
        other.commit(EpochNumber(9), staged(place, [(2, "b")], sink=OTHER, joined_at=9))
        assert place.open(TABLE, "append").ledger() == 1

        def go_on(sink_id: SinkId, first: int) -> None:
            for epoch in range(first, first + 5):
                output = staged(place, [(epoch, "more")], sink=sink_id, joined_at=first - 1)
                _insist(lambda: place.open(sink_id, "append"), EpochNumber(epoch), output)

        with ThreadPoolExecutor(2) as pool:
            for each in (pool.submit(go_on, TABLE, 2), pool.submit(go_on, OTHER, 10)):
                each.result()
        more = [(epoch, "more") for epoch in range(2, 15)]
        assert sorted(place.read(TABLE)) == [(1, "a"), *more[:5]]
        assert sorted(place.read(OTHER)) == [(2, "b"), *more[8:]]
        assert place.open(TABLE, "append").ledger() == 6
        assert place.open(OTHER, "append").ledger() == 14

    # --- rows -------------------------------------------------------------------------------------

    def test_appended_rows_are_never_taken_together(self, place: SinkPlace) -> None:
        """Equal rows are two rows, in one file, in two files and in two epochs."""
        sink = place.open(TABLE, "append")
        sink.commit(EpochNumber(1), staged(place, [(1, "a"), (1, "a")], [(1, "a")]))
        sink.commit(EpochNumber(2), staged(place, [(1, "a"), (1, "b")]))
        assert sorted(place.read(TABLE)) == [(1, "a")] * 4 + [(1, "b")]

    def test_upsert_replaces_by_key(self, place: SinkPlace) -> None:
        """The last row of a key wins: in a file, over files in their order, over epochs."""
        sink = place.open(TABLE, "upsert")
        sink.commit(EpochNumber(1), staged(place, [(1, "a"), (2, "b"), (1, "c")], [(3, "d")]))
        assert sorted(place.read(TABLE)) == [(1, "c"), (2, "b"), (3, "d")]
        sink.commit(EpochNumber(2), staged(place, [(3, "x"), (4, "y")], [(3, "z")], [(1, "w")]))
        assert sorted(place.read(TABLE)) == [(1, "w"), (2, "b"), (3, "z"), (4, "y")]
        sink.commit(EpochNumber(2), staged(place, [(1, "never")]))
        assert sorted(place.read(TABLE)) == [(1, "w"), (2, "b"), (3, "z"), (4, "y")]

    def test_a_negative_weight_deletes_by_key(self, place: SinkPlace) -> None:
        """The last row of a key decides; a key that is not there is no error."""
        sink = place.open(TABLE, "upsert")
        before = [(key, "old") for key in range(6)]
        sink.commit(EpochNumber(1), staged(place, before, weights=[[1] * 6]))
        changes = [(0, "old"), (1, "old"), (1, "new"), (2, "x"), (2, "x"), (7, "n"), (8, "?")]
        weights = [-1, -1, 1, 1, -1, 1, -1]
        later = [(7, "n"), (3, "b")]
        output = staged(place, changes, later, weights=[weights, [-1, 1]])
        sink.commit(EpochNumber(2), output)
        assert sorted(place.read(TABLE)) == [(1, "new"), (3, "b"), (4, "old"), (5, "old")]
        gone = staged(place, [(77, ""), (78, "")], weights=[[-1, -1]])
        sink.commit(EpochNumber(3), gone)
        assert sink.ledger() == 3
        assert len(place.read(TABLE)) == 4
        sink.commit(EpochNumber(4), staged(place, [(1, ""), (3, "")], weights=[[-1, -1]]))
        assert sorted(place.read(TABLE)) == [(4, "old"), (5, "old")]

    @pytest.mark.parametrize("weights", [[1, -1], [1, 0], [2, 1]])
    def test_a_weight_that_cannot_be_applied_publishes_nothing(
        self, place: SinkPlace, weights: list[int]
    ) -> None:
        """What cannot be taken back must not be left out in silence."""
        sink = place.open(TABLE, "append")
        sink.commit(EpochNumber(1), staged(place, [(1, "a")], weights=[[1]]))
        with pytest.raises(WriteFailed, match="_weight"):
            sink.commit(EpochNumber(2), staged(place, [(2, "b"), (3, "c")], weights=[weights]))
        assert sink.ledger() == 1
        assert place.read(TABLE) == [(1, "a")]

    # --- what was staged is damaged ---------------------------------------------------------------

    @pytest.mark.parametrize("mode", ["append", "upsert"])
    @pytest.mark.parametrize("first", [True, False])
    def test_a_damaged_file_publishes_nothing(
        self, place: SinkPlace, mode: Mode, first: bool
    ) -> None:
        """Its own error comes through, and the epoch can be committed later."""
        sink = place.open(TABLE, mode)
        expected: list[Row] = []
        if not first:
            sink.commit(EpochNumber(1), staged(place, [(0, "0")]))
            expected = [(0, "0")]
        epoch = EpochNumber(1 if first else 2)
        good = staged(place, [(1, "a")], [(2, "b")], [(3, "c")])

        def read(file: FileEntry) -> bytes:
            if file == good.entry.files[2]:
                raise ChecksumMismatch(file.path, file.sha256, "0" * 64)
            return good.read(file)

        with pytest.raises(ChecksumMismatch) as caught:
            sink.commit(epoch, StagedOutput(good.entry, read))
        assert caught.value.path == good.entry.files[2].path
        assert sink.ledger() == (None if first else 1)
        assert place.read(TABLE) == expected
        sink.commit(epoch, good)
        assert sorted(place.read(TABLE)) == [*expected, (1, "a"), (2, "b"), (3, "c")]

    @pytest.mark.parametrize("kind", ["garbage", "empty", "cut", "fewer rows", "more rows"])
    def test_a_file_that_is_not_what_was_staged_publishes_nothing(
        self, place: SinkPlace, kind: str
    ) -> None:
        """Even when its bytes are the ones that were written."""
        sink = place.open(TABLE, "append")
        sink.commit(EpochNumber(1), staged(place, [(1, "a")]))
        whole = place.encode([(2, "b"), (3, "c")], None)
        data, rows = {
            "garbage": (b"garbage" * 99, 2),
            "empty": (b"", 0),
            "cut": (whole[:-30], 2),
            "fewer rows": (whole, 3),
            "more rows": (whole, 1),
        }[kind]
        output = _staged_bytes((place.encode([(9, "z")], None), data), (1, rows))
        with pytest.raises(LaminarError):
            sink.commit(EpochNumber(2), output)
        assert sink.ledger() == 1
        assert place.read(TABLE) == [(1, "a")]

    # --- several committers -----------------------------------------------------------------------

    @pytest.mark.parametrize("mode", ["append", "upsert"])
    def test_of_racing_committers_one_publishes(self, place: SinkPlace, mode: Mode) -> None:
        """From the first epoch on, when there is no table yet."""
        expected: list[Row] = []
        for epoch in range(1, 6):
            rows = [(epoch * 1000 + number, "x") for number in range(50)]
            output = staged(place, rows[:25], rows[25:])
            start = threading.Barrier(self.racers)

            def race(
                epoch: int = epoch, output: StagedOutput = output, start: threading.Barrier = start
            ) -> bool:
                sink = place.open(TABLE, mode)
                start.wait()
                try:
                    sink.commit(EpochNumber(epoch), output)
                except (RetryError, UnknownOutcome):
                    return False
                return True

            with ThreadPoolExecutor(self.racers) as pool:
                results = [
                    each.result() for each in [pool.submit(race) for _ in range(self.racers)]
                ]
            expected += rows
            assert any(results)
            assert place.open(TABLE, mode).ledger() == epoch
            assert sorted(place.read(TABLE)) == expected

    @pytest.mark.parametrize("mode", ["append", "upsert"])
    def test_a_committer_that_was_paused_changes_nothing(
        self, place: SinkPlace, mode: Mode
    ) -> None:
        """It read the ledger, slept, and wakes when others have gone on."""
        place.open(TABLE, mode).commit(EpochNumber(1), staged(place, [(1, "a")]))
        asleep, wake = threading.Event(), threading.Event()
        output = staged(place, [(2, "b")], [(3, "c")])

        def read(file: FileEntry) -> bytes:
            if file == output.entry.files[1]:
                asleep.set()
                assert wake.wait(60)
            return output.read(file)

        def sleepy() -> None:
            with suppress(LedgerMismatch, RetryError, UnknownOutcome):
                place.open(TABLE, mode).commit(EpochNumber(2), StagedOutput(output.entry, read))

        with ThreadPoolExecutor(1) as pool:
            sleeper = pool.submit(sleepy)
            assert asleep.wait(60)
            # A sink that holds a lock may let nobody else in meanwhile; then it is the others
            # that have to come again.
            with suppress(RetryError):
                sink = place.open(TABLE, mode)
                sink.commit(EpochNumber(2), output)
                sink.commit(EpochNumber(3), staged(place, [(3, "later"), (4, "d")]))
            wake.set()
            sleeper.result()
        sink = place.open(TABLE, mode)
        if sink.ledger() != 3:
            sink.commit(EpochNumber(2), output)
        sink.commit(EpochNumber(3), staged(place, [(3, "later"), (4, "d")]))
        kept = [(3, "c")] if mode == "append" else []
        assert sorted(place.read(TABLE)) == [(1, "a"), (2, "b"), *kept, (3, "later"), (4, "d")]

    # --- crashes ----------------------------------------------------------------------------------

    @pytest.mark.parametrize("seed", range(4))
    def test_a_random_history(self, place: SinkPlace, seed: int) -> None:
        """Commits, repeats, crashes, damaged files and wrong epochs, against a plain model."""
        dice = random.Random(seed)
        mode: Mode = "append" if seed % 2 else "upsert"
        model: list[Row] = []
        ledger = 0
        for turn in range(40):
            rows = [(dice.randrange(20), f"{turn}-{each}") for each in range(dice.randrange(6))]
            cut = dice.randrange(len(rows) + 1)
            output = staged(place, rows[:cut], rows[cut:])
            sink = place.open(TABLE, mode)
            match dice.choice(["commit", "commit", "repeat", "crash", "wrong"]):
                case "commit":
                    sink.commit(EpochNumber(ledger + 1), output)
                    ledger += 1
                    if mode == "append":
                        model += rows
                    else:
                        model = [*{**dict(model), **dict(rows)}.items()]
                case "repeat" if ledger:
                    sink.commit(EpochNumber(ledger), output)
                case "crash":
                    doomed = StagedOutput(output.entry, _crash_at(output, dice.randrange(2)))
                    with pytest.raises(Crash):
                        sink.commit(EpochNumber(ledger + 1), doomed)
                case "wrong":
                    with pytest.raises(LedgerMismatch):
                        sink.commit(EpochNumber(ledger + 2 + dice.randrange(3)), output)
            assert (place.open(TABLE, mode).ledger() or 0) == ledger
            assert sorted(place.read(TABLE)) == sorted(model)
        assert ledger > 5

    def test_a_committer_killed_between_two_files_has_published_nothing(
        self, place: SinkPlace
    ) -> None:
        """On the first epoch and on a later one, and the next committer is not kept out."""
        for epoch in (1, 2):
            child = _Child(place, _die_between_files, epoch)
            child.process.join(60)
            assert child.process.exitcode == -signal.SIGKILL
            sink = place.open(TABLE, "append")
            assert sink.ledger() == (epoch - 1 or None)
            assert len(place.read(TABLE)) == 2 * (epoch - 1)
            sink.commit(EpochNumber(epoch), staged(place, [(epoch, "a")], [(epoch, "b")]))
            assert sink.ledger() == epoch

    @pytest.mark.parametrize("mode", ["append", "upsert"])
    def test_a_killed_committer_leaves_whole_epochs(self, place: SinkPlace, mode: Mode) -> None:
        """SIGKILL at random moments: each epoch is there once, or not yet."""
        dice = random.Random(7)
        # How long a commit takes decides when to kill; it only steers, nothing depends on it.
        begun = time.perf_counter()
        place.open(TABLE, mode).commit(EpochNumber(1), _epoch_output(place, 1, self.rows))
        span = time.perf_counter() - begun
        ledger = 1
        for _ in range(self.kills):
            child = _Child(place, _commit_for_ever, mode, ledger + 1, self.rows)
            child.wait_until_ready()
            time.sleep(dice.uniform(0, 3 * span))
            assert child.process.is_alive(), "the committer died by itself"
            child.kill()
            found = place.open(TABLE, mode).ledger()
            assert found is not None
            assert found >= ledger
            ledger = found
            assert _epochs_of(place.read(TABLE), self.rows) == [*range(1, ledger + 1)]
        place.open(TABLE, mode).commit(
            EpochNumber(ledger + 1), _epoch_output(place, ledger + 1, self.rows)
        )
        assert _epochs_of(place.read(TABLE), self.rows) == [*range(1, ledger + 2)]

    @pytest.mark.parametrize("mode", ["append", "upsert"])
    def test_a_reader_never_sees_part_of_an_epoch(self, place: SinkPlace, mode: Mode) -> None:
        """Another process commits; whatever is read meanwhile is a row of whole epochs."""
        child = _Child(place, _commit_for_ever, mode, 1, self.rows)
        try:
            child.wait_until_ready()
            seen: list[int] = []
            deadline = time.monotonic() + 120
            while len({*seen}) < 5 and time.monotonic() < deadline:
                epochs = _epochs_of(place.read(TABLE), self.rows)
                assert epochs == [*range(1, len(epochs) + 1)]
                assert not seen or len(epochs) >= seen[-1]
                seen.append(len(epochs))
            assert child.process.is_alive(), "the committer died by itself"
        finally:
            child.kill()
        assert len({*seen}) >= 5


# --- staged output --------------------------------------------------------------------------------


def staged(
    place: SinkPlace,
    *files: Sequence[Row],
    sink: SinkId = TABLE,
    joined_at: int = 1,
    weights: Sequence[Sequence[int]] | None = None,
) -> StagedOutput:
    """What a sink is to commit: one file for each sequence of rows."""
    each_weights: Sequence[Sequence[int] | None] = weights or [None] * len(files)
    data = tuple(place.encode(rows, each) for rows, each in zip(files, each_weights, strict=True))
    return _staged_bytes(data, [len(rows) for rows in files], sink, joined_at)


def _staged_bytes(
    files: Files, rows: Sequence[int], sink: SinkId = TABLE, joined_at: int = 1
) -> StagedOutput:
    entries = tuple(
        FileEntry(
            path=layout.staged_path(sink, FileName(f"part-{number:05d}")),
            size_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            rows=count,
        )
        for number, (data, count) in enumerate(zip(files, rows, strict=True))
    )
    contents = {entry.path: data for entry, data in zip(entries, files, strict=True)}
    digest = hashlib.sha256(b"".join(files)).hexdigest()
    entry = SinkEntry(
        sink_id=sink, joined_at=EpochNumber(joined_at), files=entries, output_sha256=digest
    )
    return StagedOutput(entry, lambda file: contents[file.path])


def _crash_at(output: StagedOutput, place: int) -> Callable[[FileEntry], bytes]:
    def read(file: FileEntry) -> bytes:
        if file == output.entry.files[place]:
            raise Crash
        return output.read(file)

    return read


def _epoch_output(place: SinkPlace, epoch: int, rows: int) -> StagedOutput:
    """An epoch whose rows tell which epoch they belong to, in two files."""
    made = [(epoch * 1_000_000 + number, str(epoch)) for number in range(rows)]
    return staged(place, made[: rows // 2], made[rows // 2 :])


def _epochs_of(found: Sequence[Row], rows: int) -> list[int]:
    """The epochs that are there; each must be whole, and once."""
    by_epoch: dict[int, list[int]] = {}
    for key, value in found:
        by_epoch.setdefault(int(value), []).append(key)
    for epoch, keys in by_epoch.items():
        assert sorted(keys) == [epoch * 1_000_000 + number for number in range(rows)]
    return sorted(by_epoch)


def _insist(open_sink: Callable[[], Sink], epoch: EpochNumber, output: StagedOutput) -> None:
    """Commit as the runtime does: again after what may be tried again."""
    for _ in range(50):
        try:
            open_sink().commit(epoch, output)
        except (RetryError, UnknownOutcome):
            continue
        return
    raise AssertionError("fifty tries were not enough")


# --- committers that are killed -------------------------------------------------------------------


class _Child:
    """A process of its own, forked from a server that has imported the sink but never used it."""

    def __init__(self, place: SinkPlace, run: Callable[..., None], *arguments: object) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([type(place).__module__])
        self._ready, writer = context.Pipe(duplex=False)
        self.process: BaseProcess = context.Process(
            target=run, args=(place, writer, *arguments), daemon=True
        )
        self.process.start()
        writer.close()

    def wait_until_ready(self) -> None:
        """Until it is about to commit."""
        assert self._ready.poll(60), "the committer did not start"
        self._ready.recv()

    def kill(self) -> None:
        """End it at once, wherever it is."""
        self.process.kill()
        self.process.join(60)
        self._ready.close()
        assert self.process.exitcode == -signal.SIGKILL


def _commit_for_ever(
    place: SinkPlace, ready: Connection, mode: Mode, epoch: int, rows: int
) -> None:
    sink = place.open(TABLE, mode)
    output = _epoch_output(place, epoch, rows)
    ready.send("ready")
    while True:
        sink.commit(EpochNumber(epoch), output)
        epoch += 1
        output = _epoch_output(place, epoch, rows)


def _die_between_files(place: SinkPlace, _ready: Connection, epoch: int) -> None:
    output = staged(place, [(epoch, "a")], [(epoch, "b")])

    def read(file: FileEntry) -> bytes:
        if file == output.entry.files[1]:
            os.kill(os.getpid(), signal.SIGKILL)
        return output.read(file)

    place.open(TABLE, "append").commit(EpochNumber(epoch), StagedOutput(output.entry, read))
