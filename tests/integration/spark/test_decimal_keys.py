"""Keys of many digits from SQL to a Delta table: one row each, whatever is updated or deleted."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal

from deltalake import DeltaTable

from laminar_dagster.core.ports import Admission
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.sinks.delta.sink import DeltaSink
from tests.integration.spark.conftest import Build
from tests.integration.spark.project import Project, random_records, run_until_done

# To a float all accounts are this one.
FIRST = 10**19
MOST = 12
VIEWS = {
    "accounts": f"SELECT CAST(n AS DECIMAL(20, 0)) + {FIRST} AS account, n FROM clicks",
    "totals": "SELECT account, COUNT(*) AS clicks FROM accounts GROUP BY account"
    f" HAVING COUNT(*) < {MOST} EMIT CHANGES WITH (state.ttl = 'unbounded')",
}


def test_an_account_of_twenty_digits_has_one_row(project: Project, build: Build) -> None:
    folder = project.root / "dbt_like_configs" / "clicks"
    for each in (folder / "models").iterdir():
        each.unlink()
    for name, sql in VIEWS.items():
        (folder / "models" / f"{name}.sql").write_text(sql)
    (folder / "sinks.sql").write_text(
        "CREATE SINK lake FROM totals WITH"
        " (connector = 'delta', path = 'lake', mode = 'upsert', key = 'account');"
    )
    clicks = random_records(random.Random(5), 150)
    pipeline = build(limits=Admission(max_records=25))
    project.append("a.ndjson", clicks[:60])
    EpochRunner(pipeline).run()
    project.append("b.ndjson", clicks[60:])
    run_until_done(pipeline)
    counted = Counter(Decimal(FIRST + each.n) for each in project.on_time())
    expected = {account: count for account, count in counted.items() if count < MOST}
    assert 0 < len(expected) < len(counted)
    rows = DeltaTable(project.root / "lake").to_pyarrow_table().select(["account", "clicks"])
    assert sorted(zip(*rows.to_pydict().values(), strict=True)) == sorted(expected.items())
    (lake,) = pipeline.sinks
    assert isinstance(lake, DeltaSink)
    assert lake.repeated_keys().count == 0
