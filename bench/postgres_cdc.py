"""PostgreSQL tables as a source: the snapshot, the stream, and what the server pays for them.

Rows are counted in every figure: one that is missing, or one too many, is no figure.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Final

import psycopg
from psycopg import sql

from bench.counted import rate, require_count
from bench.figures import Benchmark, Figure
from bench.measure import Effort, Sample, call, one_by_one, timed
from bench.surroundings import Surroundings
from infra.postgres import Postgres, PostgresEndpoint
from laminar_dagster.config.model import Column, Place, SourceTable
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import PostgresPosition, SourcePosition
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission, ObjectStore
from laminar_dagster.runtime.snapshots import StoredSnapshots
from laminar_dagster.sources.postgres.source import PostgresCdcSource
from laminar_dagster.sources.postgres.traits import postgres_cdc_traits

ROWS: Final = 1_000_000
_LEAST: Final = 20_000
_SETTINGS: Final = {"wal_level": "logical", "max_wal_size": "4GB"}
_SOURCE: Final = SourceId("bench")
_SLOT: Final = "bench"
_CLOCK: Final = datetime(2026, 1, 1, tzinfo=UTC)
_NO_LIMIT: Final = Admission()
_MAKE: Final = (
    "CREATE TABLE events (id bigint PRIMARY KEY, page text, amount numeric(10, 2), at timestamptz)",
    "ALTER TABLE events REPLICA IDENTITY FULL",
    "CREATE PUBLICATION bench FOR TABLE events",
)
_FILL: Final = """
    INSERT INTO events
    SELECT n, 'page ' || n % 100, n % 10000 / 100.0, '2026-01-01'::timestamptz + n * interval '1 ms'
    FROM generate_series({first}, {last}) AS n
"""
_COLUMNS: Final = (
    Column("id", "bigint", nullable=False),
    Column("page", "string"),
    Column("amount", "decimal(10,2)"),
    Column("at", "timestamp"),
)
_PEEK: Final = sql.SQL(
    "COPY (SELECT data FROM pg_logical_slot_peek_binary_changes({slot}, NULL, NULL, "
    "'proto_version', '1', 'publication_names', 'bench')) TO STDOUT (FORMAT binary)"
)


@dataclass(frozen=True)
class Stand:
    """A server with a table, and a source on it."""

    server: Postgres
    endpoint: PostgresEndpoint
    store: ObjectStore

    def run(self, *statements: str) -> None:
        """Each in a transaction of its own."""
        with psycopg.connect(self.endpoint.dsn(), autocommit=True) as connection:
            for each in statements:
                connection.execute(each)

    def source(self) -> PostgresCdcSource:
        """As a pipeline would build it."""
        options = {
            "host": self.endpoint.host,
            "port": str(self.endpoint.port),
            "database": self.endpoint.database,
            "user": self.endpoint.user,
            "password": self.endpoint.password,
            "tables": "events",
            "slot": _SLOT,
            "before": "required",
            "retain.wal": "none",
        }
        added = postgres_cdc_traits(options).columns
        table = SourceTable(
            source_id=_SOURCE,
            columns=(*_COLUMNS, *added),
            watermark=None,
            connector="postgres-cdc",
            options=options,
            place=Place("bench", 1),
            added=tuple(each.name for each in added),
        )
        keeper = StoredSnapshots(self.store, _SOURCE)
        return PostgresCdcSource.from_table(table, Path(), {}, keeper)

    def raw(self, statement: str | sql.Composed) -> int:
        """Read a COPY, and do nothing with it; how many bytes there were."""
        with psycopg.connect(self.endpoint.dsn()) as connection:
            with connection.cursor().copy(statement) as copy:
                return sum(map(len, copy))

    def program(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the server's."""
        return subprocess.run(
            [str(self.server.require() / name), *arguments],
            env=self.endpoint.environment(),
            capture_output=True,
            text=True,
            check=True,
        )


@dataclass
class Epochs:
    """Ranges of one source, one after the other."""

    source: PostgresCdcSource
    previous: SourcePlan | None = None

    @property
    def at(self) -> tuple[SourcePosition, ...]:
        """Where the next one begins."""
        return tuple(part.end for part in self.previous.ranges) if self.previous else ()

    def next(self) -> int:
        """Plan and read one; how many records it held."""
        self.previous = self.source.plan(self.previous, self.at, _NO_LIMIT, _CLOCK)
        return read(self.source, self.previous)


def read(source: PostgresCdcSource, plan: SourcePlan) -> int:
    """Read a plan's ranges; how many records they hold."""
    reader = source.reader()
    return sum(
        chunk.records
        for part in plan.ranges
        for split in source.splits(part)
        for chunk in reader.read(split)
    )


def postgres_cdc(surroundings: Surroundings) -> Iterator[Figure]:
    """All figures, on one server."""
    effort = surroundings.effort
    rows = max(_LEAST, effort.scaled(ROWS))
    with Postgres(_SETTINGS) as server:
        endpoint = server.start(surroundings.folder())
        stand = Stand(server, endpoint, surroundings.local_store())
        stand.run(*_MAKE, _FILL.format(first=1, last=rows))
        epochs = Epochs(stand.source())
        yield from _snapshot(stand, epochs, rows)
        yield from _stream(stand, epochs, rows, effort, surroundings.folder())
        yield from _seek(stand, epochs, effort)
        yield _load(stand, epochs, effort)


