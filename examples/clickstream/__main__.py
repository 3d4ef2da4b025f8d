"""The program of `make demo`."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

import click
import msgspec
from rich.console import Console

from examples.clickstream import generator, report
from examples.clickstream.answer import SINKS, Answer
from examples.clickstream.generator import FEWEST_EVENTS, MOST_EVENTS, Written
from examples.clickstream.story import DemoFailed, Director, Moment
from examples.clickstream.watch import PIPELINE, Watch, delta_epochs

_HOME: Final = Path(".laminar") / PIPELINE
_WIDTH: Final = 110
_FEWEST_EPOCHS: Final = 4


class Record(msgspec.Struct, frozen=True):
    """What a later ``--check`` needs to know of a run."""

    written: Written
    cut_epoch: int | None


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything is."""

    project: Path

    @property
    def home(self) -> Path:
        """All that the demo makes."""
        return self.project / _HOME

    @property
    def input(self) -> Path:
        """The servers' files."""
        return self.home / "input"

    @property
    def output(self) -> Path:
        """What the sinks hold."""
        return self.home / "output"

    @property
    def record(self) -> Path:
        """Of the run."""
        return self.home / "demo.json"


@click.command()
@click.option(
    "--events",
    type=click.IntRange(FEWEST_EVENTS, MOST_EVENTS),
    default=1_000_000,
    show_default=True,
    help="How many lines to write, over all servers.",
)
@click.option("--twice", is_flag=True, help="Kill a worker in the middle of a Spark job as well.")
@click.option("--check", is_flag=True, help="Only compare what the last demo left.")
@click.option(
    "--project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="The folder with dbt_like_configs/.  [default: here]",
)
@click.option("--svg", type=click.Path(path_type=Path), help="Also draw the output into this file.")
def main(events: int, twice: bool, check: bool, project: Path, svg: Path | None) -> None:
    """Write a clickstream, kill its worker in a commit, recover, and compare with the answer."""
    is_terminal = sys.stdout.isatty() and svg is None
    # A pipe or a log has no width; a table that is wrapped for 80 columns is hard to read.
    console = Console(
        highlight=False, record=svg is not None, width=None if sys.stdout.isatty() else _WIDTH
    )
    for number in (signal.SIGTERM, signal.SIGHUP):
        # `nohup` has the second one ignored.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)
    places = Places(project)
    begun = time.monotonic()
    try:
        if check:
            is_right = _check_again(console, places)
        else:
            moments: tuple[Moment, ...] = ("computing", "committing") if twice else ("committing",)
            is_right = _demo(console, places, events, moments, is_terminal, begun)
    except DemoFailed as error:
        console.print("[bold red]The demo failed:[/] ", end="")
        console.print(str(error), markup=False)
        is_right = False
    except KeyboardInterrupt:
        console.print("\nStopped. No process is left; `make demo` begins anew.")
        sys.exit(130)
    if svg:
        # Without the fonts that it would fetch from elsewhere.
        picture = re.sub(
            r"@font-face \{.*?\}\s*", "", console.export_svg(title="make demo"), flags=re.S
        )
        svg.write_text(picture, "utf-8")
    sys.exit(0 if is_right else 1)


def _kills(count: int) -> str:
    return f"{count} kill" if count == 1 else f"{count} kills"


