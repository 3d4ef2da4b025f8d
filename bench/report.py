"""The table: for people at a terminal, and as Markdown when the output goes elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.figures import Figure, Unit
from bench.measure import Sample

_TIMES: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
# Wide enough that no cell of a Markdown table is broken.
_FILE_WIDTH: Final = 1000
_NOTHING: Final = "-"


def show(figures: Sequence[Figure]) -> None:
    """Print the table."""
    for_file = not Console().is_terminal
    console = Console(width=_FILE_WIDTH if for_file else None, highlight=False)
    table = Table(box=box.MARKDOWN if for_file else box.SIMPLE_HEAD)
    table.add_column("name", no_wrap=True)
    table.add_column("what")
    for heading in ("median ± MAD", "best", "target"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("met", no_wrap=True)
    table.add_column("peer")
    table.add_column("ratio", justify="right", no_wrap=True)
    if for_file:
        table.add_column("note")
    for figure in figures:
        cells = _row(figure)
        if for_file:
            cells.append(figure.note)
        elif figure.note:
            cells[1] = Text.assemble(figure.what, "\n", (figure.note, "dim"))
        table.add_row(*cells)
    console.print(table)


def _row(figure: Figure) -> list[str | Text]:
    sample, unit = figure.sample, figure.unit
    peer = figure.peer
    if figure.peer_sample:
        peer = f"{figure.peer}: {_value(figure.peer_sample.median, unit)}"
    return [
        figure.name,
        figure.what,
        _measured(sample, unit) if sample else Text("not measured", "yellow"),
        _value(figure.best, unit) if figure.best is not None else _NOTHING,
        _target(figure),
        _verdict(figure.is_met),
        peer or _NOTHING,
        _NOTHING if figure.ratio is None else _ratio(figure.ratio),
    ]


def _measured(sample: Sample, unit: Unit) -> str:
    if len(sample.values) == 1:
        return _value(sample.median, unit)
    return f"{_value(sample.median, unit)} ± {_value(sample.spread, unit)}"


def _target(figure: Figure) -> str:
    if figure.limit is None:
        return _NOTHING
    return f"{'>' if figure.is_rate else '<'} {_value(figure.limit, figure.unit)}"


def _verdict(is_met: bool | None) -> Text:
    if is_met is None:
        return Text(_NOTHING)
    return Text("yes", "green") if is_met else Text("no", "bold red")


def _ratio(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio >= 1 else f"{ratio:.2g}"


def _value(value: float, unit: Unit) -> str:
    match unit:
        case "s":
            return _time(value)
        case "bytes":
            return f"{value / 1024:.1f} KiB" if value >= 1024 else f"{value:.0f} B"
        case "share":
            return f"{value * 100:.2g} %"
        case "times":
            return f"{value:.2f}x"
        case "records/s":
            return f"{value:,.0f}/s"
        case "MB/s":
            return f"{value:,.0f} MB/s"


def _time(seconds: float) -> str:
    if not seconds:
        return "0"
    # A difference may be below zero.
    size, name = next((each for each in _TIMES if abs(seconds) >= each[0]), _TIMES[-1])
    number = seconds / size
    return f"{number:.0f} {name}" if abs(number) >= 100 else f"{number:.3g} {name}"
