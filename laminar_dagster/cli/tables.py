"""Results for people: fields and tables, with rich on a terminal and as plain text elsewhere.

Plain text is never cut or wrapped, holds no escape sequences and writes ``-`` for an empty cell,
so that ``grep``, ``awk`` and ``column`` can work with it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from laminar_dagster.cli.wording import NOTHING, clean

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

_GAP: Final = "  "
# What rich draws between two columns.
_SEPARATOR: Final = "   "
_STYLES: Final = {"latest": "green", "damaged": "red", "incomplete": "yellow"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        right: Whether its cells are numbers and stand on the right.
        folds: The width down to which its cells may be broken into several lines on a narrow
            terminal; 0 for cells that are never broken.
        optional: Columns with a higher number go first when a terminal is too narrow; 0 stays.
    """

    name: str
    right: bool = False
    folds: int = 0
    optional: int = 0


@dataclass(frozen=True, slots=True)
class Fields:
    """Labelled values, one a line."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of equal shape."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence."""

    text: str = ""


Block = Fields | Table | Line


def show(blocks: Iterable[Block]) -> None:
    """Print results on standard output."""
    if _is_terminal():
        _show_rich(list(blocks))
    else:
        text = "\n".join(line for block in blocks for line in _plain(block))
        click.echo(text.removeprefix("\n"))


def _is_terminal() -> bool:
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


# --- plain --------------------------------------------------------------------------------------


def _plain(block: Block) -> list[str]:
    match block:
        case Line(text):
            return [clean(text)]
        case Fields(rows):
            widest = max((len(label) for label, _ in rows), default=0)
            return [
                f"{clean(label) + ':':<{widest + 1}} {clean(value) or NOTHING}"
                for label, value in rows
            ]
        case Table(columns, rows, title):
            return (
                ["", clean(title), *_aligned(columns, rows)] if title else _aligned(columns, rows)
            )


def _aligned(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    head = [column.name.upper() for column in columns]
    cells = [head, *([clean(cell) or NOTHING for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    return [
        _GAP.join(
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        ).rstrip()
        for row in cells
    ]


# --- rich ---------------------------------------------------------------------------------------


def _show_rich(blocks: Sequence[Block]) -> None:
    # Imported here: it takes as long as all the rest, and output into a pipe does without it.
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    for index, block in enumerate(blocks):
        match block:
            case Line(text):
                console.print(Text(clean(text)), soft_wrap=True)
            case Fields(rows):
                widest = max((len(label) for label, _ in rows), default=0)
                for label, value in rows:
                    name = f"{clean(label):<{widest}}{_GAP}"
                    line = Text.assemble((name, "bold"), clean(value) or NOTHING)
                    console.print(line, soft_wrap=True)
            case Table():
                _print_table(console, block, is_first=index == 0)


def _print_table(console: Console, table: Table, *, is_first: bool) -> None:
    from rich.text import Text

    if table.title:
        if not is_first:
            console.print()
        console.print(Text(clean(table.title), style="bold"))
    shown = list(range(len(table.columns)))
    while _narrowest(table, shown) > console.width:
        droppable = [index for index in shown if table.columns[index].optional]
        if not droppable:
            break
        shown.remove(max(droppable, key=lambda index: table.columns[index].optional))
    console.print(_rich_table(table, shown))
    if len(shown) < len(table.columns):
        left_out = [column.name for index, column in enumerate(table.columns) if index not in shown]
        text = f"Left out, the terminal is too narrow: {', '.join(left_out)}"
        console.print(Text(text, style="dim"), soft_wrap=True)


def _narrowest(table: Table, shown: Sequence[int]) -> int:
    """The width below which cells would be cut."""
    total = len(_SEPARATOR) * (len(shown) - 1)
    for index in shown:
        widest, folds = _widest(table, index), table.columns[index].folds
        total += min(widest, folds) if folds else widest
    return total


def _widest(table: Table, index: int) -> int:
    from rich.cells import cell_len

    cells = (cell_len(clean(row[index])) for row in table.rows)
    return max(cell_len(table.columns[index].name), max(cells, default=0))


def _rich_table(table: Table, shown: Sequence[int]) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    rich_table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index in shown:
        column = table.columns[index]
        rich_table.add_column(
            column.name,
            justify="right" if column.right else "left",
            no_wrap=not column.folds,
            overflow="fold" if column.folds else "ellipsis",
            min_width=None if column.folds else _widest(table, index),
        )
    for row in table.rows:
        cells = [clean(row[index]) for index in shown]
        rich_table.add_row(
            *(Text(cell, style=_STYLES.get(re.split("[:,]", cell)[0], "")) for cell in cells)
        )
    return rich_table
