"""The part of the ``Sink`` contract about concurrent, paused and killed committers."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import ClassVar

import pytest

from laminar_dagster.core.errors import FencedError, LedgerMismatch, RetryError, UnknownOutcome
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import FileEntry
from laminar_dagster.core.ports import StagedOutput
from laminar_dagster.testing.crash import Crash
from laminar_dagster.testing.sink_places import (
    TABLE,
    Mode,
    Row,
    SinkPlace,
    crash_at,
    epoch_output,
    epochs_of,
    staged,
)


class CommittersContract:
    """Tests with racing, paused and killed committers.

    Attributes:
        racers: How many committers race for one epoch.
        kills: How many committers are killed, each at a random moment.
        rows: How many rows each epoch has that such a committer writes.
    """

    racers: ClassVar[int] = 6
    kills: ClassVar[int] = 30
    rows: ClassVar[int] = 3000

    @pytest.mark.parametrize("mode", ["append", "upsert"])
    def test_of_racing_committers_one_publishes(self, place: SinkPlace, mode: Mode) -> None:
        """Including the first epoch, when the table does not exist yet."""
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
                except (RetryError, UnknownOutcome, FencedError):
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
            with suppress(LedgerMismatch, RetryError, UnknownOutcome, FencedError):
                place.open(TABLE, mode).commit(EpochNumber(2), StagedOutput(output.entry, read))

        with ThreadPoolExecutor(1) as pool:
            sleeper = pool.submit(sleepy)
            assert asleep.wait(60)
            # A sink whose paused committer holds a lock may refuse these commits; they are
            # repeated below.
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
                    doomed = StagedOutput(output.entry, crash_at(output, dice.randrange(2)))
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
        """After SIGKILL at a random moment, each epoch is published once or not at all."""
        dice = random.Random(7)
        # The duration of a commit scales the delay before a kill; no assertion depends on it.
        begun = time.perf_counter()
        place.open(TABLE, mode).commit(EpochNumber(1), epoch_output(place, 1, self.rows))
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
            assert epochs_of(place.read(TABLE), self.rows) == [*range(1, ledger + 1)]
        place.open(TABLE, mode).commit(
            EpochNumber(ledger + 1), epoch_output(place, ledger + 1, self.rows)
        )
        assert epochs_of(place.read(TABLE), self.rows) == [*range(1, ledger + 2)]

    @pytest.mark.parametrize("mode", ["append", "upsert"])
    def test_a_reader_never_sees_part_of_an_epoch(self, place: SinkPlace, mode: Mode) -> None:
        """While another process commits, every read returns whole epochs, without gaps."""
        child = _Child(place, _commit_for_ever, mode, 1, self.rows)
        try:
            child.wait_until_ready()
            seen: list[int] = []
            deadline = time.monotonic() + 120
            while len({*seen}) < 5 and time.monotonic() < deadline:
                epochs = epochs_of(place.read(TABLE), self.rows)
                assert epochs == [*range(1, len(epochs) + 1)]
                assert not seen or len(epochs) >= seen[-1]
                seen.append(len(epochs))
            assert child.process.is_alive(), "the committer died by itself"
        finally:
            child.kill()
        assert len({*seen}) >= 5


class _Child:
    """A child process, forked from a fork server that imported the sink but never used it."""

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
        """Wait until the child is about to commit."""
        assert self._ready.poll(60), "the committer did not start"
        self._ready.recv()

    def kill(self) -> None:
        """Kill the child with SIGKILL and wait for its end."""
        self.process.kill()
        self.process.join(60)
        self._ready.close()
        assert self.process.exitcode == -signal.SIGKILL


def _commit_for_ever(
    place: SinkPlace, ready: Connection, mode: Mode, epoch: int, rows: int
) -> None:
    sink = place.open(TABLE, mode)
    output = epoch_output(place, epoch, rows)
    ready.send("ready")
    while True:
        sink.commit(EpochNumber(epoch), output)
        epoch += 1
        output = epoch_output(place, epoch, rows)


def _die_between_files(place: SinkPlace, _ready: Connection, epoch: int) -> None:
    output = staged(place, [(epoch, "a")], [(epoch, "b")])

    def read(file: FileEntry) -> bytes:
        if file == output.entry.files[1]:
            os.kill(os.getpid(), signal.SIGKILL)
        return output.read(file)

    place.open(TABLE, "append").commit(EpochNumber(epoch), StagedOutput(output.entry, read))
