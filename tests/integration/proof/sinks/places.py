"""The kinds of sinks in the proof. A new one is a place and an entry in `KINDS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from laminar_dagster.config.model import Place as WrittenAt
from laminar_dagster.config.model import SinkTable
from laminar_dagster.core.ids import OperatorId, SinkId
from tests.integration.proof.sinks.accounts import View
from tests.integration.proof.sinks.database_places import MysqlPlace, PostgresPlace
from tests.integration.proof.sinks.file_places import DeltaPlace, SqlitePlace
from tests.integration.proof.sinks.ground import Ground, Place, Server
from tests.integration.proof.sinks.topic_place import TopicPlace

Kind = tuple[Callable[[Ground, str, View], Place], View, Server | None]

KINDS: Final[Mapping[str, Kind]] = {
    "postgres_moves": (PostgresPlace, "moves", "postgres"),
    "postgres_balances": (PostgresPlace, "balances", "postgres"),
    "mysql_moves": (MysqlPlace, "moves", "mariadb"),
    "mysql_balances": (MysqlPlace, "balances", "mariadb"),
    "kafka_moves": (TopicPlace, "moves", "kafka"),
    "kafka_balances": (TopicPlace, "balances", "kafka"),
    "sqlite_moves": (SqlitePlace, "moves", None),
    "sqlite_balances": (SqlitePlace, "balances", None),
    "delta_moves": (DeltaPlace, "moves", None),
    "delta_balances": (DeltaPlace, "balances", None),
}
# Those with a wire between the sink and its place.
ON_SERVERS: Final = tuple(kind for kind, (_, _, server) in KINDS.items() if server)

# Every system in one epoch, and between the two of them in both ways of writing.
TEAMS: Final[tuple[tuple[str, ...], tuple[str, ...]]] = (
    ("postgres_moves", "mysql_balances", "kafka_moves", "sqlite_balances", "delta_moves"),
    ("postgres_balances", "mysql_moves", "kafka_balances", "sqlite_moves", "delta_balances"),
)


def team_of(kind: str) -> tuple[str, ...]:
    """The epoch that a kind is in."""
    return next(team for team in TEAMS if kind in team)


def place_of(kind: str, ground: Ground) -> Place:
    """Where a sink of this kind writes in a case."""
    make, view, _ = KINDS[kind]
    return make(ground, kind, view)


def table_of(place: Place) -> SinkTable:
    """The ``CREATE SINK`` of a place."""
    options = dict(place.options())
    connector = options.pop("connector")
    return SinkTable(
        sink_id=SinkId(place.kind),
        view=OperatorId(place.view),
        connector=connector,
        options=options,
        place=WrittenAt("sinks.sql", 1),
    )
