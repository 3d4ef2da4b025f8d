"""MariaDB tables as a source: the copy and the log, beside the reader that Python has for it.

Rows are counted in every figure: one that is missing, or one too many, is no figure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from bench.counted import rate, require_count
from bench.figures import Benchmark, Figure
from bench.measure import Effort, Sample, call, one_by_one, timed
from bench.surroundings import Surroundings
from infra.mariadb import Mariadb
from infra.mysql_endpoint import MysqlEndpoint
from laminar_dagster.clients.mysql.binlog import dump
from laminar_dagster.clients.mysql.server import Server
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import MysqlPosition, SourceRange
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission, ObjectStore
from laminar_dagster.runtime.snapshots import StoredSnapshots
from laminar_dagster.sources.mysql.options import MysqlCdcOptions
from laminar_dagster.sources.mysql.source import MysqlCdcSource

ROWS: Final = 500_000
TRANSACTIONS: Final = 20_000
_LEAST: Final = 20_000
_SETTINGS: Final = {
    "log-bin": "binlog",
    "server-id": "1",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "innodb-flush-log-at-trx-commit": "0",
}
_SOURCE: Final = SourceId("bench")
_CLOCK: Final = datetime(2026, 1, 1, tzinfo=UTC)
_NO_LIMIT: Final = Admission()
_MAKE: Final = (
    "CREATE TABLE events (id BIGINT PRIMARY KEY, page VARCHAR(40), amount DECIMAL(10, 2),"
    " at DATETIME(6))"
)
_FILL: Final = (
    "INSERT INTO events SELECT seq, CONCAT('page ', seq % 100), seq % 10000 / 100, NOW(6)"
    " FROM seq_{first}_to_{last}"
)
_SCHEMA: Final = (
    ("id", "int64"),
    ("page", "string"),
    ("amount", "decimal"),
    ("at", "timestamp"),
    ("_weight", "int8"),
)


def _schema() -> pa.Schema:
    kinds = {"decimal": pa.decimal128(10, 2), "timestamp": pa.timestamp("us")}
    return pa.schema([(name, kinds.get(kind, kind)) for name, kind in _SCHEMA])


@dataclass(frozen=True)
class Stand:
    """A server with a table, and a source on it."""

    endpoint: MysqlEndpoint
    store: ObjectStore

    @property
    def server(self) -> Server:
        """How the source gets in."""
        found = self.endpoint
        return Server(
            found.host,
            found.database,
            found.user,
            port=found.port,
            password=found.password,
            ssl_mode="disabled",
        )

    def run(self, *statements: str) -> None:
        """Each in a transaction of its own."""
        with closing(self.endpoint.connect()) as connection, connection.cursor() as cursor:
            for each in statements:
                cursor.execute(each)

    def source(self) -> MysqlCdcSource:
        """As a pipeline would build it."""
        tables = ((self.endpoint.database, "events"),)
        options = MysqlCdcOptions(server=self.server, tables=tables, scan_bytes=2**32)
        return MysqlCdcSource(_SOURCE, _schema(), options, StoredSnapshots(self.store, _SOURCE))

    def dump(self, part: SourceRange) -> None:
        """Receive the log, and do nothing with it."""
        start = _place(part.start)
        with closing(self.server.connect("bench")) as session:
            for _ in dump(session, start.binlog_file, start.binlog_position):
                pass

    def library(self, part: SourceRange) -> int:
        """Read the log as most do; how many rows were changed."""
        start, end = _place(part.start), _place(part.end)
        found = self.endpoint
        place: dict[str, Any] = {"host": found.host, "port": found.port}
        stream = BinLogStreamReader(
            connection_settings={**place, "user": found.user, "password": found.password},
            server_id=4711,
            resume_stream=True,
            log_file=start.binlog_file,
            log_pos=start.binlog_position,
            only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        )
        count = 0
        with closing(stream):
            for event in stream:
                if stream.log_pos > end.binlog_position:
                    break
                count += len(event.rows)
        return count


def mysql_cdc(surroundings: Surroundings) -> Iterator[Figure]:
    """All figures, on one server."""
    effort = surroundings.effort
    rows = max(_LEAST, effort.scaled(ROWS))
    with Mariadb(_SETTINGS) as server:
        stand = Stand(server.start(surroundings.folder()), surroundings.local_store())
        stand.run(_MAKE, _FILL.format(first=1, last=rows))
        source = stand.source()
        yield from _snapshot(stand, source, rows)
        first = source.plan(None, (), _NO_LIMIT, _CLOCK)
        stand.run(_FILL.format(first=rows + 1, last=2 * rows))
        plan = _next(source, first)
        yield from _stream(stand, source, plan, rows, effort)
        yield from _seek(source, plan, effort)
        few = min(rows, effort.scaled(TRANSACTIONS))
        stand.run(*(f"UPDATE events SET amount = -1 WHERE id = {key + 1}" for key in range(few)))
        yield _transactions(stand, source, _next(source, plan), few, effort)


def _snapshot(stand: Stand, source: MysqlCdcSource, rows: int) -> Iterator[Figure]:
    """Taken once."""

    def select() -> None:
        with closing(stand.endpoint.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT * FROM events")
            require_count(len(cursor.fetchall()), rows)

    raw = timed(select)
    copied = timed(lambda: source.prepare(None, ()))
    yield Figure(
        "mysql-cdc-snapshot",
        f"copy {rows:,} rows into the store",
        Sample((rows / copied,)),
        unit="records/s",
        peer="SELECT of the table with PyMySQL, nothing done with it",
        peer_sample=Sample((rows / raw,)),
    )


def _stream(
    stand: Stand, source: MysqlCdcSource, plan: SourcePlan, rows: int, effort: Effort
) -> Iterator[Figure]:
    (part,) = plan.ranges
    own, planned, raw = one_by_one(
        effort,
        call(lambda: require_count(_read(source, plan), rows)),
        call(lambda: source.plan(None, (part.start,), _NO_LIMIT, _CLOCK)),
        call(lambda: stand.dump(part)),
    )
    library = timed(lambda: require_count(stand.library(part), rows))
    yield Figure(
        "mysql-cdc-stream",
        f"read {rows:,} inserts of one transaction",
        rate(own, rows),
        unit="records/s",
        peer="mysql-replication",
        peer_sample=Sample((rows / library,)),
    )
    yield Figure(
        "mysql-cdc-stream-raw",
        "the same, beside the same log with nothing decoded",
        rate(own, rows),
        unit="records/s",
        peer="COM_BINLOG_DUMP, nothing done with it",
        peer_sample=rate(raw, rows),
    )
    yield Figure("mysql-cdc-plan", "plan that range: the log is looked through", planned)


def _seek(source: MysqlCdcSource, plan: SourcePlan, effort: Effort) -> Iterator[Figure]:
    (at,) = (part.end for part in plan.ranges)
    seek, idle = one_by_one(
        effort, call(lambda: source.check_seek(at)), call(lambda: _next(source, plan))
    )
    yield Figure("mysql-cdc-seek", "find out whether reading can resume at a place", seek)
    yield Figure("mysql-cdc-idle", "plan an epoch when nothing waits", idle)


def _transactions(
    stand: Stand, source: MysqlCdcSource, plan: SourcePlan, count: int, effort: Effort
) -> Figure:
    (part,) = plan.ranges
    (own,) = one_by_one(effort, call(lambda: require_count(_read(source, plan), count)))
    library = timed(lambda: require_count(stand.library(part), count))
    return Figure(
        "mysql-cdc-transactions",
        f"read {count:,} updates, each a transaction",
        rate(own, count),
        unit="records/s",
        peer="mysql-replication",
        peer_sample=Sample((count / library,)),
    )


def _next(source: MysqlCdcSource, previous: SourcePlan) -> SourcePlan:
    ends = tuple(part.end for part in previous.ranges)
    return source.plan(previous, ends, _NO_LIMIT, _CLOCK)


def _read(source: MysqlCdcSource, plan: SourcePlan) -> int:
    reader = source.reader()
    return sum(chunk.records for part in plan.ranges for chunk in reader.read(part))


def _place(position: object) -> MysqlPosition:
    assert isinstance(position, MysqlPosition)
    return position


BENCHMARK: Final = Benchmark(
    "mysql-cdc", "changes of MariaDB tables, beside mysql-replication", mysql_cdc
)
