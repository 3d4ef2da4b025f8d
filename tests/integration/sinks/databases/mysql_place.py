"""A database on a real MariaDB or MySQL server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pymysql
import pytest

from infra.mysql_endpoint import MysqlEndpoint
from infra.wire_requests import is_mysql_commit
from laminar_dagster.clients.mysql.identifiers import quoted
from laminar_dagster.clients.mysql.server import Server
from laminar_dagster.clients.mysql.session import Session
from laminar_dagster.core.ids import SinkId
from laminar_dagster.core.ports import Sink
from laminar_dagster.sinks.mysql.connection import Limits
from laminar_dagster.sinks.mysql.sink import MysqlSink
from laminar_dagster.testing.sink_contract import Row
from tests.integration.sinks.databases.place import (
    CLERKS_PASSWORD,
    PIPELINE,
    DatabasePlace,
    OddNames,
    OtherClient,
    TlsOptions,
    Traits,
)
from tests.unit.sinks.staging import SINK

PLAIN = "CREATE TABLE t (k bigint PRIMARY KEY, v longtext) CHARACTER SET utf8mb4"


_NAME = "the 'table' %s `x`"
_TRAITS = Traits(
    text="longtext CHARACTER SET utf8mb4",
    key_text="varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin",
    numbered="n int AUTO_INCREMENT PRIMARY KEY",
    quote="`",
    recently="committed_at BETWEEN UTC_TIMESTAMP() - INTERVAL 1 HOUR AND UTC_TIMESTAMP(6)",
    shortest_limit=1.0,
    goodbye=b"\x01\0\0\0\x01",
    least_requests=20,
    commits_tables=False,
    # Within a stream, the server does not answer a single request.
    limits_in_a_stream={"statement": 1},
    stuck_stream=None,
    timed_out="timed out",
    hung_up="timed out",
    odd_names=OddNames(
        first="SELECT 1",
        table=_NAME,
        selected=quoted(_NAME),
        key="x`; DROP TABLE t; --",
        column="sélect %s {}",
        options={},
    ),
    tls=TlsOptions("ssl_mode", "ssl_ca", "ssl_cert", "ssl_key", "verify-identity", "disabled"),
)


@dataclass(frozen=True)
class Dialect:
    """Where one of the two servers has another word.

    Attributes:
        collation: Of the tables that are made: it tells all texts apart.
        loose_collation: One that sees spaces at the end, and takes ``a`` and ``A`` for one.
        engine: One that has no transactions.
        int_type: What ``int`` is called in the catalogue.
        of_table: What stands before the name of a key in an error.
        blames_row: Whether an error tells which row it is about, also where its text does not.
        isolation: The variable that holds the level of a session.
        other_settings: Variables that only this server has, and what a session has set them to.
    """

    collation: str
    loose_collation: str
    engine: str
    int_type: str
    of_table: str
    blames_row: bool
    isolation: str
    other_settings: Mapping[str, object]


@dataclass(frozen=True)
class MysqlPlace(DatabasePlace):
    """See ``DatabasePlace``.

    Attributes:
        bulk: Whether rows are streamed; they are inserted otherwise.
    """

    endpoint: MysqlEndpoint
    database: str
    bulk: bool = True

    dialect: ClassVar[Dialect]

    def server(self, **others: Any) -> Server:
        """The database, with some of its fields replaced."""
        return Server(**self.login(**others))

    def sink(
        self,
        table: str = "t",
        *,
        sink_id: SinkId = SINK,
        limits: Mapping[str, float] = {},
        server: Mapping[str, Any] = {},
        **options: Any,
    ) -> MysqlSink:
        place = self.server(**server)
        options = {"bulk": self.bulk, **options}
        return MysqlSink(sink_id, PIPELINE, place, table, limits=Limits(**limits), **options)

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(self.endpoint.connect(self.database)) as connection:
            with connection.cursor() as cursor:
                cursor.execute(statement, values or None)
                return list(cursor.fetchall())

    @contextmanager
    def other(self) -> Iterator[OtherClient]:
        with closing(self.endpoint.connect(self.database)) as connection:
            with connection.cursor() as cursor:
                connection.begin()
                yield OtherClient(cursor.execute, connection.commit)
                connection.rollback()

    def relations(self) -> list[str]:
        return sorted(name for (name,) in self.query("SHOW TABLES"))

    def columns_of(self, table: str) -> list[str]:
        return [name for name, *_ in self.query(f"SHOW COLUMNS FROM {quoted(table)}")]

    def sessions(self) -> list[int]:
        found = self.query(
            "SELECT id FROM information_schema.processlist WHERE db = %s AND id <> connection_id()",
            self.database,
        )
        return [number for (number,) in found]

    def end_session(self, session: int) -> None:
        self.query("KILL %s", session)

    def waiting(self) -> int:
        ((count,),) = self.query(
            "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
            " AND trx_mysql_thread_id IN"
            " (SELECT id FROM information_schema.processlist WHERE db = %s)",
            self.database,
        )
        return int(count)

    def refuse_writes(self) -> Any:
        return self.with_global("read_only", 1, 0)

    @contextmanager
    def with_global(self, name: str, value: int, usual: int) -> Iterator[None]:
        """A setting of the server, for a while; not of one that all processes use."""
        self.query(f"SET GLOBAL {name} = %s", value)
        try:
            yield
        finally:
            self.query(f"SET GLOBAL {name} = %s", usual)

    def is_commit(self, request: bytes) -> bool:
        return is_mysql_commit(request)

    def counts(self, request: bytes) -> bool:
        # What ends a stream may come together with its rows or after them, so it does not count:
        # a packet says which one it is of its statement, and the rows are the third.
        return request[3] <= 2

    def halt_in_stream(self, patch: pytest.MonkeyPatch, halt: Callable[[], None]) -> None:
        stream = Session._stream

        def halt_and_stream(session: Session, rows: Iterable[memoryview]) -> None:
            halt()
            stream(session, rows)

        patch.setattr(Session, "_stream", halt_and_stream)

    def is_encrypted(self, sink: Sink) -> bool:
        assert isinstance(sink, MysqlSink)
        with sink._connected() as (session, _):
            ((_, cipher),) = session.run("SHOW SESSION STATUS LIKE 'Ssl_cipher'").rows
        return bool(cipher)

    # --- an account that may do nothing -----------------------------------------------------------

    @property
    def clerk(self) -> str:
        return f"clerk_{self.database[:20]}"

    def make_clerk(self) -> None:
        self.query(f"CREATE USER {self.clerk} IDENTIFIED BY '{CLERKS_PASSWORD}'")
        self.query(f"GRANT USAGE ON {self.database}.* TO {self.clerk}")
        self.query(PLAIN)

    def drop_clerk(self) -> None:
        self.query(f"DROP USER {self.clerk}")

    def grant_all(self) -> None:
        self.grant(f"ALL ON {self.database}.*")

    # --- the contract -----------------------------------------------------------------------------

    def read(self, sink_id: SinkId) -> list[Row]:
        try:
            rows = self.query(f"SELECT `key`, value FROM {quoted(f'rows of {sink_id}')}")
        except pymysql.ProgrammingError as error:
            assert error.args[0] == 1146
            return []
        return [(key, value) for key, value in rows]


class MariadbPlace(MysqlPlace):
    """On MariaDB."""

    traits = _TRAITS
    dialect = Dialect(
        collation="utf8mb4_nopad_bin",
        loose_collation="utf8mb4_unicode_nopad_ci",
        engine="Aria",
        int_type="int(11)",
        of_table="",
        blames_row=True,
        isolation="tx_isolation",
        other_settings={"max_statement_time": 2.5},
    )


class GenuineMysqlPlace(MysqlPlace):
    """On MySQL's own server, and not MariaDB's."""

    traits = replace(_TRAITS, key_text="varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin")
    dialect = Dialect(
        collation="utf8mb4_0900_bin",
        loose_collation="utf8mb4_0900_as_ci",
        engine="MEMORY",
        int_type="int",
        of_table="t.",
        blames_row=False,
        isolation="transaction_isolation",
        other_settings={},
    )
