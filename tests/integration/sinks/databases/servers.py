"""On which server, and by which way into it, a test runs.

Most of what holds on MariaDB holds on MySQL, so of the tests that run on both, MySQL gets those
that are marked ``every_server``: the contract, the wire around a COMMIT, rights and types. With
``LAMINAR_EVERY_SERVER=1`` it gets all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import pytest

Way = Literal["postgres", "mariadb", "inserting_mariadb", "mysql", "inserting_mysql"]

# Set to 1, every test runs on every server that it can run on.
EVERY_SERVER: Final = "LAMINAR_EVERY_SERVER"

# The two that speak MySQL's protocol. Their rows are streamed, or inserted where that is forbidden.
MYSQL_SERVERS: Final[tuple[Way, ...]] = ("mariadb", "mysql")
ALL_SERVERS: Final[tuple[Way, ...]] = ("postgres", *MYSQL_SERVERS)
ON_MARIADB: Final[tuple[Way, ...]] = ("mariadb", "inserting_mariadb")
ON_MYSQL: Final[tuple[Way, ...]] = ("mysql", "inserting_mysql")
EITHER_WAY: Final[tuple[Way, ...]] = (*ON_MARIADB, *ON_MYSQL)
EVERY_WAY: Final[tuple[Way, ...]] = ("postgres", *EITHER_WAY)


def on(*ways: Way, cases: Sequence[tuple[Any, ...]] = ((),)) -> list[Any]:
    """Cases that run by each of these ways; for a fixture, or as its indirect parameters."""
    return [
        pytest.param(
            way,
            *case,
            id="-".join([way, *filter(None, map(_shown, case))])[:70],
            marks=pytest.mark.service(way.removeprefix("inserting_")),
        )
        for way in ways
        for case in cases
    ]


def is_left_out(item: pytest.Item) -> bool:
    """Whether a test on MySQL is one of those that are to be asked for."""
    services = {name for mark in item.iter_markers("service") for name in mark.args}
    return "mysql" in services and item.get_closest_marker("every_server") is None


def _shown(part: object) -> str:
    """A part of a case in the test's name, which must be the same in every process."""
    if isinstance(part, dict):
        return str(part.get("mode", ""))
    return part if isinstance(part, str) else ""
