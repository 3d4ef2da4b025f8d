"""A cold run: what one epoch costs from nothing to the last process gone, beside a bare Spark.

Each turn is a new process tree on a new folder: ``laminar run --epochs 1``, with and without the
archive of Spark's classes, and a program with Structured Streaming as a user writes it
(``availableNow``, the same files, Parquet out). What all of them have in common is the floor: a
session of Spark that counts one row.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from bench.click_jobs import lay_out
from bench.clickstream import Clicks
from bench.cold_shapes import FLOOR, SHAPES
from bench.figures import Benchmark, Figure
from bench.kafka import chart
from bench.measure import Sample
from bench.process_tree import TreeTime, measure_tree
from bench.sql_queries import Family
from bench.surroundings import Surroundings
from laminar_dagster.spark.class_archive import COMPILER, VARIABLE, make_archive

_NAME: Final = "cold"
_SIZES: Final = (1_000, 200_000)
_SECONDS: Final = 1_200
_KEYS: Final = 2_000
_OURS: Final = "laminar run"
_UNPREPARED: Final = "laminar run, no archive"
_PEER: Final = "Structured Streaming"
_BARE: Final = "a bare Spark session"
_COMMAND: Final = "from laminar_dagster.cli.main import main; main()"
_IMAGES: Final = Path("docs/images")
_DRAFTS: Final = Path(".laminar/charts")
_PANELS: Final = (
    chart.Panel("processor seconds (less is better)", digits=1),
    chart.Panel("of them in Java", digits=1),
    chart.Panel("seconds on the wall", digits=1),
)

Turns = dict[str, list[TreeTime]]


def cold_runs(surroundings: Surroundings) -> Iterator[Figure]:
    """Every shape and size in turn."""
    make_archive(_environment({}))
    floor = [_bare(surroundings) for _ in range(surroundings.effort.jobs)]
    yield Figure(f"{_NAME}/floor", f"{_BARE}: processor seconds", _processor(floor))
    bars = [_bar(_BARE, floor)]
    for size in _SIZES:
        folder = surroundings.folder()
        files = Clicks(size, _SECONDS, min(size, _KEYS)).write(folder, 0)
        for family in SHAPES:
            turns = _turns(surroundings, family, files)
            yield from _figures(family, size, turns, floor)
            bars += [
                _bar(f"{family.name}, {size:,}: {who}", times, is_own=who != _PEER)
                for who, times in turns.items()
            ]
    _draw(surroundings, bars)


BENCHMARK: Final = Benchmark(_NAME, "a cold run of one epoch, all processes", cold_runs)


def _turns(surroundings: Surroundings, family: Family, files: Sequence[Path]) -> Turns:
    """Every contestant, once in each turn."""
    nowhere = str(surroundings.folder())
    contestants: Mapping[str, Callable[[], TreeTime]] = {
        _OURS: partial(_own, surroundings, family, files, {}),
        _UNPREPARED: partial(_own, surroundings, family, files, {"LAMINAR_CACHE": nowhere}),
        _PEER: partial(_peer, surroundings, family, files),
    }
    turns: Turns = {who: [] for who in contestants}
    order = list(contestants)
    for _ in range(surroundings.effort.jobs):
        for who in order:
            turns[who].append(contestants[who]())
        # Whoever goes first finds caches cold.
        order.reverse()
    return turns


def _own(
    surroundings: Surroundings, family: Family, files: Sequence[Path], more: Mapping[str, str]
) -> TreeTime:
    root = surroundings.folder()
    _offer(files, lay_out(root, "1ms", family.sql, family.sink, family.files))
    command = [sys.executable, "-c", _COMMAND, "run", "--epochs", "1", "--no-dagster"]
    found = measure_tree(command, root, _environment(more))
    with closing(sqlite3.connect(root / "out.db")) as database:
        if not database.execute("SELECT count(*) FROM pages").fetchone()[0]:
            raise RuntimeError(f"{family.name} put out no row")
    return found


def _peer(surroundings: Surroundings, family: Family, files: Sequence[Path]) -> TreeTime:
    root = surroundings.folder()
    folder = root / "input"
    folder.mkdir()
    _offer(files, folder)
    found = _python(root, family.name, str(folder), str(root / "out"))
    if not list((root / "out").rglob("*.parquet")):
        raise RuntimeError(f"{family.name} of {_PEER} put out no row")
    return found


def _bare(surroundings: Surroundings) -> TreeTime:
    return _python(surroundings.folder(), FLOOR)


def _python(root: Path, *arguments: str) -> TreeTime:
    command = [sys.executable, "-m", "bench.cold_peer", *arguments]
    return measure_tree(command, root, _environment({"PYTHONPATH": os.getcwd()}))


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """This one's, without what would decide how a Java starts."""
    ours = ("DAGSTER_HOME", VARIABLE, COMPILER)
    given = {name: value for name, value in os.environ.items() if name not in ours}
    return {**given, "PYSPARK_PYTHON": sys.executable, **more}


def _offer(files: Sequence[Path], folder: Path) -> None:
    for file in files:
        os.link(file, folder / file.name)


def _processor(times: Sequence[TreeTime]) -> Sample:
    return Sample(tuple(each.processor for each in times))


def _figures(
    family: Family, size: int, turns: Turns, floor: Sequence[TreeTime]
) -> Iterator[Figure]:
    name = f"{_NAME}/{family.name}-{size}"
    own = turns[_OURS]
    yield Figure(
        name,
        f"{family.what}, {size:,} records: processor seconds of all processes",
        _processor(own),
        peer=_PEER,
        peer_sample=_processor(turns[_PEER]),
        note=_in_words(own),
    )
    yield Figure(
        f"{name}/no-archive",
        "the same before `laminar warm-up`",
        _processor(turns[_UNPREPARED]),
        peer=_BARE,
        peer_sample=_processor(floor),
        note=_in_words(turns[_UNPREPARED]),
    )
    yield Figure(
        f"{name}/wall",
        "seconds on the wall, until the command has ended",
        Sample(tuple(each.wall for each in own)),
        peer=_PEER,
        peer_sample=Sample(tuple(each.wall for each in turns[_PEER])),
    )


def _in_words(times: Sequence[TreeTime]) -> str:
    parts = {
        "the command": [each.driver for each in times],
        "Java": [each.java for each in times],
        "Python workers": [each.others for each in times],
    }
    return ", ".join(f"{part} {Sample(tuple(each)).median:.1f} s" for part, each in parts.items())


def _bar(label: str, times: Sequence[TreeTime], *, is_own: bool = False) -> chart.Bar:
    kinds = (
        [each.processor for each in times],
        [each.java for each in times],
        [each.wall for each in times],
    )
    return chart.Bar(label, tuple(Sample(tuple(kind)).median for kind in kinds), is_own)


def _draw(surroundings: Surroundings, bars: Sequence[chart.Bar]) -> None:
    folder = _IMAGES if surroundings.effort.scale == 1 else _DRAFTS
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_NAME}.svg"
    subtitle = "one epoch, or one run until nothing is left, from no process to none"
    path.write_text(chart.draw("A cold run", subtitle, _PANELS, bars))
    print(f"Drawn: {path}", flush=True)
