"""What may stand in the ``WITH`` of a MySQL source."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.sources.connectors import MYSQL_CDC
from laminar_dagster.sources.mysql.options import MysqlCdcOptions, read_options

LEAST = {"host": "db", "database": "shop", "user": "u", "tables": "orders"}


def read(**options: str) -> MysqlCdcOptions:
    given = {name.replace("__", "."): value for name, value in options.items()}
    defaults = {"on_gap": "earliest", "idle.timeout": "1m"}
    return read_options({**LEAST, **given}, defaults, "sources.sql:1", Path("/project"))


def test_what_is_usual() -> None:
    found = read()
    assert found.tables == (("shop", "orders"),)
    assert found.on_gap == "fail"
    assert found.idle_timeout == timedelta(minutes=1)
    assert (found.server.port, found.server.ssl_mode) == (3306, None)


def test_all_of_them() -> None:
    found = read(
        tables="orders, other.returns",
        port="3307",
        password="s3cret-word",
        ssl_mode="VERIFY-CA",
        ssl_ca="ca.pem",
        on_gap="snapshot",
        on_truncate="skip",
        snapshot="never",
        snapshot__workers="4",
        snapshot__file__bytes="1MiB",
        scan__bytes="64MiB",
        quiet__bytes="1",
        include__metadata="true",
    )
    assert found.tables == (("shop", "orders"), ("other", "returns"))
    assert found.server.ssl_ca == "/project/ca.pem"
    assert found.server.ssl_mode == "verify-ca"
    assert (found.snapshot_workers, found.snapshot_file, found.scan_bytes) == (4, 2**20, 2**26)
    assert "s3cret-word" not in repr(found)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tabels": "a"}, "did you mean `tables`"),
        ({"before": "required"}, "unknown option `before`"),
        ({"tables": "a.b.c"}, "no table"),
        ({"tables": ".a"}, "no table"),
        ({"tables": "orders, shop.orders"}, "twice"),
        ({"on_gap": "earliest"}, "must be one of"),
        ({"host": "mysql://u:s3cret-word@db"}, "is an address"),
        ({"port": "x"}, "`port`"),
        ({"ssl_mode": "verify"}, "did you mean"),
        ({"ssl_cert": "a"}, "go together"),
        ({"connect_timeout": "0s"}, "more than nothing"),
        ({"snapshot__workers": "0"}, "at least 1"),
        ({"snapshot__file__bytes": "1"}, "at least 8192"),
        ({"scan__bytes": "0"}, "must be a size"),
        ({"user": ""}, "`user` is empty"),
    ],
)
def test_mistakes_are_named(options: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read(**options)
    told = f"{caught.value} {caught.value.advice()}"
    assert problem in told
    assert "s3cret-word" not in told


def test_every_mistake_at_once() -> None:
    with pytest.raises(InvalidConfig) as caught:
        read_options({}, {}, "sources.sql:1", Path())
    for name in ("host", "database", "user", "tables"):
        assert f"`{name}` is missing" in str(caught.value)


def test_added_columns() -> None:
    assert [each.name for each in MYSQL_CDC.traits(LEAST).columns] == ["_op", "_weight"]
    several = MYSQL_CDC.traits({"tables": "a, b"})
    assert [each.name for each in several.columns] == ["_table", "_op", "_weight"]
    assert several.lacks_retractions == ""
