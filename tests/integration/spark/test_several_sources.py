"""Views over several sources whose event time goes on at different speeds, beside DuckDB.

Every epoch takes a little of each source, so that windows and rows of joins end in the middle of
the story: what ends while another source stands still has to be told all the same.
"""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from tests.integration.spark.conftest import Build
from tests.integration.spark.project import START, Project, run_until_done

# Four epochs of six views.
pytestmark = pytest.mark.timeout(900)

TABLES = ("orders", "payments", "refunds")
SOURCES = "".join(
    f"""
CREATE SOURCE TABLE {name} (
  id BIGINT, customer STRING, cents BIGINT, at TIMESTAMP, WATERMARK FOR at AS at
) WITH (connector = 'file', path = '{name}', format = 'ndjson', 'idle.timeout' = 'never');
"""
    for name in TABLES
)
MINUTES = (
    "SELECT '{0}' AS kind, unix_micros(window_end) AS until, COUNT(*) AS n FROM {0}"
    " GROUP BY TUMBLE(at, INTERVAL '10' SECOND)"
)
MINUTES_ANSWER = (
    "SELECT '{0}', (us // 10000000 + 1) * 10000000 AS until, count(*) FROM {0} GROUP BY until"
)
FOREVER = "EMIT CHANGES WITH (state.ttl = 'unbounded')"
# Each view with its key in the sink, if its rows change, and the same of DuckDB.
VIEWS: dict[str, tuple[str, str, str]] = {
    "windows": (
        f"{MINUTES.format('orders')} UNION ALL {MINUTES.format('payments')}",
        "",
        f"{MINUTES_ANSWER.format('orders')} UNION ALL {MINUTES_ANSWER.format('payments')}",
    ),
    "paid": (
        "SELECT o.id, p.id AS payment, r.id AS refund FROM orders o"
        " LEFT JOIN payments p ON o.id = p.id AND p.at BETWEEN o.at AND o.at + INTERVAL '5' SECOND"
        " LEFT JOIN refunds r ON o.id = r.id AND r.at BETWEEN o.at AND o.at + INTERVAL '8' SECOND",
        "",
        "SELECT o.id, p.id, r.id FROM orders o LEFT JOIN payments p ON o.id = p.id"
        " AND p.us BETWEEN o.us AND o.us + 5000000"
        " LEFT JOIN refunds r ON o.id = r.id AND r.us BETWEEN o.us AND o.us + 8000000",
    ),
    "some": ("SELECT id, cents FROM orders UNION ALL SELECT id, cents FROM payments", "", ""),
    "everything": (
        "SELECT id, cents FROM some UNION ALL SELECT id, -cents FROM refunds",
        "",
        "SELECT id, cents FROM orders UNION ALL SELECT id, cents FROM payments"
        " UNION ALL SELECT id, -cents FROM refunds",
    ),
    "owners": (
        f"SELECT id, MAX_BY(customer, at) AS customer FROM orders GROUP BY id {FOREVER}",
        "id",
        "SELECT id, arg_max(customer, us) FROM orders GROUP BY id",
    ),
    # An order that gets another customer moves to another bucket.
    "owned": (
        "SELECT o.id, o.customer, c.cents FROM owners o LEFT JOIN (SELECT customer, SUM(cents) AS"
        f" cents FROM payments GROUP BY customer) c ON o.customer = c.customer {FOREVER}",
        "id",
        "SELECT id, customer, cents FROM (SELECT id, arg_max(customer, us) AS customer FROM orders"
        " GROUP BY id) LEFT JOIN (SELECT customer, sum(cents) AS cents FROM payments"
        " GROUP BY customer) USING (customer)",
    ),
}
PACES = {"orders": 1.0, "payments": 0.7, "refunds": 1.3}
EPOCHS, EACH = 4, 60


def lay_out(root: Path) -> None:
    folder = root / "dbt_like_configs" / "clicks"
    for each in (folder / "models").iterdir():
        each.unlink()
    (folder / "pipeline.yml").write_text("name: clicks\nstore: state\nbuckets: 5\n")
    (folder / "sources.sql").write_text(SOURCES)
    sinks = []
    for name, (sql, key, _) in VIEWS.items():
        (folder / "models" / f"{name}.sql").write_text(sql)
        mode = f", mode = 'upsert', key = '{key}'" if key else ""
        options = f"connector = 'sqlite', path = 'out.db', table = '{name}'{mode}"
        if name != "some":
            sinks.append(f"CREATE SINK to_{name} FROM {name} WITH ({options});")
    (folder / "sinks.sql").write_text("\n".join(sinks))


def test_what_ends_is_told_however_fast_each_source_goes(project: Project, build: Build) -> None:
    lay_out(project.root)
    chance = random.Random(7)
    rows: dict[str, list[tuple[int, str, int, int]]] = {name: [] for name in TABLES}
    for name in TABLES:
        (project.root / name).mkdir()
    for _ in range(EPOCHS):
        for name in TABLES:
            with (project.root / name / "a.ndjson").open("a") as out:
                for _ in range(EACH):
                    passed = len(rows[name]) * PACES[name]
                    at = START + timedelta(microseconds=round(passed * 1e6))
                    row = (chance.randrange(40), f"c{chance.randrange(9)}", chance.randrange(99))
                    moment = round(at.timestamp() * 1e6)
                    rows[name].append((*row, moment))
                    fields = dict(zip(("id", "customer", "cents"), row, strict=True))
                    out.write(json.dumps({**fields, "at": at.isoformat()}) + "\n")
        run_until_done(build())
    # Far enough for every order to be told, and nothing of it in the answer.
    for name in TABLES:
        with (project.root / name / "a.ndjson").open("a") as out:
            later = (START + timedelta(days=1)).isoformat()
            out.write(json.dumps({"id": -1, "customer": "", "cents": 0, "at": later}) + "\n")
    run_until_done(build())
    with (
        closing(duckdb.connect()) as oracle,
        closing(sqlite3.connect(project.root / "out.db")) as database,
    ):
        for name in TABLES:
            oracle.execute(
                f"CREATE TABLE {name} (id BIGINT, customer TEXT, cents BIGINT, us BIGINT)"
            )
            oracle.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?)", rows[name])
        for name, (_, _, answer) in VIEWS.items():
            if not answer:
                continue
            found = database.execute(f"SELECT * FROM {name}").fetchall()
            kept = [row for row in found if row[0] != -1]
            wanted = oracle.execute(answer).fetchall()
            assert sorted(kept, key=repr) == sorted(wanted, key=repr), name
            assert len(wanted) > 20, name
