"""Sources of changes over TLS: a server that shows the right certificate, and one that does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from infra.certificates import Authority
from infra.mariadb import Mariadb
from infra.mysql import Mysql
from infra.postgres import Postgres
from laminar_dagster.clients.mysql.server import Server
from laminar_dagster.core.errors import AuthFailed, SourceUnavailable
from tests.integration.mysql_cdc.shop import Shop
from tests.integration.postgres.tables import Reading, Tables
from tests.integration.sinks.databases.secure_server import show
from tests.services import mariadb, mysql
from tests.services.mariadb import LOG_OF_ROWS
from tests.services.postgres import WITH_SLOTS, WITHOUT_SYNC


@pytest.mark.service("postgres")
def test_a_source_of_postgresql_trusts_one_authority(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path / "a"), Authority(tmp_path / "b", "somebody else")
    shown = authority.issue("server")
    with Postgres({**WITHOUT_SYNC, **WITH_SLOTS}) as server:
        endpoint = server.start(tmp_path / "postgres")
        server.hand_over(shown.certificate, shown.key)
        with psycopg.connect(endpoint.dsn(), autocommit=True) as connection:
            for name, value in (
                ("ssl_cert_file", str(shown.certificate)),
                ("ssl_key_file", str(shown.key)),
                ("ssl", "on"),
            ):
                connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
            connection.execute("SELECT pg_reload_conf()")
            connection.execute("CREATE DATABASE shop")
        tables = Tables(endpoint, "shop", slot="shop")
        tables.run("CREATE TABLE orders (id bigint)", "INSERT INTO orders VALUES (1)")

        def reading(trusted: Authority) -> Reading:
            tls = {"sslmode": "verify-full", "sslrootcert": str(trusted.file)}
            return Reading(tables.source({"id": "bigint!"}, tables="orders", **tls))

        with pytest.raises((AuthFailed, SourceUnavailable), match="certificate verify failed"):
            reading(stranger).plan()
        mine = reading(authority)
        # The slot, the copy over several connections, and the changes.
        assert [row["id"] for row in mine.rows()] == [1]
        tables.run("INSERT INTO orders VALUES (2)")
        assert [row["id"] for row in mine.rows()] == [2]
        # Whoever reads anew, with another authority, reads nothing.
        mine.source = reading(stranger).source
        tables.run("INSERT INTO orders VALUES (3)")
        with pytest.raises((AuthFailed, SourceUnavailable)):
            mine.plan()


@pytest.mark.parametrize(
    ("kind", "fast"),
    [
        pytest.param(
            Mariadb, mariadb.WITHOUT_SYNC, id="mariadb", marks=pytest.mark.service("mariadb")
        ),
        pytest.param(Mysql, mysql.WITHOUT_SYNC, id="mysql", marks=pytest.mark.service("mysql")),
    ],
)
def test_a_source_of_mysql_trusts_one_authority(
    kind: type[Mariadb] | type[Mysql], fast: dict[str, str], tmp_path: Path
) -> None:
    authority, stranger = Authority(tmp_path / "a"), Authority(tmp_path / "b", "somebody else")
    shown = tmp_path / "shown"
    shown.mkdir()
    show(authority.issue("server"), shown)
    tls = {
        "ssl-ca": authority.file,
        "ssl-cert": shown / "server.crt",
        "ssl-key": shown / "server.key",
    }
    settings = {**fast, **LOG_OF_ROWS, **{name: str(file) for name, file in tls.items()}}
    with kind(settings) as server:
        shop = Shop(server.start(tmp_path / kind.name), "laminar")
        shop.run("CREATE TABLE orders (id BIGINT PRIMARY KEY, name VARCHAR(100))")
        shop.insert([(1, "a")])

        def trusting(trusted: Authority, **others: Any) -> Server:
            known = {"host": shop.endpoint.host, "port": shop.endpoint.port, "user": "laminar"}
            known |= {"password": shop.endpoint.password, "database": shop.database}
            files = {"ssl_mode": "verify-identity", "ssl_ca": str(trusted.file)}
            return Server(**{**known, **files, **others})

        shop.options["server"] = trusting(stranger)
        with pytest.raises((AuthFailed, SourceUnavailable), match="certificate verify failed"):
            shop.plan()
        shop.options["server"] = trusting(authority)
        assert [row["id"] for row in shop.epoch()] == [1]
        shop.insert([(2, "b")])
        plan = shop.plan()
        assert shop.read(plan).column("id").to_pylist() == [2]
        # The log itself comes over the same connection.
        shop.options["server"] = trusting(stranger)
        with pytest.raises((AuthFailed, SourceUnavailable), match="certificate verify failed"):
            shop.read(plan)
        shop.close()
