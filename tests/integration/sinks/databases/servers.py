"""On which server, and by which way into it, a test runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import pytest

Way = Literal["postgres", "mysql", "inserting_mysql"]

# MySQL's rows are streamed, or inserted where the server forbids that.
BOTH_SERVERS: Final[tuple[Way, ...]] = ("postgres", "mysql")
EVERY_WAY: Final[tuple[Way, ...]] = ("postgres", "mysql", "inserting_mysql")
EITHER_WAY: Final[tuple[Way, ...]] = ("mysql", "inserting_mysql")


def on(*ways: Way, cases: Sequence[tuple[Any, ...]] = ((),)) -> list[Any]:
    """Cases that run by each of these ways; for a fixture, or as its indirect parameters."""
    return [
        pytest.param(
            way,
            *case,
            id="-".join([way, *filter(None, map(_shown, case))])[:70],
            marks=pytest.mark.service("postgres" if way == "postgres" else "mariadb"),
        )
        for way in ways
        for case in cases
    ]


def _shown(part: object) -> str:
    """A part of a case in the test's name, which must be the same in every process."""
    if isinstance(part, dict):
        return str(part.get("mode", ""))
    return part if isinstance(part, str) else ""
