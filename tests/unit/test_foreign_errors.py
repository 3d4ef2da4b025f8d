"""No adapter says "try again" of an error that nobody knows: what may pass is a list."""

from __future__ import annotations

import errno
import os
import socket
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
import pyarrow as pa
import pymysql
import pytest
import urllib3
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    IncompleteReadError,
    ReadTimeoutError,
)
from confluent_kafka import KafkaError, KafkaException
from deltalake import write_deltalake
from urllib3.connection import HTTPConnection

from laminar_dagster.cli.failures import failure_of
from laminar_dagster.clients.kafka import cluster
from laminar_dagster.clients.kafka.asker import Asker
from laminar_dagster.clients.mysql.server import Server as MysqlServer
from laminar_dagster.clients.postgres.server import Server as PostgresServer
from laminar_dagster.clients.schema_registry import RetryPolicy, SchemaRegistry
from laminar_dagster.core.errors import InvalidConfig, LaminarError, RetryError, UnknownOutcome
from laminar_dagster.core.ids import EpochNumber, PipelineName, SinkId, SourceId
from laminar_dagster.sinks.delta import sink as delta_sink
from laminar_dagster.sinks.delta.sink import DeltaSink
from laminar_dagster.sinks.kafka import errors as kafka_sink_errors
from laminar_dagster.sinks.mysql import errors as mysql_sink_errors
from laminar_dagster.sinks.mysql.sink import MysqlSink
from laminar_dagster.sinks.postgres import errors as postgres_sink_errors
from laminar_dagster.sinks.postgres.sink import PostgresSink
from laminar_dagster.sinks.sqlite.sink import SqliteSink
from laminar_dagster.sources.file.directory import Directory
from laminar_dagster.sources.mysql.server_log import ServerLog
from laminar_dagster.sources.postgres import failures as postgres_source_failures
from laminar_dagster.sources.postgres.database import Database
from laminar_dagster.sources.references import delta as delta_reference
from laminar_dagster.sources.references.delta import DeltaReference
from laminar_dagster.sources.references.file import FileReference
from laminar_dagster.stores.local import LocalStore
from laminar_dagster.stores.s3 import S3Store
from laminar_dagster.stores.url import open_store
from tests.unit.sources.references.declared import declared

TRY_AGAIN: Final = 75
PIPELINE: Final = PipelineName("clicks")
SINK: Final = SinkId("totals")
SOURCE: Final = SourceId("clicks")
EPOCH: Final = EpochNumber(1)
POSTGRES: Final = PostgresServer("db.example", "shop")
MYSQL: Final = MysqlServer("db.example", "shop", "writer")

# Of the operating system's errors, some that pass and some that do not.
PASSING_NUMBERS: Final = (
    errno.EIO,
    errno.ENOSPC,
    errno.EMFILE,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.ECONNREFUSED,
    errno.EHOSTUNREACH,
)
LASTING_NUMBERS: Final = (errno.ELOOP, errno.EROFS, errno.EINVAL, errno.ENAMETOOLONG, 9999)


class Foreign(Exception):
    """Of a class that no adapter has heard of."""


@dataclass(frozen=True)
class Adapter:
    """An adapter whose client raises what a test wants.

    Attributes:
        provoke: Has its client raise an error.
        lasting: Errors of the client's own family that nobody knows.
        passing: Errors that are known to pass.
    """

    name: str
    provoke: Callable[[pytest.MonkeyPatch, Path, BaseException], object]
    lasting: tuple[BaseException, ...]
    passing: tuple[BaseException, ...]


def _raising(error: BaseException) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        raise error

    return call


def of_system(numbers: tuple[int, ...]) -> tuple[OSError, ...]:
    return tuple(OSError(number, os.strerror(number)) for number in numbers)


# --- stores ---------------------------------------------------------------------------------------


def local_store(patch: pytest.MonkeyPatch, folder: Path, error: BaseException) -> object:
    store = LocalStore(folder / "store")
    store.put("a", b"1")
    with patch.context() as inner:
        inner.setattr(os, "open", _raising(error))
        return store.read("a")


def s3_store(patch: pytest.MonkeyPatch, folder: Path, error: BaseException) -> object:
    patch.setenv("AWS_ACCESS_KEY_ID", "id")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    store = S3Store("bucket", endpoint_url="http://127.0.0.1:1", region="us-east-1")
    patch.setattr(store._clients.retrying, "get_object", _raising(error))
    patch.setattr(store._clients.single, "get_object", _raising(error))
    try:
        return store.read("a")
    finally:
        store.close()


def _of_s3(status: int, code: str) -> ClientError:
    answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "GetObject")


# --- sources --------------------------------------------------------------------------------------


