"""A pipeline on a MariaDB table, killed while random transactions change the table.

Other processes go on from what is there. Then the sink equals the live table, row for row.
"""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from threading import Thread
from typing import Final

import pytest

from infra.mariadb import MariadbEndpoint
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.survey import survey
from laminar_dagster.stores.local import LocalStore
from tests.integration.mysql_cdc.shop import Shop
from tests.integration.mysql_cdc.test_histories import COLUMNS, change
from tests.integration.proof.kill_points import AtStep
from tests.integration.proof.processes import start
from tests.integration.proof.published import manifests_of
from tests.integration.proof.stream import Layout, write_pipeline
from tests.integration.proof.worker import Job

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service("mariadb"),
    pytest.mark.service("spark_connect"),
    pytest.mark.proof("crashes on MariaDB"),
]

_SOURCE: Final = """
CREATE SOURCE TABLE orders (id BIGINT NOT NULL, name STRING, amount DECIMAL(20, 4)) WITH (
  connector = 'mysql-cdc', host = '{0.host}', port = '{0.port}', database = '{1}',
  user = '{0.user}', password = '{0.password}', ssl_mode = 'disabled', tables = 'orders'
);
"""
_MODEL: Final = "SELECT id, name, amount, _weight FROM orders"
_SINK: Final = """
CREATE SINK now FROM orders_now
WITH (connector = 'sqlite', path = 'out.db', table = 'now', mode = 'upsert', key = 'id');
"""
Rows = set[tuple[int, str | None, Decimal | None]]


@pytest.mark.parametrize(
    "kill", [(1, AtStep("after", "plan")), (3, AtStep("after", "compute"))], ids=str
)
def test_killed_while_the_table_changes(
    tmp_path: Path,
    mariadb_log_service: MariadbEndpoint,
    warm_spark: dict[str, str],
    kill: tuple[int, AtStep],
) -> None:
    database = f"proof_{kill[0]}"
    with closing(mariadb_log_service.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
    shop = Shop(mariadb_log_service, database)
    shop.run(f"CREATE TABLE orders ({COLUMNS})", "CREATE TABLE others (id BIGINT)")
    dice = random.Random(kill[0])

    def write(times: int) -> None:
        for _ in range(times):
            change(shop, dice)

    write(40)
    source = _SOURCE.format(mariadb_log_service, database)
    layout = Layout(
        max_records=150, sources=source, models={"orders_now": _MODEL}, sinks=_SINK, contracts={}
    )
    write_pipeline(tmp_path, layout)
    writing = Thread(target=write, args=(150,))
    writing.start()
    start(Job(tmp_path, warm_spark, kill=kill, epochs=kill[0])).must_be_killed()
    writing.join()
    checkpoints = CheckpointStore(LocalStore(tmp_path / "state"))
    for _ in range(40):
        start(Job(tmp_path, warm_spark, epochs=1)).must_finish()
        if not survey(checkpoints).unfinished and _published(tmp_path) == _live(shop):
            break
    assert _published(tmp_path) == _live(shop)
    for manifest in manifests_of(checkpoints):
        assert manifest.counts.is_balanced
        assert manifest.counts.dead_lettered == 0
    shop.close()


def _live(shop: Shop) -> Rows:
    return set(shop.run("SELECT id, name, amount FROM orders"))


def _published(root: Path) -> Rows:
    file = root / "out.db"
    if not file.exists():
        return set()
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute("SELECT id, name, amount FROM now").fetchall()
    return {
        (key, name, Decimal(str(amount)) if amount is not None else None)
        for key, name, amount in rows
    }
