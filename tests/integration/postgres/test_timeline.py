"""A server that comes back on another timeline, as after a failover."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from infra.postgres import Postgres
from laminar_dagster.core.errors import TimelineChanged
from tests.integration.postgres.tables import Reading, Tables
from tests.services.postgres import WITH_SLOTS, WITHOUT_SYNC

pytestmark = pytest.mark.service("postgres")


def test_another_timeline_is_noticed(tmp_path: Path) -> None:
    # A recovery that finds no archive ends at once, and begins a new timeline.
    settings = {**WITHOUT_SYNC, **WITH_SLOTS, "restore_command": "false"}
    with Postgres(settings) as server:
        endpoint = server.start(tmp_path / "postgres")
        with psycopg.connect(endpoint.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE shop"))
        tables = Tables(endpoint, "shop", slot="shop")
        tables.run("CREATE TABLE orders (id bigint)", "INSERT INTO orders VALUES (1)")
        reading = Reading(tables.source({"id": "bigint!"}, tables="orders"))
        assert len(reading.rows()) == 1
        server.stop()
        (endpoint.data / "recovery.signal").touch()
        tables.endpoint = server.start(tmp_path / "postgres")
        reading.source = tables.source({"id": "bigint!"}, tables="orders")
        with pytest.raises(TimelineChanged, match="on timeline 2, and was on 1"):
            reading.plan()
        assert reading.previous is not None
        with pytest.raises(TimelineChanged):
            reading.source.verify(reading.previous)
        tables.run("INSERT INTO orders VALUES (2)")
        anew = tables.source({"id": "bigint!"}, tables="orders", on_gap="snapshot")
        again = Reading(anew, reading.previous)
        assert [row["id"] for row in again.rows()] == [1, 2]
        tables.run("INSERT INTO orders VALUES (3)")
        assert [row["id"] for row in again.rows()] == [3]
