"""The options that sinks on database servers have in common, and those that they have not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from laminar_dagster.core.errors import InvalidConfig, InvalidName
from laminar_dagster.runtime.assembly import build_sink, known_connectors
from tests.unit.sinks.database_kinds import (
    KINDS,
    MYSQL,
    PASSWORD,
    PIPELINE,
    POSTGRES,
    PROJECT,
    DatabaseKind,
)

DSN = "postgresql://w:hunter2hunter2@h/d"


@pytest.fixture(params=KINDS, ids=lambda kind: kind.connector)
def kind(request: pytest.FixtureRequest) -> DatabaseKind:
    found: DatabaseKind = request.param
    return found


def of(kind: DatabaseKind, *cases: Iterable[object]) -> list[Any]:
    """Cases for one kind of sink."""
    return [pytest.param(kind, *case, id=f"{kind.connector}-{case!r}"[:60]) for case in cases]


def test_it_is_a_connector(kind: DatabaseKind) -> None:
    sink = build_sink(kind.table(kind.least), PROJECT, PIPELINE)
    assert isinstance(sink, kind.sink_class)
    assert sink.sink_id == "orders"
    assert kind.connector in known_connectors().sinks


@pytest.mark.parametrize(
    ("kind", "port", "own"),
    [
        *of(POSTGRES, ("5432", {"schema": "public"})),
        *of(MYSQL, (3306, {"bulk": True, "durable": True})),
    ],
    indirect=["kind"],
)
def test_what_is_not_said_has_a_default(
    kind: DatabaseKind, port: object, own: dict[str, object]
) -> None:
    found = kind.read(**kind.least)
    assert found.server == kind.server(**kind.least, port=port)
    assert (found.table, found.mode, found.key) == ("orders", "append", ())
    assert found.create is True
    assert found.limits == kind.limits()
    assert found.limits.commit == 30
    assert found.renamed == {}
    assert {name: getattr(found, name) for name in own} == own


SAID = {
    "port": "6432",
    "user": "writer",
    "password": PASSWORD,
    "table": "Totals",
    "mode": "upsert",
    "key": "a, b",
    "create": "false",
    "connect_timeout": "3s",
    "lock_timeout": "5s",
    "statement_timeout": "2m",
    "idle_timeout": "30s",
    "commit_timeout": "7s",
    "column.a": "alpha",
    "column.b": "beta",
}


@pytest.mark.parametrize(
    ("kind", "said", "server", "own"),
    [
        *of(
            POSTGRES,
            (
                {
                    "sslmode": "verify-ca",
                    "sslrootcert": "ca.pem",
                    "sslcert": "/etc/own.crt",
                    "sslkey": "own.key",
                    "sslpassword": "an0ther",
                    "schema": "sales",
                },
                {
                    "sslmode": "verify-ca",
                    "sslrootcert": "/project/ca.pem",
                    "sslcert": "/etc/own.crt",
                    "sslkey": "/project/own.key",
                    "sslpassword": "an0ther",
                },
                {"schema": "sales"},
            ),
        ),
        *of(
            MYSQL,
            (
                {
                    "ssl_mode": "verify-ca",
                    "ssl_ca": "ca.pem",
                    "ssl_cert": "/etc/own.crt",
                    "ssl_key": "own.key",
                    "ssl_key_password": "an0ther",
                    "bulk_load": "false",
                    "durability": "relaxed",
                },
                {
                    "ssl_mode": "verify-ca",
                    "ssl_ca": "/project/ca.pem",
                    "ssl_cert": "/etc/own.crt",
                    "ssl_key": "/project/own.key",
                    "ssl_key_password": "an0ther",
                },
                {"bulk": False, "durable": False},
            ),
        ),
    ],
    indirect=["kind"],
)
def test_everything_can_be_said(
    kind: DatabaseKind, said: dict[str, str], server: dict[str, str], own: dict[str, object]
) -> None:
    found = kind.read(**{**kind.least, **SAID, **said})
    assert found.server == kind.server(
        host="db.example",
        port=kind.port(6432),
        database="shop",
        user="writer",
        password=PASSWORD,
        connect_timeout=3.0,
        **server,
    )
    assert found.limits == kind.limits(lock=5, statement=120, idle=30, commit=7)
    assert (found.table, found.mode, found.key) == ("Totals", "upsert", ("a", "b"))
    assert (found.create, found.renamed) == (False, {"a": "alpha", "b": "beta"})
    assert {name: getattr(found, name) for name in own} == own


def test_limits_that_are_not_said_keep_their_defaults(kind: DatabaseKind) -> None:
    said = {"lock_timeout": "5s", "statement_timeout": "2m", "idle_timeout": "30s"}
    assert kind.read(**kind.least, **said).limits == kind.limits(lock=5, statement=120, idle=30)


@pytest.mark.parametrize(
    ("kind", "wrong", "told"),
    [
        *of(
            POSTGRES,
            (
                {"sslmode": "strict", "sslcert": "c"},
                (
                    "must be one of: disable, allow, prefer, require, verify-ca, verify-full",
                    "`sslcert` and `sslkey` go together",
                ),
            ),
        ),
        *of(
            MYSQL,
            (
                {"ssl_mode": "strict", "ssl_cert": "c", "durability": "some"},
                (
                    "option `user` is missing",
                    "must be one of: disabled, preferred, required, verify-ca, verify-identity",
                    "`ssl_cert` and `ssl_key` go together",
                    "option `durability` must be one of: strict, relaxed",
                ),
            ),
        ),
    ],
    indirect=["kind"],
)
def test_every_mistake_is_told_at_once(
    kind: DatabaseKind, wrong: dict[str, str], told: tuple[str, ...]
) -> None:
    text = kind.refusal(
        {
            "prot": "1",
            "port": "x",
            "table": "a.b",
            "mode": "upsert",
            "create": "maybe",
            "column.a": "",
            **wrong,
        }
    )
    for part in (
        *told,
        "option `host` is missing",
        "option `database` is missing",
        "`port` is no number between 1 and 65535",
        "`table` holds a dot",
        "mode `upsert` needs a key",
        "option `create` must be one of",
        "`column.a` is empty",
        "unknown option `prot`",
        "did you mean `port`?",
        "sinks.sql",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"host": "w:hunter2hunter2@h"}, "`host` is an address"),
        ({"port": "hunter2hunter2"}, "`port` is no number"),
        ({"idle_timeout": "0s"}, "`idle_timeout` must be more than nothing"),
        ({"commit_timeout": "0s"}, "`commit_timeout` must be more than nothing"),
        ({"table": "_laminar_ledger"}, "reserved"),
        ({"database": "mysql://w:hunter2hunter2@h/d"}, "`database` is an address"),
        ({"database": DSN}, "`database` is an address"),
    ],
)
def test_a_mistake_is_named_and_no_value_that_may_be_a_secret(
    kind: DatabaseKind, options: dict[str, str], told: str
) -> None:
    text = kind.refusal({**kind.least, **options})
    assert told in text
    assert "hunter2hunter2" not in text


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        *of(
            POSTGRES,
            ({"dsn": DSN}, "`dsn` holds a password"),
            ({"dsn": "host=h dbname=d password=hunter2hunter2"}, "`dsn` holds a password"),
            ({"dsn": f"{DSN}?nonsense=1"}, "`dsn` cannot be read"),
            ({"dsn": "host=h dbname=d hunter2hunter2"}, "`dsn` cannot be read"),
            ({"dsn": "host=h dbname=d options=-chunter2hunter2"}, "`dsn` holds `options`"),
            ({"dsn": "host=h dbname=d connect_timeout=hunter2hunter2"}, "no number of seconds"),
            ({"dsn": "host=h dbname=d", "host": "x"}, "`host` is in `dsn` too"),
            ({"host": "h", "database": DSN}, "`database` is an address"),
            ({**POSTGRES.least, "schema": "x" * 64}, "longer than 63 bytes"),
            ({**POSTGRES.least, "schema": "pg_catalog"}, "the server's own"),
            ({**POSTGRES.least, "column.a": "é" * 40}, "longer than 63 bytes"),
        ),
        *of(
            MYSQL,
            ({**MYSQL.least, "table": "x" * 65}, "longer than 64 characters"),
            ({**MYSQL.least, "table": "_laminar_rows"}, "reserved"),
            ({**MYSQL.least, "table": "_LAMINAR_ledger"}, "reserved"),
            ({**MYSQL.least, "column.a": "a "}, "ends with a space"),
        ),
    ],
    indirect=["kind"],
)
def test_a_mistake_that_one_server_knows(
    kind: DatabaseKind, options: dict[str, str], told: str
) -> None:
    text = kind.refusal(options)
    assert told in text
    assert "hunter2hunter2" not in text


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *of(POSTGRES, ("",), ("a\0b",), ("\ud800",), ("x" * 64,)),
        *of(MYSQL, ("",), ("a\0b",), ("\ud800",), ("\U0001f600",), ("x" * 65,), ("x ",)),
    ],
    indirect=["kind"],
)
def test_names_that_cannot_be(kind: DatabaseKind, name: str) -> None:
    with pytest.raises(InvalidName):
        kind.sink(kind.server("h", "d"), name)


def test_mode_and_key_belong_together(kind: DatabaseKind) -> None:
    with pytest.raises(InvalidConfig, match="needs a key"):
        kind.sink(kind.server("h", "d"), mode="upsert")


@pytest.mark.parametrize(
    ("kind", "others", "address"),
    [
        *of(POSTGRES, ({"user": None}, "postgresql://h:5432/d%20b/public/t%2F1")),
        *of(MYSQL, ({"user": "b"}, "mysql://h:3306/d%20b/t%2F1")),
    ],
    indirect=["kind"],
)
def test_the_address_is_the_same_for_everybody(
    kind: DatabaseKind, others: dict[str, Any], address: str
) -> None:
    sinks = [
        kind.sink(kind.server("h", "d b", **account), "t/1")
        for account in ({"user": "a", "password": PASSWORD}, others)
    ]
    assert {sink.address for sink in sinks} == {address}
    assert PASSWORD not in repr(sinks) + repr(sinks[0]._server)
    assert sinks[0].sink_id == "s"