def file_source(patch: pytest.MonkeyPatch, folder: Path, error: BaseException) -> object:
    with patch.context() as inner:
        inner.setattr(os, "scandir", _raising(error))
        return Directory(SOURCE, folder, "*").files(10)


def kafka_client(asker: Asker) -> Callable[[pytest.MonkeyPatch, Path, BaseException], object]:
    class Client:
        def __init__(self, error: BaseException) -> None:
            self.list_topics = _raising(error)

    def provoke(patch: pytest.MonkeyPatch, folder: Path, error: BaseException) -> object:
        patch.setattr(cluster, "AdminClient", lambda *_, **__: Client(error))
        settings = {"bootstrap.servers": "b.example:9092"}
        return cluster.Cluster(asker, settings, patience=0.01).matching(".*")

    return provoke


def kafka_transaction(patch: pytest.MonkeyPatch, folder: Path, error: BaseException) -> object:
    assert isinstance(error, KafkaException)
    reason = error.args[0]
    fencing = kafka_sink_errors.while_fencing(reason, SINK, "", {})
    sending = kafka_sink_errors.before_commit(reason, SINK, EPOCH, "send", {})
    assert fencing.exit_code == sending.exit_code
    raise sending


def _of_kafka(*codes: int) -> tuple[KafkaException, ...]:
    return tuple(KafkaException(KafkaError(code)) for code in codes)


def postgres_source(patch: pytest.MonkeyPatch, folder: Path, error: BaseException) -> object:
    patch.setattr(psycopg, "connect", _raising(error))
    with Database(SOURCE, POSTGRES, "s", "p", 1.0, 1.0).session() as connection:
        return connection


def mysql_source(patch: pytest.MonkeyPatch, folder: Path, error: BaseException) -> object:
    patch.setattr(MysqlServer, "connect", _raising(error))
    with ServerLog(SOURCE, MYSQL).session() as session:
        return session


# --- sinks ----------------------------------------------------------------------------------------


def sqlite_sink(patch: pytest.MonkeyPatch, folder: Path, error: BaseException) -> object:
    (folder / "out.db").write_bytes(b"")
    patch.setattr(sqlite3, "connect", _raising(error))
    return SqliteSink(SINK, PIPELINE, folder / "out.db", "t").ledger()


