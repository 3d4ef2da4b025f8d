"""The page ``docs/sql.md``, made from the tables of supported and refused SQL.

``python -m laminar_dagster.config.sql.page > docs/sql.md`` writes it anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from laminar_dagster.config.sql.refusals import refusals
from laminar_dagster.config.sql.support import SUPPORTED, TABLES

_HEAD = """\
# SQL

What a query of a pipeline can say, and what is refused. This page is made of the tables by which
queries are read: `python -m laminar_dagster.config.sql.page > docs/sql.md`. Every example on it is
loaded, or refused, by a test. What is refused is named with file, line and column.

The examples read these tables:

```sql
"""

_REFUSED = """\
## Refused

| construct | instead | example |
|---|---|---|
"""


def page() -> str:
    """The whole page."""
    return "".join(_lines())


def _lines() -> Iterator[str]:
    yield _HEAD + TABLES + "```\n"
    for family, rows in SUPPORTED.items():
        yield f"\n## {family}\n\n| construct | example | |\n|---|---|---|\n"
        for row in rows:
            yield _row((row.name, _code(row.example), row.note))
    yield f"\n{_REFUSED}"
    for each in refusals():
        yield _row((each.name, each.instead, _code(each.example)))


def _row(cells: Iterable[str]) -> str:
    # A bare `|` would end a cell.
    return "| " + " | ".join(each.replace("|", "\\|") for each in cells) + " |\n"


def _code(sql: str) -> str:
    return f"`{sql}`" if sql else ""


if __name__ == "__main__":
    sys.stdout.write(page())
