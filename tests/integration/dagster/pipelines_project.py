"""A project of two pipelines, one of which reads what the other writes, and the answer to both.

``clickstream`` reads the clicks of two web servers: by page and minute they go to SQLite, purchases
to a Delta table. ``alerts`` reads the folder of that table, and puts large purchases into SQLite.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import Any, Final

from deltalake import DeltaTable

from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.stores.local import LocalStore
from tests.integration.proof.answer import TIMESTAMP, Answer, Rows, counted, moment

MAX_RECORDS: Final = 1_000

# An environment variable that the pipeline's files name, and what an author wrote into them.
SECRET_VARIABLE: Final = "LAKE_PASSWORD"
LITERAL_SECRETS: Final = ("literal-kestrel-4471", "literal-heron-9923")

_START: Final = datetime(2026, 3, 1, 9, tzinfo=UTC)
_PAGES: Final = ("/", "/basket", "/checkout", "/search", "/shoes")

_CLICKSTREAM: Final[Mapping[str, str]] = {
    "pipeline.yml": f"""\
name: clickstream
description: Clicks by page and minute, and every purchase.
store: .laminar/clickstream
owners: ["team:web-shop"]
epoch: {{max_records: {MAX_RECORDS}, max_delay: 2s}}
retention: {{checkpoints: 100}}
buckets: 2
spark:
  spark.sql.shuffle.partitions: 2
  spark.sql.catalog.lake.password: ${{{SECRET_VARIABLE}}}
  spark.sql.catalog.lake.url: jdbc:postgresql://ann:${{{SECRET_VARIABLE}}}@db.example/lake
  spark.sql.catalog.shop.token: {LITERAL_SECRETS[0]}
  spark.sql.catalog.shop.url: jdbc:postgresql://bob:{LITERAL_SECRETS[1]}@db.example/shop
""",
    "sources.sql": """\
-- What the web servers of the shop log: a JSON object a line.
CREATE SOURCE TABLE clicks (
    visitor  BIGINT,
    page     STRING,
    amount   DECIMAL(10, 2),
    at       TIMESTAMP,
    WATERMARK FOR at AS at - INTERVAL '5' SECOND
) WITH (
    connector = 'file', path = 'input/clicks', pattern = '*.ndjson', format = 'ndjson',
    'idle.timeout' = '1d'
);
""",
    "models/page_minutes.sql": """\
CREATE MATERIALIZED VIEW page_minutes AS
SELECT
    page,
    TUMBLE_START(at, INTERVAL '1' MINUTE) AS minute,
    COUNT(*)                              AS clicks,
    COALESCE(SUM(amount), 0)              AS revenue
FROM clicks
GROUP BY TUMBLE(at, INTERVAL '1' MINUTE), page
EMIT ON WINDOW CLOSE;
""",
    "models/purchases.sql": "SELECT visitor, page, amount, at\nFROM clicks\nWHERE amount > 0\n",
    "sinks.sql": """\
CREATE SINK minutes FROM page_minutes WITH (
    connector = 'sqlite', path = 'output/shop.db', table = 'page_report'
);
CREATE SINK purchases FROM purchases WITH (connector = 'delta', path = 'output/purchase_history');
""",
}
_ALERTS: Final[Mapping[str, str]] = {
    "pipeline.yml": """\
name: alerts
description: Purchases that somebody should look at.
store: .laminar/alerts
owners: ["team:fraud"]
epoch: {max_delay: 2s}
retention: {checkpoints: 100}
buckets: 2
""",
    "sources.sql": """\
-- The purchases that clickstream publishes.
CREATE SOURCE TABLE purchases (
    visitor BIGINT, page STRING, amount DECIMAL(10, 2), at TIMESTAMP
) WITH (
    connector = 'file', path = 'output/purchase_history', pattern = '*.parquet', format = 'parquet'
);
""",
    "models/large_purchases.sql": (
        "SELECT visitor, page, amount, at\nFROM purchases\nWHERE amount >= 400\n"
    ),
    "sinks.sql": """\
CREATE SINK alerts FROM large_purchases WITH (
    connector = 'sqlite', path = 'output/alerts.db', table = 'alerts'
);
""",
}
# Its sink is away, and has a password in its address.
_ARCHIVE: Final[Mapping[str, str]] = {
    "pipeline.yml": "name: archive\nstore: .laminar/archive\nbuckets: 1\n",
    "sources.sql": _CLICKSTREAM["sources.sql"],
    "models/visits.sql": "SELECT visitor, at FROM clicks\n",
    "sinks.sql": f"""\
