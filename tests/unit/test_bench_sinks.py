"""The figures of the sinks: a row that is missing, or one too many, is no figure."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.__main__ import GROUPS
from bench.kafka import peers
from bench.kafka.contest import Entrant
from bench.measure import QUICK, Effort
from bench.sinks import engines, trial
from bench.sinks.memory import bytes_per_row
from bench.sinks.place import Peer
from bench.sinks.rows import ROWS, SINK, as_tuples, flat_rows, staged
from bench.sinks.sqlite import SqlitePlace
from bench.sinks.writer import EpochWriter
from bench.surroundings import Surroundings
from laminar_dagster.core.transactions import Outcome

EFFORT = Effort(rounds=2, batch_seconds=0.0, epochs=2, jobs=1, scale=0.01)


@pytest.fixture
def place(tmp_path: Path) -> SqlitePlace:
    return SqlitePlace(tmp_path / "bench.db")


def test_every_row_has_a_key_of_its_own_and_is_the_same_every_time() -> None:
    rows = flat_rows(1_000)
    assert rows.equals(flat_rows(1_000))
    assert rows.column_names == ["id", "at", "page", "amount", "n"]
    assert len({row[0] for row in as_tuples(rows)}) == 1_000


def test_epochs_follow_each_other(place: SqlitePlace) -> None:
    output = staged(flat_rows(10))
    writer = EpochWriter(place.sink())
    for epoch in (1, 2):
        record = writer.commit(output)
        assert (record.epoch, record.rows, record.outcome) == (epoch, 10, Outcome.COMMITTED)
    # Somebody else goes on where it ended.
    assert EpochWriter(place.sink()).commit(output).epoch == 3
    assert place.count(SINK) == 30


def test_an_epoch_that_fails_at_its_end_is_rolled_back(place: SqlitePlace) -> None:
    output = staged(flat_rows(10))
    writer = EpochWriter(place.sink())
    writer.commit(output)
    assert writer.abort(output) > 0
    assert place.count(SINK) == 10
    assert writer.commit(output).epoch == 2


@pytest.mark.slow
def test_a_sink_has_all_its_figures(place: SqlitePlace) -> None:
    figures = {each.name: each for each in trial.hold(place, EFFORT)}
    kinds = [name.removeprefix("sink-sqlite/append/") for name in figures]
    assert kinds == [
        *("rate", "time", "commit", "overhead", "begin", "begin/bare"),
        *("abort", "abort/large", "memory"),
    ]
    rate, time = figures["sink-sqlite/append/rate"], figures["sink-sqlite/append/time"]
    assert rate.sample is not None
    assert time.sample is not None
    assert len(rate.sample.values) == EFFORT.epochs
    assert rate.peer_sample is not None
    slower = zip(rate.peer_sample.values, rate.sample.values, strict=True)
    assert time.sample.values == pytest.approx([plain / ours for plain, ours in slower])
    assert all(each.sample is not None for each in figures.values())
    # Ours and the plain client's: large epochs, small ones, and those that memory was measured of.
    large, small = EFFORT.scaled(200_000), 1_000
    times = EFFORT.epochs + 1
    written = times * (large + small) + small + large
    assert place.count("plain") == written
    assert place.count(SINK) == written + small


class Forgetful(SqlitePlace):
    """Its plain client leaves rows out."""

    def peers(self, rows: object) -> tuple[Peer, ...]:
        return super().peers(flat_rows(7))


def test_a_peer_that_leaves_rows_out_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="plain holds 21 rows instead of 6000"):
        list(trial.hold(Forgetful(tmp_path / "bench.db"), EFFORT))


def test_memory_is_that_of_one_epoch(place: SqlitePlace) -> None:
    EpochWriter(place.sink()).commit(staged(flat_rows(1)))
    rows = 50_000
    found = bytes_per_row(place, rows)
    # The rows of a batch become Python's objects; all of them at once would be ten times as much.
    assert 0 < found < 2_000
    assert place.count(SINK) == rows + 1_001


def fake_engine(tmp_path: Path, *body: str) -> Entrant:
    """A process that answers to the protocol, and does what it is told to in a line each."""
    script = tmp_path / "engine.py"
    lines = ["import json, sys", 'print(json.dumps("ready"), flush=True)']
    lines += ["for line in sys.stdin:", *(f"    {line}" for line in body)]
    script.write_text("\n".join(lines))

    @dataclass(frozen=True, slots=True)
    class Program(peers.Program):
        def command(self, cores: int) -> list[str]:
            return [sys.executable, str(script), str(cores)]

    return Entrant("engine", "An engine", lambda: Program("", Path(sys.executable), {}))


INSERT = (
    "import sqlite3; job = json.loads(line); base = sqlite3.connect(job['servers'])",
    "base.executemany('INSERT INTO engine (id) VALUES (?)', [(n,) for n in range({rows})])",
    "base.commit(); base.close()",
    "print(0.5, flush=True); print('[]', flush=True)",
)


def test_an_engine_takes_turns_with_the_sink(place: SqlitePlace, tmp_path: Path) -> None:
    rows = EFFORT.scaled(ROWS)
    entrant = fake_engine(tmp_path, *(line.format(rows=rows) for line in INSERT))
    target = engines.Target(place, str(place.path), "engine", {})
    with Surroundings(EFFORT) as surroundings:
        (figure,) = engines.beside(entrant, target, surroundings)
    assert figure.name == "sink-sqlite/append/rate/engine"
    assert figure.peer_sample is not None
    assert figure.peer_sample.values == (rows / 0.5,) * EFFORT.epochs
    assert place.count("engine") == rows * (EFFORT.epochs + 1)


def test_an_engine_that_leaves_rows_out_has_no_figure(place: SqlitePlace, tmp_path: Path) -> None:
    entrant = fake_engine(tmp_path, *(line.format(rows=1) for line in INSERT))
    target = engines.Target(place, str(place.path), "engine", {})
    with Surroundings(EFFORT) as surroundings:
        (figure,) = engines.beside(entrant, target, surroundings)
    assert figure.sample is None
    assert "engine holds 3 rows instead of 6000" in figure.note


def test_an_engine_that_ends_has_no_figure(place: SqlitePlace, tmp_path: Path) -> None:
    entrant = fake_engine(tmp_path, "sys.exit('out of memory')")
    target = engines.Target(place, str(place.path), "engine", {})
    with Surroundings(EFFORT) as surroundings:
        (figure,) = engines.beside(entrant, target, surroundings)
    assert figure.sample is None
    assert "An engine ended with 1" in figure.note


def test_each_sink_is_measured_by_itself() -> None:
    assert [each.name for each in GROUPS["sinks"]] == [
        "sink-postgres",
        "sink-mysql",
        "sink-kafka",
        "sink-delta",
        "sink-sqlite",
    ]
    assert QUICK.scaled(200_000) < 10_000