def _demo(
    console: Console,
    places: Places,
    events: int,
    moments: tuple[Moment, ...],
    is_terminal: bool,
    begun: float,
) -> bool:
    watch = Watch(places.project)
    epochs = -(-events // watch.max_records)
    if epochs < _FEWEST_EPOCHS:
        raise DemoFailed(
            f"{events:,} events are {epochs} epochs of {watch.max_records:,}, and it takes"
            f" {_FEWEST_EPOCHS}: give more --events, or lower max_records in pipeline.yml"
        )
    shutil.rmtree(places.home, ignore_errors=True)
    tell = _clock(console, begun)
    console.print(
        f"[bold]{events:,} events, {epochs} epochs, three sinks in two systems,"
        f" {_kills(len(moments))}.[/]"
    )
    with _status(console, is_terminal) as show:
        show("writing the input")
        written = generator.write(
            places.input, events, progress=lambda server: show(f"writing server-{server}.ndjson")
        )
        size = sum(file.stat().st_size for file in places.input.iterdir()) / 2**20
        tell(f"wrote {len(generator.SERVERS)} files, {size:,.0f} MiB, to {_HOME}/input")
        director = Director(
            places.project,
            places.home,
            places.output / "clicks.db",
            epochs,
            moments,
            tell,
            show,
        )
        story = director.run()
        cut = story.kill_in("committing")
        record = Record(written, cut.look.epoch if cut else None)
        places.record.write_bytes(msgspec.json.encode(record))
        tell("nothing is left to read")
        manifests = watch.manifests()
        console.print()
        for block in (report.survived(story, written), report.epochs(story, manifests)):
            console.print(block)
            console.print()
        console.print(report.throughput(story, manifests))
        console.print()
        show("computing the answer without the engine, and comparing")
        is_right = _compare(console, places, watch, record)
    if is_right:
        console.print(
            f"[bold green]Exactly once:[/] every row of both systems is right, after"
            f" {_kills(len(story.kills))}, in {time.monotonic() - begun:.0f} s, all included."
        )
        _look_around(console, cut.look.epoch if cut else 1)
    return is_right


def _check_again(console: Console, places: Places) -> bool:
    if not places.record.exists():
        raise DemoFailed(f"there is no {_HOME}/{places.record.name}: run `make demo` first")
    record = msgspec.json.decode(places.record.read_bytes(), type=Record)
    is_right = _compare(console, places, Watch(places.project), record)
    if is_right:
        console.print("[bold green]Exactly once:[/] every row of both systems is right.")
    return is_right


def _compare(console: Console, places: Places, watch: Watch, record: Record) -> bool:
    """Rows, counts and ledgers; what differs is printed."""
    answer = Answer(places.input)
    manifests = watch.manifests()
    cut = manifests[record.cut_epoch - 1] if record.cut_epoch else None
    compared = [
        answer.compare(places.output, sink, watch.staged(cut, sink) if cut else None)
        for sink in SINKS
    ]
    counts, is_counted = report.accounting(report.total(manifests), answer.counts(), record.written)
    console.print(counts)
    console.print()
    console.print(report.comparison(compared, record.cut_epoch))
    console.print()
    report.differences(console, compared)
    problems = [] if is_counted else ["the counts differ"]
    problems += [f"{each.sink} differs from the answer" for each in compared if not each.is_equal]
    problems += _problems_with_ledgers(places, watch, len(manifests))
    for problem in problems:
        console.print(f"[bold red]WRONG:[/] {problem}")
    return not problems


def _problems_with_ledgers(places: Places, watch: Watch, last: int) -> Iterator[str]:
    look = watch.look()
    if look.confirmed != last or look.planned:
        yield f"the store is at epoch {look.confirmed}, and its manifests end with {last}"
    for sink, stands in watch.ledgers():
        if stands != last:
            yield f"the ledger of {sink} is at epoch {stands}, and the last one is {last}"
    history = delta_epochs(places.output / "page_minutes", "minutes_lake")
    if history != list(range(1, last + 1)):
        yield f"the history of minutes_lake should name epochs 1 to {last} once each: {history}"


def _look_around(console: Console, epoch: int) -> None:
    console.print("\n[bold]Look around[/]")
    java = os.environ.get("JAVA_HOME")
    if java and shutil.which("java") is None:
        console.print(f"  export JAVA_HOME={java}")
    for command, meaning in (
        (f"laminar status {PIPELINE}", "how far it is, what waits, what the sinks hold"),
        (f"laminar epochs list {PIPELINE}", "every epoch"),
        (f"laminar epochs show {epoch} {PIPELINE}", "all of the one that was cut in its commit"),
        (f"laminar state show page_minutes {PIPELINE}", "the minutes that are still open"),
        (f"laminar dead-letters list {PIPELINE}", "the lines that were set aside"),
        (f"laminar verify {PIPELINE}", "run the last epoch again, compare every hash"),
        ("dagster dev", "its checkpoints in the browser"),
    ):
        console.print(f"  .venv/bin/{command:<47} [dim]{meaning}[/]")
    console.print(f"  {'dbt_like_configs/clickstream/':<57} [dim]the pipeline: YAML and SQL[/]")


def _clock(console: Console, begun: float) -> Callable[[str], None]:
    def tell(line: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - begun), 60)
        console.print(f"  [dim]{minutes}:{seconds:02}[/]  {line}")

    return tell


@contextlib.contextmanager
def _status(console: Console, is_terminal: bool) -> Iterator[Callable[[str], None]]:
    """A line that says what goes on, where somebody can see it change."""
    if not is_terminal:
        yield lambda _line: None
        return
    with console.status("") as status:
        yield lambda line: status.update(line)


def _end(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