CREATE SINK archive FROM visits WITH (
    connector = 'delta', path = 's3://archive/visits',
    'storage.aws_endpoint' = 'http://ann:${{{SECRET_VARIABLE}}}@127.0.0.1:9',
    'storage.aws_secret_access_key' = '{LITERAL_SECRETS[0]}',
    'storage.aws_access_key_id' = 'ann', 'storage.aws_region' = 'us-east-1',
    'storage.aws_allow_http' = 'true', 'storage.max_retries' = '0'
);
""",
}
_COLUMNS: Final = (
    "(line ->> 'visitor')::BIGINT AS visitor, line ->> 'page' AS page,"
    f" (line ->> 'amount')::DECIMAL(10, 2) AS amount, {TIMESTAMP}"
)
_PAGE_MINUTES: Final = """
SELECT page, minute, count(*), coalesce(sum(amount), 0)::DECIMAL(20, 2)
FROM (SELECT *, time_bucket(INTERVAL '1 minute', "at") AS minute FROM clicks)
WHERE minute + INTERVAL '1 minute' <= (SELECT mark FROM clicks_watermark)
GROUP BY page, minute
"""
_PURCHASES: Final = 'SELECT visitor, page, amount, "at" FROM clicks WHERE amount > 0'
_ALERTED: Final = 'SELECT visitor, page, amount, "at" FROM clicks WHERE amount >= 400'


@dataclass
class Shop:
    """The project's folder: its files, its input, its sinks.

    Attributes:
        clicks: How many were made, of which some are late and some are no clicks.
    """

    root: Path
    clicks: int = 0
    _random: random.Random = field(default_factory=lambda: random.Random(7))

    def lay_out(self) -> None:
        """Write both pipelines, and what `dagster dev` loads; the template's, as they are."""
        self._write("clickstream", _CLICKSTREAM)
        self._write("alerts", _ALERTS)
        template = resources.files("laminar_dagster") / "project_template"
        for name in ("definitions.py", "workspace.yaml"):
            (self.root / name).write_text((template / f"{name}.template").read_text())
        (self.root / "input" / "clicks").mkdir(parents=True)
        # The folder of the table is there before the table, or `alerts` would miss its source.
        (self.root / "output" / "purchase_history").mkdir(parents=True)
        self.agree()

    def add_archive(self) -> None:
        """A third pipeline, whose sink cannot be reached."""
        self._write("archive", _ARCHIVE)

    def remove_archive(self) -> None:
        """Without it, the project is as it was."""
        shutil.rmtree(self.root / "dbt_like_configs" / "archive")

    def agree(self, *, most: int = 1_000, start: str = "/") -> None:
        """Write the contract of purchases: how much one is at most, how its page begins."""
        contract = self.root / "dbt_like_configs" / "clickstream" / "contracts" / "purchases.yml"
        contract.parent.mkdir(exist_ok=True)
        contract.write_text(
            "schema_type: dataframe\n"
            "columns:\n"
            f"  page: {{dtype: str, checks: {{str_startswith: {json.dumps(start)}}}}}\n"
            f"  amount: {{dtype: object, checks: {{less_than_or_equal_to: {most}}}}}\n"
        )

    def click(self, count: int) -> None:
        """The web servers log clicks, half of them each."""
        for server in ("a", "b"):
            lines = [self._line() for _ in range(count // 2)]
            self._append(server, "".join(f"{line}\n" for line in lines))

    def buy(self, amount: int, page: str = "/checkout") -> None:
        """One click of each server, with a purchase among them."""
        self.clicks += 3
        at = self._time()
        self._append("a", _click(1, page, amount, at) + "\n")
        self._append("b", _click(2, "/", None, at) + "\n")

    def committed(self, pipeline: str = "clickstream") -> list[str]:
        """The partition keys of epochs that every sink has."""
        checkpoints = self._checkpoints(pipeline)
        latest = checkpoints.latest() if checkpoints else None
        return [f"{epoch:012d}" for epoch in range(1, (latest.epoch if latest else 0) + 1)]

    def attempts(self) -> set[str]:
        """The ids of all attempts at epochs of clickstream, published or not."""
        folder = self.root / ".laminar" / "clickstream" / "checkpoints"
        return {each.name for each in folder.glob("*-*") if each.is_dir()}

    def published(self) -> dict[str, str]:
        """Which attempt each committed epoch of clickstream is of."""
        checkpoints = self._checkpoints("clickstream")
        found = {}
        for key in self.committed():
            prepared = checkpoints.prepared(EpochNumber(int(key))) if checkpoints else None
            assert prepared
            found[key] = str(prepared.checkpoint_id)
        return found

    def check(self, *, alerts: bool = False) -> None:
        """Every sink holds what DuckDB makes of the input, once, and each ledger says so."""
        answer = Answer()
        answer.add("clicks", self.root / "input" / "clicks", _COLUMNS)
        newest = len(self.committed())
        minutes = _read_sqlite(self.root / "output" / "shop.db", "page_report", _minute)
        _same("page_report", minutes, answer.rows(_PAGE_MINUTES))
        _same("purchase_history", self._lake(), answer.rows(_PURCHASES))
        assert self.ledger("shop.db", "minutes") == newest
        assert self.lake_ledgers() == [*range(1, newest + 1)]
        if alerts:
            rows = _read_sqlite(self.root / "output" / "alerts.db", "alerts", _purchase)
            _same("alerts", rows, answer.rows(_ALERTED))
            assert self.ledger("alerts.db", "alerts") == len(self.committed("alerts"))

    def ledger(self, database: str, sink: str) -> int:
        """The epoch that a SQLite sink is at."""
        with closing(sqlite3.connect(self.root / "output" / database, timeout=30)) as opened:
            wanted = "SELECT epoch FROM _laminar_ledger WHERE sink = ?"
            ((epoch,),) = opened.execute(wanted, (sink,)).fetchall()
        return int(epoch)

    def lake_ledgers(self) -> list[int]:
        """The epoch of each commit in the Delta table's log, in order."""
        found = []
        for entry in sorted(
            (self.root / "output" / "purchase_history" / "_delta_log").glob("*.json")
        ):
            actions = map(json.loads, entry.read_text().splitlines())
            found += [action["txn"]["version"] for action in actions if "txn" in action]
        return found

    def _write(self, pipeline: str, files: Mapping[str, str]) -> None:
        for path, text in files.items():
            target = self.root / "dbt_like_configs" / pipeline / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)

    def _lake(self) -> Rows:
        rows = DeltaTable(self.root / "output" / "purchase_history").to_pyarrow_table()
        columns = [rows.column(name).to_pylist() for name in ("visitor", "page", "amount", "at")]
        return counted(zip(*columns, strict=True))

    def _checkpoints(self, pipeline: str) -> CheckpointStore | None:
        folder = self.root / ".laminar" / pipeline
        return CheckpointStore(LocalStore(folder)) if folder.exists() else None

    def _append(self, server: str, text: str) -> None:
        with (self.root / "input" / "clicks" / f"server-{server}.ndjson").open("a") as file:
            file.write(text)

    def _line(self) -> str:
        self.clicks += 1
        if self.clicks % 97 == 0:
            return '{"visitor": 7, "page": '
        behind = timedelta(minutes=2) if self.clicks % 89 == 0 else timedelta()
        amount = self._random.randrange(1, 500) if self.clicks % 4 == 0 else None
        visitor = self._random.randrange(1_000)
        return _click(visitor, self._random.choice(_PAGES), amount, self._time() - behind)

    def _time(self) -> datetime:
        return _START + timedelta(seconds=self.clicks * 0.2)


def _click(visitor: int, page: str, amount: int | None, at: datetime) -> str:
    found = {"visitor": visitor, "page": page, "amount": amount, "at": at.isoformat()}
    return json.dumps(found)


def _read_sqlite(path: Path, table: str, typed: Any) -> Rows:
    with closing(sqlite3.connect(path, timeout=30)) as database:
        return counted(map(typed, database.execute(f"SELECT * FROM {table}").fetchall()))


def _minute(row: tuple[Any, ...]) -> tuple[Any, ...]:
    page, minute, clicks, revenue = row
    return page, moment(minute), clicks, Decimal(str(revenue))


def _purchase(row: tuple[Any, ...]) -> tuple[Any, ...]:
    visitor, page, amount, at = row
    return visitor, page, Decimal(str(amount)), moment(at)


def _same(sink: str, found: Rows, expected: Rows) -> None:
    assert expected, "an empty answer proves nothing"
    missing, surplus = expected - found, found - expected
    assert not missing and not surplus, (
        f"{sink}: {missing.total()} rows are missing, such as {list(missing)[:3]};"
        f" {surplus.total()} are too many, such as {list(surplus)[:3]}"
    )
