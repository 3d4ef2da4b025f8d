"""The program of `make kafka-demo`."""

from __future__ import annotations

import io
import json
import re
import shutil
import signal
import sys
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

import click
from confluent_kafka import KafkaException
from rich.console import Console
from rich.syntax import Syntax

from examples.kafka_orders import topic, verdict
from examples.kafka_orders.board import Board
from examples.kafka_orders.failure import DemoFailed
from examples.kafka_orders.home import FolderRefused, Home
from examples.kafka_orders.processes import temporary_files_in
from examples.kafka_orders.screen import LiveScreen, Photographed, PlainLines, Screen, frame
from examples.kafka_orders.story import Director
from examples.kafka_orders.topic import TopicView
from examples.kafka_orders.verdict import Record, Verdict
from examples.kafka_orders.watch import PIPELINE, Watch
from infra import java
from infra.cache import cache_dir
from infra.errors import ServiceFailed, ServiceUnavailable
from infra.kafka import Kafka

_HOME: Final = Path(".laminar") / "kafka-demo"
_WIDTH: Final = 110
_WRONG, _BAD_USAGE, _TRY_AGAIN, _INTERRUPTED = 1, 2, 75, 130


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line asks for."""

    rate: int
    seconds: int
    kills: int
    svg: Path | None


@click.command()
@click.option(
    "--rate",
    type=click.IntRange(100, 100_000),
    default=20_000,
    show_default=True,
    help="Orders a second.",
)
@click.option(
    "--seconds",
    type=click.IntRange(1, 3600),
    default=45,
    show_default=True,
    help="How long orders are sent after the first epoch, or until the last kill is survived.",
)
@click.option(
    "--kills",
    type=click.IntRange(0, 5),
    default=1,
    show_default=True,
    help="How often the pipeline is killed on the way.",
)
@click.option("--keep", is_flag=True, help="Leave the folder, to look around in it.")
@click.option("--check", is_flag=True, help="Only compare what a demo with --keep has left.")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON; news on stderr.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=_HOME,
    show_default=True,
    help="Where everything goes.",
)
@click.option("--svg", type=click.Path(path_type=Path), help="Also draw the screen into this file.")
def main(
    rate: int,
    seconds: int,
    kills: int,
    keep: bool,
    check: bool,
    as_json: bool,
    folder: Path,
    svg: Path | None,
) -> None:
    """Kafka in: a broker, a producer, a pipeline that is killed, its lag, and the answer."""
    stream = sys.stderr if as_json else sys.stdout
    # A pipe or a log has no width; a table that is wrapped for 80 columns is hard to read.
    console = Console(file=stream, highlight=False, width=None if stream.isatty() else _WIDTH)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # `nohup` has the second one ignored.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)
    home = Home(folder)
    try:
        with home.held():
            if check:
                found = verdict.judge(folder, home.read_record())
            else:
                found = _demo(console, home, Wishes(rate, seconds, kills, svg), keep)
            verdict.show(console, found)
            if keep and not check:
                _look_around(console, folder)
    except FolderRefused as error:
        _fail(console, as_json, str(error), _BAD_USAGE)
    except ServiceUnavailable as error:
        _fail(console, as_json, f"{error}\n{_advice()}", _code_of_absence())
    except KafkaException as error:
        told = f"the broker does not answer: {error}\nThe logs are in {folder}."
        _fail(console, as_json, told, _TRY_AGAIN)
    except (DemoFailed, ServiceFailed) as error:
        _fail(console, as_json, f"{error}\nThe logs are in {folder}.", _WRONG)
    except KeyboardInterrupt:
        console.print("\nStopped. No process is left; `make kafka-demo` begins anew.")
        sys.exit(_INTERRUPTED)
    if as_json:
        print(json.dumps(found.document(), indent=2))
    sys.exit(0 if found.is_right else _WRONG)


def _demo(console: Console, home: Home, wishes: Wishes, keep: bool) -> Verdict:
    home.clear()
    is_to_stay = keep
    try:
        record, picture = _run(console, home, wishes)
        console.print("\n[dim]computing the answer without the engine, and comparing[/]\n")
        found = verdict.judge(home.folder, record)
        is_to_stay |= not found.is_right
        if wishes.svg:
            verdict.show(picture, found)
            _draw(picture, wishes.svg)
        return found
    except ServiceUnavailable:
        is_to_stay = False
        raise
    except Exception:
        # Its logs say why.
        is_to_stay = True
        raise
    finally:
        if not is_to_stay:
            home.remove()


def _run(console: Console, home: Home, wishes: Wishes) -> tuple[Record, Console]:
    """Everything that needs the broker."""
    picture = Console(record=True, file=io.StringIO(), width=_WIDTH, highlight=False)
    with ExitStack() as stack:
        broker = stack.enter_context(Kafka(jvm=temporary_files_in(str(home.scratch))))
        if not any(cache_dir().glob("kafka-*")):
            console.print("Fetching Kafka with Maven, 45 MB. That is done once.")
        broker.install()
        console.print("Starting a Kafka broker ...")
        servers = broker.start(home.broker).bootstrap
        topic.create(servers)
        home.write_project(servers)
        console.print(f"It listens at {servers}. The pipeline, in {home.config}:\n")
        console.print(Syntax(home.statements(), "sql", background_color="default"))
        console.print()
        view = stack.enter_context(closing(TopicView(servers)))
        board = Board()
        screen = _screen(console, board, picture)
        stack.callback(screen.close)
        director = Director(
            project=home.folder,
            servers=servers,
            rate=wishes.rate,
            seconds=wishes.seconds,
            kills=wishes.kills,
            board=board,
            screen=screen,
            watch=Watch(home.folder),
            topic=view,
        )
        sent = director.run()
        screen.close()
        view.copy(home.topic)
        record = Record(
            rate=wishes.rate,
            sent=sent,
            group=view.group_stands(),
            kills=director.killed,
            most_waiting=board.peak,
            seconds=round(board.now, 1),
        )
    home.write_record(record)
    return record, picture


def _screen(console: Console, board: Board, picture: Console) -> Screen:
    shown: Screen = (
        LiveScreen(console, board) if console.is_terminal else PlainLines(console, board)
    )
    return Photographed(shown, lambda: picture.print(frame(board)))


def _draw(picture: Console, into: Path) -> None:
    # Without the fonts that it would fetch from elsewhere.
    svg = picture.export_svg(title="make kafka-demo")
    into.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S), "utf-8")


def _look_around(console: Console, folder: Path) -> None:
    console.print("\n[bold]Look around[/] [dim](the broker is gone, the rest is there)[/]")
    laminar = f".venv/bin/laminar --project {folder}"
    for command, meaning in (
        (f"status {PIPELINE}", "how far it is, and what the sinks hold"),
        (f"epochs list {PIPELINE}", "every epoch"),
        (f"dead-letters list {PIPELINE}", "the records that were set aside"),
        (f"state show product_sales {PIPELINE}", "the windows that are still open"),
    ):
        console.print(f"  {laminar} {command:<33} [dim]{meaning}[/]", soft_wrap=True)
    console.print(f"  {folder}/output/shop.db", soft_wrap=True)


def _advice() -> str:
    if _code_of_absence() == _BAD_USAGE:
        return "Then run `make kafka-demo` again; everything else is there."
    return "Maven has to reach its repository once. Try again when the network is there."


def _code_of_absence() -> int:
    """What is missing has to be installed, or it was the network."""
    is_complete = java.find() is not None and shutil.which("mvn") is not None
    return _TRY_AGAIN if is_complete else _BAD_USAGE


def _fail(console: Console, as_json: bool, told: str, code: int) -> NoReturn:
    console.print("[bold red]error:[/] ", end="")
    console.print(told, markup=False, soft_wrap=True)
    if as_json:
        document: dict[str, Any] = {"is_right": False, "error": told, "exit_code": code}
        print(json.dumps(document, indent=2))
    sys.exit(code)


def _end(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
