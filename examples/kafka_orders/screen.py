"""What one sees: a screen that changes where there is a terminal, lines where there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from examples.kafka_orders.board import Board, EpochFigures, Sample
from examples.kafka_orders.topic import TOPIC

_BARS: Final = "▁▂▃▄▅▆▇█"
_CURVE: Final = 72
_BAR: Final = 24
_EPOCHS: Final = 5
_NEWS: Final = 6
_LAG_EVERY: Final = 5.0
_DRAW_EVERY: Final = 0.25


class Screen(Protocol):
    """Where the demo shows what goes on."""

    def tell(self, line: str) -> None:
        """Something happened. The line may hold markup of rich."""

    def epoch(self, figures: EpochFigures) -> None:
        """An epoch is done."""

    def update(self) -> None:
        """The board has changed."""

    def close(self) -> None:
        """The last frame stays."""


class PlainLines:
    """One line for each thing that happens, with the time."""

    def __init__(self, console: Console, board: Board) -> None:
        """Show a board on a console."""
        self._console, self._board = console, board
        self._last_lag = 0.0

    def tell(self, line: str) -> None:
        """Print it."""
        self._board.news.append((self._board.now, line))
        self._print(line)

    def epoch(self, figures: EpochFigures) -> None:
        """Print it."""
        self._last_lag = self._board.now
        self._print(
            f"epoch {figures.epoch}: {figures.read:,} records in {figures.seconds:.1f} s"
            f"{', with the start of Spark' if figures.is_cold else ''}; lag {figures.lag:,},"
            f" watermark {_behind(self._board)}, {self._board.rows:,} rows in SQLite"
        )

    def update(self) -> None:
        """Print the lag now and then."""
        if self._board.now - self._last_lag >= _LAG_EVERY:
            self._last_lag = self._board.now
            self._print(
                f"lag {self._board.lag:,}, {self._board.produced_per_second:,.0f} records/s come in"
            )

    def close(self) -> None:
        """Nothing changes."""

    def _print(self, line: str) -> None:
        self._console.print(f"  [dim]{clock(self._board.now)}[/]  {line}", soft_wrap=True)


class LiveScreen:
    """The whole board, drawn again and again."""

    def __init__(self, console: Console, board: Board) -> None:
        """Show a board on a console."""
        self._board, self._drawn = board, 0.0
        self._live = Live(console=console, auto_refresh=False, get_renderable=self._frame)
        self._live.start()

    def tell(self, line: str) -> None:
        """Add it to the news."""
        self._board.news.append((self._board.now, line))
        self._draw()

    def epoch(self, figures: EpochFigures) -> None:
        """It is on the board already."""
        self._draw()

    def update(self) -> None:
        """Draw, a few times a second."""
        if self._board.now - self._drawn >= _DRAW_EVERY:
            self._draw()

    def close(self) -> None:
        """Leave the last frame."""
        self._live.stop()

    def _draw(self) -> None:
        self._drawn = self._board.now
        self._live.refresh()

    def _frame(self) -> RenderableType:
        return frame(self._board)


class Photographed:
    """Another screen, of which a picture is taken while the pipeline recovers from a kill."""

    def __init__(self, shown: Screen, take: Callable[[], None]) -> None:
        """Show everything on ``shown``."""
        self._shown, self._take = shown, take
        self._is_taken = self._is_next = False

    def tell(self, line: str) -> None:
        """Pass it on."""
        self._shown.tell(line)

    def epoch(self, figures: EpochFigures) -> None:
        """Pass it on. Of two epochs after a kill, the first started Spark: the second is it."""
        self._shown.epoch(figures)
        if self._is_next and not self._is_taken:
            self._photograph()
        self._is_next = figures.is_cold and figures.epoch > 1

    def update(self) -> None:
        """Pass it on."""
        self._shown.update()

    def close(self) -> None:
        """Better a late picture than none."""
        self._shown.close()
        if not self._is_taken:
            self._photograph()

    def _photograph(self) -> None:
        self._is_taken = True
        self._take()


def frame(board: Board) -> RenderableType:
    """The board as a picture."""
    parts: list[RenderableType] = [
        _partitions(board),
        Text(),
        _curve(board),
        Text(),
        _epochs(board),
        Text(),
        _now(board),
        Text(),
        *(
            Text.assemble((f"{clock(at)}  ", "dim"), Text.from_markup(line))
            for at, line in board.news[-_NEWS:]
        ),
    ]
    return Panel(
        Group(*parts),
        title="[bold]Kafka → epochs → SQLite and Delta Lake[/]",
        subtitle=f"{clock(board.now)}",
        box=box.ROUNDED,
        padding=(1, 2),
        width=104,
    )


def clock(passed: float) -> str:
    """Minutes and seconds."""
    minutes, rest = divmod(int(passed), 60)
    return f"{minutes}:{rest:02}"


def curve(samples: Sequence[Sample], width: int) -> str:
    """The lag over all of the time so far; each column is the most of its share."""
    span = max((each.at for each in samples), default=0.0) or 1.0
    most: list[int | None] = [None] * width
    for each in samples:
        column = min(int(each.at / span * width), width - 1)
        most[column] = max(most[column] or 0, each.lag)
    top = max([each.lag for each in samples] + [1])
    drawn, last = "", 0
    for value in most:
        # A column without a sample is like the one before.
        last = last if value is None else value
        drawn += _BARS[round(last / top * (len(_BARS) - 1))]
    return drawn


def _partitions(board: Board) -> Table:
    table = _table("partition", "end", "position", "lag", "")
    most = max([board.lag_of(each) for each in board.ends] + [1])
    for partition in sorted(board.ends):
        lag = board.lag_of(partition)
        table.add_row(
            f"{TOPIC}/{partition}",
            f"{board.ends[partition]:,}",
            f"{board.positions.get(partition, 0):,}",
            f"{lag:,}",
            Text("━" * round(_BAR * lag / most), style="yellow"),
        )
    table.add_section()
    table.add_row(
        "all",
        f"{board.produced:,}",
        f"{sum(board.positions.values()):,}",
        f"[bold]{board.lag:,}[/]",
        f"[dim]in {board.produced_per_second:,.0f} records/s[/]",
    )
    table.columns[0].justify = table.columns[-1].justify = "left"
    return table


def _curve(board: Board) -> Text:
    return Text.assemble(
        ("lag  ", "bold"),
        (curve(board.samples, _CURVE), "yellow"),
        (f"  most {board.peak:,}", "dim"),
    )


def _epochs(board: Board) -> Table:
    table = _table(
        "epoch", "records", "late", "dead letters", "rows out", "seconds", "records/s", ""
    )
    for each in board.epochs[-_EPOCHS:]:
        table.add_row(
            str(each.epoch),
            f"{each.read:,}",
            f"{each.late:,}",
            f"{each.dead:,}",
            f"{each.rows:,}",
            f"{each.seconds:.1f}",
            f"{each.per_second:,.0f}",
            "[dim]with the start of Spark[/]" if each.is_cold else "",
        )
    table.columns[-1].justify = "left"
    return table


def _now(board: Board) -> Text:
    following = board.epochs[-1].epoch + 1 if board.epochs else 1
    since = board.now - board.doing_since
    match board.doing:
        case None:
            doing = Text("no pipeline runs", style="bold red")
        case "waiting":
            doing = Text(f"epoch {following}: waits for records")
        case "computing" if board.is_starting:
            doing = Text(f"epoch {following}: starting Spark, {since:.0f} s")
        case _:
            doing = Text(f"epoch {following}: {board.doing}, {since:.1f} s")
    return Text.assemble(
        doing,
        f"   watermark {_behind(board)}\n{board.rows:,} rows in SQLite"
        f"   {board.late:,} late   {board.dead:,} dead letters",
    )


def _behind(board: Board) -> str:
    if board.behind is None:
        return "none yet"
    if board.behind < 0:
        return "past the last order"
    return f"{board.behind:.0f} s behind"


def _table(*columns: str) -> Table:
    table = Table(
        *columns, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold"
    )
    for column in table.columns:
        column.justify = "right"
    return table
