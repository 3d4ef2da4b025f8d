"""A pipeline on a MariaDB table, killed while random transactions change the table.

Other processes go on from what is there. Then the sink equals the live table, row for row.
"""

from __future__ import annotations

import random
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Final

import pytest

from infra.mysql_endpoint import MysqlEndpoint
from tests.integration.mysql_cdc.shop import Shop
from tests.integration.mysql_cdc.test_histories import COLUMNS, change
from tests.integration.proof.kill_points import AtStep
from tests.integration.proof.mirroring import Rows, kill_while_the_table_changes, rows_in
from tests.integration.proof.stream import Layout

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


@pytest.mark.parametrize(
    "kill", [(1, AtStep("after", "plan")), (3, AtStep("after", "compute"))], ids=str
)
def test_killed_while_the_table_changes(
    tmp_path: Path,
    mariadb_log_service: MysqlEndpoint,
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
    kill_while_the_table_changes(
        tmp_path,
        warm_spark,
        layout,
        kill,
        lambda: write(150),
        lambda: set(shop.run("SELECT id, name, amount FROM orders")),
        lambda: _published(tmp_path),
    )
    shop.close()


def _published(root: Path) -> Rows:
    rows = rows_in(root / "out.db", "SELECT id, name, amount FROM now")
    return {
        (key, name, None if amount is None else Decimal(str(amount))) for key, name, amount in rows
    }
