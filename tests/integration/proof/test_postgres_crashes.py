"""A pipeline on a PostgreSQL table, killed at any step that touches the table or its slot.

Random transactions run while a worker is killed with SIGKILL, in the snapshot or in the stream.
Other processes go on from what is there. Then the sink equals the live table, row for row.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import pytest

from infra.postgres import PostgresEndpoint
from laminar_dagster.core.points import Point, watch
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.testing.crash import kill_this_process
from tests.integration.postgres.random_changes import MAKE, RandomWriter
from tests.integration.postgres.tables import Tables
from tests.integration.proof.kill_points import AtStep, KillPoint
from tests.integration.proof.mirroring import kill_while_the_table_changes, rows_in
from tests.integration.proof.stream import Layout

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service("postgres"),
    pytest.mark.service("spark_connect"),
    pytest.mark.proof("crashes on PostgreSQL"),
]

_SOURCE: Final = """
CREATE SOURCE TABLE accounts (id BIGINT NOT NULL, owner STRING, amount BIGINT) WITH (
  connector = 'postgres-cdc', host = '{host}', port = '{port}', database = '{database}',
  user = '{user}', password = '{password}', tables = 'public.accounts', slot = '{slot}',
  publication = 'all', before = 'required'
);
"""
_MODEL: Final = "SELECT id, owner, amount, _weight FROM accounts"
_SINK: Final = """
CREATE SINK now FROM accounts_now
WITH (connector = 'sqlite', path = 'out.db', table = 'now', mode = 'upsert', key = 'id');
"""


@dataclass(frozen=True)
class InTheCopy:
    """When a file of the snapshot is written: the slot is made, and nothing describes the copy."""

    def __str__(self) -> str:
        return "in-the-copy"

    def arm(self, pipeline: Pipeline, _scratch: Path) -> Pipeline:
        def die(point: Point, name: str) -> None:
            if point is Point.SNAPSHOT_FILE_KEPT and name.startswith("rows-"):
                kill_this_process()

        watch(die)
        return pipeline


POINTS: Final[tuple[tuple[int, KillPoint], ...]] = (
    (1, cast(KillPoint, InTheCopy())),
    (3, AtStep("after", "compute")),
    (3, AtStep("before", "acknowledge")),
)


@pytest.mark.parametrize("kill", POINTS, ids=str)
def test_killed_while_the_table_changes(
    tmp_path: Path,
    postgres_service: PostgresEndpoint,
    postgres_database: str,
    warm_spark: dict[str, str],
    kill: tuple[int, KillPoint],
) -> None:
    tables = Tables(postgres_service, postgres_database)
    tables.run(*MAKE)
    writer = RandomWriter(tables, seed=kill[0])
    writer.write(40)
    source = _SOURCE.format(
        host=postgres_service.host,
        port=postgres_service.port,
        database=tables.database,
        user=postgres_service.user,
        password=postgres_service.password,
        slot=tables.slot,
    )
    layout = Layout(
        max_records=150, sources=source, models={"accounts_now": _MODEL}, sinks=_SINK, contracts={}
    )
    kill_while_the_table_changes(
        tmp_path,
        warm_spark,
        layout,
        kill,
        lambda: writer.write(60),
        lambda: set(tables.fetch("SELECT id, owner, amount FROM accounts")),
        lambda: rows_in(tmp_path / "out.db", "SELECT id, owner, amount FROM now"),
    )
