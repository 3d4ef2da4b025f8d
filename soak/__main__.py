"""The program of `make soak`."""

from __future__ import annotations

import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

import click
from confluent_kafka import KafkaException
from deltalake import DeltaTable
from rich.console import Console
from rich.live import Live
from rich.text import Text

from examples.kafka_orders.failure import DemoFailed
from examples.kafka_orders.home import FolderRefused, Home
from examples.kafka_orders.topic import TopicView
from examples.kafka_orders.watch import Watch
from infra.errors import ServiceError
from soak import verdict
from soak.run import Soak
from soak.schedule import schedule
from soak.stage import set_up
from soak.verdict import Verdict

_HOME: Final = Path(".laminar") / "soak"
_WRONG, _BAD_USAGE, _TRY_AGAIN, _INTERRUPTED = 1, 2, 75, 130


@click.command()
@click.option(
    "--minutes",
    type=click.FloatRange(0.1, 24 * 60),
    default=10,
    show_default=True,
    help="For how long faults strike, from the first epoch on.",
)
@click.option("--seed", type=int, help="What happens when; without, one is drawn and printed.")
@click.option(
    "--rate",
    type=click.IntRange(100, 100_000),
    default=2_000,
    show_default=True,
    help="Orders a second.",
)
@click.option("--keep", is_flag=True, help="Leave the folder, to look around in it.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=_HOME,
    show_default=True,
    help="Where everything goes.",
)
def main(minutes: float, seed: int | None, rate: int, keep: bool, folder: Path) -> None:
    """Kafka to state to PostgreSQL, Kafka and Delta, with random faults, beside the answer."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)
    seed = random.randrange(1_000_000) if seed is None else seed
    again = f"make soak SOAK_ARGS='--seed {seed} --minutes {minutes:g} --rate {rate}'"
    console.print(f"Seed {seed}. The same again: {again}")
    home = Home(folder)
    try:
        with home.held():
            home.clear()
            found = _soak(console, home, seed, minutes * 60, rate)
            if not keep and not found.problems:
                home.remove()
    except FolderRefused as error:
        _fail(console, str(error), _BAD_USAGE)
    except (ServiceError, KafkaException) as error:
        _fail(console, f"{error}\nThe logs are in {folder}. {again}", _TRY_AGAIN)
    except DemoFailed as error:
        _fail(console, f"{error}\nThe logs are in {folder}. {again}", _WRONG)
    except KeyboardInterrupt:
        console.print("\nStopped. No process is left.")
        sys.exit(_INTERRUPTED)
    if found.problems:
        _fail(console, f"the sinks are in {folder}. {again}", _WRONG)


def _soak(console: Console, home: Home, seed: int, seconds: float, rate: int) -> Verdict:
    console.print("Starting Kafka and PostgreSQL ...")
    with set_up(home) as stage, closing(TopicView(stage.servers)) as view:
        watch = Watch(home.folder)
        with _live(console, seconds) as update:
            soak = Soak(
                stage=stage,
                watch=watch,
                rate=rate,
                seconds=seconds,
                strikes=schedule(seed, seconds),
                tell=console.print,
                update=update,
            )
            sent = soak.run()
        console.print("Computing the answer without the engine, and comparing ...\n")
        view.copy(home.topic)
        sinks = {
            "PostgreSQL": stage.postgres_rows(),
            "Kafka": stage.kafka_rows(),
            "Delta": DeltaTable(home.folder / "output" / "product_sales").to_pyarrow_table(),
        }
        found = verdict.judge(home.topic, sent, watch.manifests(), sinks)
    verdict.show(console, found)
    if not found.problems:
        told = ", ".join(f"{count}x {name}" for name, count in Counter(soak.struck).items())
        console.print(
            f"\n[bold green]Every sink equals the answer[/] over {sent.records:,} orders in"
            f" {found.epochs} epochs, after {len(soak.struck)} faults: {told or 'none'}."
        )
    return found


@contextmanager
def _live(console: Console, seconds: float) -> Iterator[Callable[[Soak], None]]:
    """A line that tells how it is going, where there is a terminal."""
    if not console.is_terminal:
        yield lambda _soak: None
        return
    with Live(console=console, refresh_per_second=4) as live:
        yield lambda soak: live.update(
            Text(
                f"{soak.passed:6.0f} of {seconds:.0f} s   epoch {soak.confirmed}"
                f"   {len(soak.struck)} faults"
            )
        )


def _fail(console: Console, told: str, code: int) -> NoReturn:
    console.print("[bold red]error:[/] ", end="")
    console.print(told, markup=False, soft_wrap=True)
    sys.exit(code)


def _end(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
