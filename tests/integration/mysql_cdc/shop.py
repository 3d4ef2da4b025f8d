"""A database whose tables are captured, and the source that captures them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pymysql

from infra.mysql_endpoint import MysqlEndpoint
from laminar_dagster.clients.mysql.server import Server
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import SourcePosition
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission, SnapshotKeeper
from laminar_dagster.runtime.snapshots import StoredSnapshots
from laminar_dagster.sources.mysql.options import MysqlCdcOptions
from laminar_dagster.sources.mysql.source import MysqlCdcSource
from laminar_dagster.testing.memory_store import MemoryStore

SOURCE = SourceId("orders")
CLOCK = datetime(2100, 1, 1, tzinfo=UTC)
NO_LIMIT = Admission()
COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("_weight", pa.int8()),
    ]
)


@dataclass
class Shop:
    """A database of its own, one table in it, and one pipeline's memory of it."""

    endpoint: MysqlEndpoint
    database: str
    schema: pa.Schema = COLUMNS
    table: str = "orders"
    options: dict[str, Any] = field(default_factory=dict)
    keeper: SnapshotKeeper = field(default_factory=lambda: StoredSnapshots(MemoryStore(), SOURCE))
    plans: list[SourcePlan] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._connection = self.endpoint.connect(self.database)

    def run(self, *statements: str) -> tuple[tuple[Any, ...], ...]:
        """Execute statements, each in a transaction of its own unless they say otherwise."""
        rows: tuple[tuple[Any, ...], ...] = ()
        with self._connection.cursor() as cursor:
            for each in statements:
                cursor.execute(each)
                rows = cursor.fetchall()
        return rows

    def insert(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """In one transaction."""
        self._connection.begin()
        with self._connection.cursor() as cursor:
            for row in rows:
                marks = ", ".join(["%s"] * len(row))
                cursor.execute(f"INSERT INTO {self.table} VALUES ({marks})", row)
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()

    @property
    def is_mysql(self) -> bool:
        """Or MariaDB."""
        ((version,),) = self.run("SELECT version()")
        return "MariaDB" not in version

    def log_end(self) -> tuple[str, int]:
        """Where the server writes next."""
        statement = "SHOW BINARY LOG STATUS" if self.is_mysql else "SHOW MASTER STATUS"
        ((file, position, *_),) = self.run(statement)
        return file, position

    def reset_log(self) -> None:
        """Begin a new log under the old names."""
        self.run("RESET BINARY LOGS AND GTIDS" if self.is_mysql else "RESET MASTER")

    def connect(self) -> pymysql.Connection[pymysql.cursors.Cursor]:
        """A connection of its own."""
        return self.endpoint.connect(self.database)

    def source(self) -> MysqlCdcSource:
        """As a process that has just begun would open it."""
        endpoint = self.endpoint
        server = Server(
            endpoint.host,
            self.database,
            endpoint.user,
            port=endpoint.port,
            password=endpoint.password,
            ssl_mode="disabled",
        )
        tables = ((self.database, self.table),)
        given = {"server": server, "tables": tables, **self.options}
        return MysqlCdcSource(SOURCE, self.schema, MysqlCdcOptions(**given), self.keeper)

    # --- epochs -------------------------------------------------------------------------------

    @property
    def ends(self) -> tuple[SourcePosition, ...]:
        return tuple(part.end for part in self.plans[-1].ranges) if self.plans else ()

    def plan(self, limits: Admission = NO_LIMIT) -> SourcePlan:
        """Plan the next epoch, and take it for committed."""
        source = self.source()
        previous = self.plans[-1] if self.plans else None
        source.prepare(previous, self.ends)
        plan = source.plan(previous, self.ends, limits, CLOCK)
        source.verify(plan)
        self.plans.append(plan)
        return plan

    def read(self, plan: SourcePlan) -> pa.Table:
        """The rows of a plan, none of them bad."""
        source = self.source()
        batches = []
        for part in plan.ranges:
            for split in source.splits(part):
                for chunk in source.reader().read(split):
                    assert not chunk.bad.num_rows, chunk.bad.to_pylist()
                    batches.append(chunk.rows)
        return pa.Table.from_batches(batches, self.schema)

    def epoch(self, limits: Admission = NO_LIMIT) -> list[dict[str, Any]]:
        """Plan and read the next epoch."""
        return [*self.read(self.plan(limits)).to_pylist()]

    def catch_up(self, limits: Admission = NO_LIMIT) -> list[dict[str, Any]]:
        """Epochs until nothing is left."""
        found: list[dict[str, Any]] = []
        while True:
            plan = self.plan(limits)
            if all(part.is_empty for part in plan.ranges):
                return found
            found += self.read(plan).to_pylist()