def _of_sqlite(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("what it says")
    error.sqlite_errorcode = code
    return error


def delta_sink_(patch: pytest.MonkeyPatch, folder: Path, error: BaseException) -> object:
    patch.setattr(delta_sink, "DeltaTable", _raising(error))
    return DeltaSink(SINK, PIPELINE, folder / "table").ledger()


def postgres_sink(patch: pytest.MonkeyPatch, folder: Path, error: BaseException) -> object:
    patch.setattr(psycopg, "connect", _raising(error))
    return PostgresSink(SINK, PIPELINE, POSTGRES, "t").ledger()


def mysql_sink(patch: pytest.MonkeyPatch, folder: Path, error: BaseException) -> object:
    patch.setattr(MysqlServer, "connect", _raising(error))
    return MysqlSink(SINK, PIPELINE, MYSQL, "t").ledger()


# --- references and the registry ------------------------------------------------------------------


def file_table(patch: pytest.MonkeyPatch, folder: Path, error: BaseException) -> object:
    table = FileReference.from_table(declared("file", path=".", format="csv"), folder)
    with patch.context() as inner:
        inner.setattr(os, "scandir", _raising(error))
        return table.version()


def delta_table(patch: pytest.MonkeyPatch, folder: Path, error: BaseException) -> object:
    patch.setattr(delta_reference, "DeltaTable", _raising(error))
    return DeltaReference.from_table(declared("delta", path="fruit"), folder).version()


def registry(patch: pytest.MonkeyPatch, folder: Path, error: BaseException) -> object:
    patch.setattr(HTTPConnection, "connect", _raising(error))
    retry = RetryPolicy(first_pause=0.001, patience=0.002)
    return SchemaRegistry("http://127.0.0.1:1", retry=retry).schema(1)


class _ForeignOfS3(BotoCoreError):
    fmt = "what nobody knows"


class _ForeignOfPostgres(psycopg.OperationalError):
    pass


class _ForeignOfMysql(pymysql.err.OperationalError):
    pass


_DELTA_PASSING: Final = (
    *of_system(PASSING_NUMBERS),
    OSError("Generic S3 error: Server returned non-2xx status code\n 503 Service Unavailable"),
    OSError("Generic S3 error: error sending request\n tcp connect error"),
    RuntimeError("Generic error: No space left on device (os error 28)"),
)
_DELTA_LASTING: Final = (
    Foreign("nobody knows"),
    *of_system(LASTING_NUMBERS),
    OSError("Generic S3 error: Server returned non-2xx status code\n 400 Bad Request"),
    OSError("Kernel error -> Server returned non-2xx status code\n 403 Forbidden"),
)
_KAFKA_PASSING: Final = _of_kafka(
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError._BAD_MSG,
)
_KAFKA_LASTING: Final = _of_kafka(
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError._NOT_IMPLEMENTED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    9999,
)
_POSTGRES_PASSING: Final = (
    psycopg.OperationalError("connection failed: Connection refused"),
    psycopg.OperationalError("connection failed: the database system is starting up"),
    psycopg.OperationalError("connection failed: FATAL: sorry, too many clients already"),
    psycopg.errors.ConnectionTimeout("connection timeout expired"),
)
_POSTGRES_LASTING: Final = (
    _ForeignOfPostgres("nobody knows"),
    psycopg.OperationalError("what libpq has never said"),
)
_MYSQL_PASSING: Final = (
    pymysql.err.OperationalError(2003, "Can't connect to MySQL server on 'db.example'"),
    pymysql.err.OperationalError(2013, "Lost connection to MySQL server"),
    pymysql.err.OperationalError(1040, "Too many connections"),
    pymysql.err.InterfaceError(0, ""),
)
_MYSQL_LASTING: Final = (
    _ForeignOfMysql("nobody knows"),
    pymysql.err.OperationalError(1129, "Host is blocked"),
    pymysql.err.OperationalError(9999, "what no server has ever said"),
)
ADAPTERS: Final = (
    Adapter("local store", local_store, of_system(LASTING_NUMBERS), of_system(PASSING_NUMBERS)),
    Adapter(
        "S3",
        s3_store,
        (_ForeignOfS3(), _of_s3(400, "MalformedXML"), _of_s3(501, "Whatever")),
        (
            EndpointConnectionError(endpoint_url="http://127.0.0.1:1"),
            ReadTimeoutError(endpoint_url="http://127.0.0.1:1"),
            ConnectTimeoutError(endpoint_url="http://127.0.0.1:1"),
            ConnectionClosedError(endpoint_url="http://127.0.0.1:1"),
            IncompleteReadError(actual_bytes=1, expected_bytes=2),
            _of_s3(503, "SlowDown"),
            _of_s3(429, "Whatever"),
            _of_s3(400, "RequestTimeout"),
            *of_system(PASSING_NUMBERS),
        ),
    ),
    Adapter("file source", file_source, of_system(LASTING_NUMBERS), of_system(PASSING_NUMBERS)),
    Adapter("Kafka source", kafka_client(Asker.source("c")), _KAFKA_LASTING, _KAFKA_PASSING),
    Adapter("Kafka sink", kafka_client(Asker.sink("t")), _KAFKA_LASTING, _KAFKA_PASSING),
    Adapter("Kafka transaction", kafka_transaction, _KAFKA_LASTING, _KAFKA_PASSING),
    Adapter("PostgreSQL source", postgres_source, _POSTGRES_LASTING, _POSTGRES_PASSING),
    Adapter("PostgreSQL sink", postgres_sink, _POSTGRES_LASTING, _POSTGRES_PASSING),
    Adapter("MySQL source", mysql_source, _MYSQL_LASTING, _MYSQL_PASSING),
    Adapter("MySQL sink", mysql_sink, _MYSQL_LASTING, _MYSQL_PASSING),
    Adapter(
        "SQLite",
        sqlite_sink,
        (
            _of_sqlite(sqlite3.SQLITE_INTERNAL),
            _of_sqlite(sqlite3.SQLITE_CORRUPT),
            sqlite3.Error("nobody knows"),
            *of_system(LASTING_NUMBERS),
        ),
        (
            _of_sqlite(sqlite3.SQLITE_BUSY),
            _of_sqlite(sqlite3.SQLITE_FULL),
            _of_sqlite(sqlite3.SQLITE_IOERR),
            *of_system(PASSING_NUMBERS),
        ),
    ),
    Adapter("Delta", delta_sink_, _DELTA_LASTING, _DELTA_PASSING),
    Adapter(
        "files to join with", file_table, of_system(LASTING_NUMBERS), of_system(PASSING_NUMBERS)
    ),
    Adapter("Delta to join with", delta_table, _DELTA_LASTING, _DELTA_PASSING),
    Adapter(
        "schema registry",
        registry,
        (Foreign("nobody knows"), urllib3.exceptions.LocationValueError("nobody knows")),
        (
            urllib3.exceptions.ProtocolError("Connection aborted."),
            urllib3.exceptions.ReadTimeoutError(None, None, "Read timed out."),  # type: ignore[arg-type]
            socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
            *of_system(PASSING_NUMBERS),
        ),
    ),
)


def _cases(kind: str) -> list[Any]:
    found = []
    for adapter in ADAPTERS:
        for number, error in enumerate(getattr(adapter, kind)):
            name = f"{adapter.name}-{number}-{type(error).__name__}"
            found.append(pytest.param(adapter, error, id=name.replace(" ", "_")))
    return found


def _outcome(adapter: Adapter, patch: pytest.MonkeyPatch, folder: Path, error: Any) -> Exception:
    with pytest.raises(Exception) as caught:
        adapter.provoke(patch, folder, error)
    return caught.value


@pytest.mark.parametrize(("adapter", "error"), _cases("lasting"))
def test_what_nobody_knows_is_named_and_final(
    adapter: Adapter, error: BaseException, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = _outcome(adapter, monkeypatch, tmp_path, error)
    assert isinstance(found, LaminarError)
    assert not isinstance(found, RetryError | UnknownOutcome)
    assert failure_of(found).exit_code != TRY_AGAIN
    assert found.advice()


@pytest.mark.parametrize(("adapter", "error"), _cases("passing"))
def test_what_is_known_to_pass_is_tried_again(
    adapter: Adapter, error: BaseException, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = _outcome(adapter, monkeypatch, tmp_path, error)
    assert isinstance(found, RetryError)
    assert failure_of(found).exit_code == TRY_AGAIN


@pytest.mark.parametrize(
    "adapter",
    [
        pytest.param(each, id=each.name)
        for each in ADAPTERS
        if each.provoke is not kafka_transaction
    ],
)
def test_a_class_that_no_client_has_is_never_away(
    adapter: Adapter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = _outcome(adapter, monkeypatch, tmp_path, Foreign("nobody knows"))
    assert failure_of(found).exit_code not in (0, TRY_AGAIN)
    assert "nobody knows" in str(found)


# --- statements, by what the server says ----------------------------------------------------------

_PASSING_STATES: Final = ("40001", "40P01", "53100", "53300", "55P03", "57P01", "57P03", "08006")
_LASTING_STATES: Final = ("XX000", "0A000", "22023", "42883", "28000", "3D000")


def _state(state: str) -> psycopg.Error:
    return psycopg.errors.lookup(state)("what the server says")


@pytest.mark.parametrize("state", [*_PASSING_STATES, *_LASTING_STATES])
def test_statements_of_postgres(state: str) -> None:
    error = _state(state)
    meanings = (
        postgres_sink_errors.while_reading(error, SINK, POSTGRES),
        postgres_sink_errors.before_commit(error, SINK, EPOCH, POSTGRES),
        postgres_source_failures.while_asking(error, SOURCE, POSTGRES, "s"),
    )
    is_passing = state in _PASSING_STATES
    assert [each.exit_code == TRY_AGAIN for each in meanings] == [is_passing] * 3


@pytest.mark.parametrize(
    ("number", "is_passing"),
    [
        *((number, True) for number in (1021, 1205, 1213, 2013)),
        *((number, False) for number in (1064, 1105, 1146, 9999)),
    ],
)
def test_statements_of_mysql(number: int, is_passing: bool) -> None:
    error = pymysql.err.OperationalError(number, "what the server says")
    meanings = (
        mysql_sink_errors.while_reading(error, SINK, MYSQL),
        mysql_sink_errors.before_commit(error, SINK, EPOCH, MYSQL),
    )
    assert [each.exit_code == TRY_AGAIN for each in meanings] == [is_passing] * 2


# --- what people have met -------------------------------------------------------------------------


def test_a_table_that_belongs_to_a_catalog_is_final(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    write_deltalake(folder, pa.table({"k": [1]}))
    log = folder / "_delta_log" / f"{0:020d}.json"
    features = '"readerFeatures":["catalogManaged"],"writerFeatures":["catalogManaged"]'
    protocol = f'{{"protocol":{{"minReaderVersion":3,"minWriterVersion":7,{features}}}}}'
    rest = [line for line in log.read_text().splitlines() if not line.startswith('{"protocol"')]
    log.write_text("\n".join([protocol, *rest]) + "\n")
    table = DeltaReference.from_table(declared("delta", path="table"), tmp_path)
    for call in (DeltaSink(SINK, PIPELINE, folder).ledger, table.version):
        with pytest.raises(LaminarError, match="catalog") as caught:
            call()
        assert caught.value.exit_code == 1


@pytest.mark.parametrize("below", ["", "below", "far/below"])
def test_a_store_whose_folder_is_a_file_is_a_mistake(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidConfig, match="file is a file, not a folder"):
        open_store(str(tmp_path / "file" / below))


def test_a_store_whose_folder_becomes_a_file(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    (tmp_path / "store" / ".tmp").rmdir()
    (tmp_path / "store").rmdir()
    (tmp_path / "store").write_text("")
    for call in (lambda: store.read("a"), lambda: store.put("a", b""), lambda: [*store.list("")]):
        with pytest.raises(InvalidConfig, match="not a folder"):
            call()
