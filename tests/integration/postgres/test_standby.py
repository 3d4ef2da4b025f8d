"""A standby that takes over: the same database on another timeline, and without the slot."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest

from infra.postgres import Postgres, PostgresEndpoint
from laminar_dagster.core.errors import TimelineChanged
from tests.integration.postgres.tables import Reading, Tables
from tests.services.postgres import WITH_SLOTS, WITHOUT_SYNC

pytestmark = pytest.mark.service("postgres")

COLUMNS = {"id": "bigint!"}


def clone(server: Postgres, primary: PostgresEndpoint, folder: Path) -> None:
    """A copy of a running server's files, which follows it when it is started."""
    folder.mkdir()
    data = folder / "data"
    command = [str(server.require() / "pg_basebackup"), "--pgdata", str(data)]
    environment = {**os.environ, **primary.environment()}
    command += ["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--no-password"]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    shutil.copy(primary.data.parent / "password", folder / "password")
    server.hand_over(data, *data.rglob("*"))


def test_a_promoted_standby_is_named_and_a_new_snapshot_is_opt_in(tmp_path: Path) -> None:
    settings = {**WITHOUT_SYNC, **WITH_SLOTS}
    with Postgres(settings) as first, Postgres(settings) as second:
        primary = first.start(tmp_path / "primary")
        with psycopg.connect(primary.dsn(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE shop")
        tables = Tables(primary, "shop", slot="shop")
        tables.run("CREATE TABLE orders (id bigint PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
        reading = Reading(tables.source(COLUMNS, tables="orders"))
        assert [row["id"] for row in reading.rows()] == [1]
        clone(second, primary, tmp_path / "standby")
        tables.run("INSERT INTO orders VALUES (2)")
        assert [row["id"] for row in reading.rows()] == [2]
        ((flushed,),) = tables.fetch("SELECT pg_current_wal_flush_lsn()")
        tables.endpoint = second.start(tmp_path / "standby")
        caught_up = f"SELECT pg_last_wal_replay_lsn() >= '{flushed}'"
        for _ in range(1000):
            if tables.fetch(caught_up) == [(True,)]:
                break
        first.stop()
        tables.fetch("SELECT pg_promote(wait => true)")

        tables.run("DELETE FROM orders WHERE id = 1", "INSERT INTO orders VALUES (3)")
        reading.source = tables.source(COLUMNS, tables="orders")
        with pytest.raises(TimelineChanged, match="on timeline 2, and was on 1"):
            reading.plan()
        health = reading.source.health(reading.at)
        assert not health.healthy
        # Nothing was made on it by those who looked.
        assert tables.fetch("SELECT count(*) FROM pg_replication_slots") == [(0,)]
        anew = tables.source(COLUMNS, tables="orders", on_gap="snapshot")
        again = Reading(anew, reading.previous)
        assert sorted(row["id"] for row in again.rows()) == [2, 3]
        assert again.previous is not None
        assert len(again.previous.gaps) == 1
        tables.run("INSERT INTO orders VALUES (4)")
        assert [row["id"] for row in again.rows()] == [4]
