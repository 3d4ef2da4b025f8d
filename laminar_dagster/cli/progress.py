"""Progress on standard error, when somebody is there to see it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from laminar_dagster.core.recovery import RecoveryProgress

_PHASES: Final = {
    "reading_manifest": "reading what is committed",
    "downloading_snapshots": "reading and checking",
    "restoring_state": "restoring",
    "seeking_sources": "asking the sources",
    "rebuilding": "running epochs again",
    "complete": "done",
}


@contextlib.contextmanager
def bytes_progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar that is told how many more bytes are done; safe to call from several threads."""
    if not sys.stderr.isatty():
        yield lambda _more: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(title, total=total)
        yield lambda more: bar.advance(task, more)


@contextlib.contextmanager
def objects_progress(searching: str, working: str) -> Iterator[Callable[[int, int], None]]:
    """A bar without an end at first; from the first report on, so many objects of so many."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("objects"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(searching, total=None)
        yield lambda done, total: bar.update(task, description=working, completed=done, total=total)


@contextlib.contextmanager
def steps_progress(steps: Sequence[str]) -> Iterator[Callable[[str], None]]:
    """A bar that is told each step as it begins, and anything else to show beside it."""
    if not sys.stderr.isatty():
        yield lambda _step: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    bar = Progress(
        SpinnerColumn(),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=len(steps))

        def show(step: str) -> None:
            done = steps.index(step) if step in steps else None
            bar.update(task, description=step, completed=done)

        yield show


@contextlib.contextmanager
def live_line() -> Iterator[Callable[[str], None]]:
    """A line that is replaced as often as it is called, with a spinner."""
    if not sys.stderr.isatty():
        yield lambda _text: None
        return
    from rich.console import Console
    from rich.text import Text

    # A handle of its own: while Spark starts, standard error leads elsewhere.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal:
        console = Console(file=terminal)
        with console.status(Text("")) as status:
            yield lambda text: status.update(Text(text))


@contextlib.contextmanager
def recovery_progress() -> Iterator[Callable[[RecoveryProgress], None]]:
    """A bar with the phase, the bytes and the time that is left."""
    if not sys.stderr.isatty():
        yield lambda _progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    # A handle of its own: while Spark starts, standard error leads elsewhere.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal:
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[told]}"),
            console=Console(file=terminal),
            transient=True,
        )
        with bar:
            task = bar.add_task(_PHASES["reading_manifest"], total=1.0, told="")
            yield lambda progress: bar.update(
                task,
                description=_PHASES[progress.phase],
                completed=progress.progress,
                told=describe_progress(progress),
            )


def describe_progress(progress: RecoveryProgress) -> str:
    """Bytes, and the time that is left as far as anybody can tell."""
    from datetime import timedelta

    from laminar_dagster.cli import wording

    if not progress.total_bytes:
        return ""
    told = f"{wording.size(progress.bytes_downloaded)} of {wording.size(progress.total_bytes)}"
    if progress.estimated_remaining:
        left = timedelta(seconds=round(progress.estimated_remaining))
        told += f", {wording.duration(left)} left"
    return told