def _snapshot(stand: Stand, epochs: Epochs, rows: int) -> Iterator[Figure]:
    """Taken once: the slot is made by it."""
    raw = timed(lambda: stand.raw("COPY events TO STDOUT (FORMAT csv)"))
    copied = timed(lambda: epochs.source.prepare(None, ()))
    yield Figure(
        "postgres-cdc-snapshot",
        f"copy {rows:,} rows into the store, and make the slot",
        Sample((rows / copied,)),
        unit="records/s",
        peer="COPY TO STDOUT of the table, nothing done with it",
        peer_sample=Sample((rows / raw,)),
    )
    taken = timed(lambda: require_count(epochs.next(), rows))
    yield Figure(
        "postgres-cdc-snapshot-read",
        "read them from the store, in one process",
        Sample((rows / taken,)),
        unit="records/s",
    )


def _stream(
    stand: Stand, epochs: Epochs, rows: int, effort: Effort, folder: Path
) -> Iterator[Figure]:
    stand.run(_FILL.format(first=rows + 1, last=2 * rows))
    plan = epochs.source.plan(epochs.previous, epochs.at, _NO_LIMIT, _CLOCK)
    end = plan.ranges[0].end
    assert isinstance(end, PostgresPosition)
    stop = f"{end.lsn >> 32:X}/{end.lsn & 0xFFFFFFFF:X}"
    stand.run(f"SELECT pg_copy_logical_replication_slot('{_SLOT}', 'recv')")
    files = iter(range(1_000_000))

    def receive(_: int) -> float:
        # A slot that it reads is moved by it, so each round reads a copy.
        name = f"recv_{next(files)}"
        stand.run(f"SELECT pg_copy_logical_replication_slot('recv', '{name}')")
        out = folder / name
        options = ("-o", "proto_version=1", "-o", "publication_names=bench")
        command = (
            "pg_recvlogical", "--dbname", "postgres", "--slot", name, "--start", "--no-loop",
            "--endpos", stop, "--file", str(out), *options,
        )  # fmt: skip
        taken = timed(lambda: stand.program(*command))
        stand.run(f"SELECT pg_drop_replication_slot('{name}')")
        out.unlink()
        return taken

    peek = _PEEK.format(slot=sql.Literal(_SLOT))
    own, planned, raw, received = one_by_one(
        effort,
        call(lambda: require_count(read(epochs.source, plan), rows)),
        call(lambda: epochs.source.plan(epochs.previous, epochs.at, _NO_LIMIT, _CLOCK)),
        call(lambda: stand.raw(peek)),
        receive,
    )
    yield Figure(
        "postgres-cdc-stream",
        f"read {rows:,} inserts of one transaction",
        rate(own, rows),
        unit="records/s",
        peer="pg_recvlogical into a file, nothing decoded",
        peer_sample=rate(received, rows),
    )
    yield Figure(
        "postgres-cdc-stream-raw",
        "the same, beside the same query with nothing decoded",
        rate(own, rows),
        unit="records/s",
        peer="peek within COPY, nothing done with it",
        peer_sample=rate(raw, rows),
    )
    yield Figure("postgres-cdc-plan", "plan that range: the server decodes it", planned)
    epochs.previous = plan
    stand.run("SELECT pg_drop_replication_slot('recv')")


def _seek(stand: Stand, epochs: Epochs, effort: Effort) -> Iterator[Figure]:
    epochs.source.acknowledge(epochs.at)
    (at,) = epochs.at
    (seek, idle) = one_by_one(
        effort, call(lambda: epochs.source.check_seek(at)), call(lambda: epochs.next())
    )
    yield Figure("postgres-cdc-seek", "find out whether reading can resume at a place", seek)
    yield Figure("postgres-cdc-idle", "plan and read an epoch when nothing waits", idle)


def _load(stand: Stand, epochs: Epochs, effort: Effort) -> Figure:
    """How many transactions a second pgbench does, without and with a source that keeps up."""
    seconds = max(3, round(20 * effort.scale))
    stand.program("pgbench", "--initialize", "--quiet", "--scale", "5", "postgres")
    stand.run("ALTER PUBLICATION bench ADD TABLE pgbench_history")
    without: list[float] = []
    beside: list[float] = []
    for _ in range(min(3, effort.rounds)):
        without.append(_transactions_a_second(stand, seconds))
        beside.append(_while(_keep_up(epochs), lambda: _transactions_a_second(stand, seconds)))
    return Figure(
        "postgres-cdc-load",
        "transactions a second of pgbench on 2 clients, while epochs follow",
        Sample(tuple(beside)),
        unit="records/s",
        peer="pgbench alone, the slot there and nobody reading it",
        peer_sample=Sample(tuple(without)),
        note="client, server and reader share the machine",
    )


def _keep_up(epochs: Epochs) -> Callable[[], None]:
    def once() -> None:
        epochs.next()
        epochs.source.acknowledge(epochs.at)
        time.sleep(0.5)

    return once


def _while(act: Callable[[], None], measure: Callable[[], float]) -> float:
    over = Event()
    failures: list[BaseException] = []

    def repeat() -> None:
        try:
            while not over.is_set():
                act()
        except BaseException as error:
            failures.append(error)

    thread = Thread(target=repeat)
    thread.start()
    try:
        return measure()
    finally:
        over.set()
        thread.join()
        if failures:
            raise failures[0]


def _transactions_a_second(stand: Stand, seconds: int) -> float:
    done = stand.program("pgbench", "--client", "2", "--time", str(seconds), "postgres")
    found = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
    if found is None:
        raise ValueError(f"pgbench told no rate:\n{done.stdout}")
    return float(found[1])


BENCHMARK: Final = Benchmark(
    "postgres-cdc", "changes of PostgreSQL tables, beside pg_recvlogical", postgres_cdc
)
