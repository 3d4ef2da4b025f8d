"""The least rights that a sink on MySQL needs, and what it says without them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from laminar_dagster.core.errors import AuthFailed, InvalidConfig
from laminar_dagster.core.ids import SinkId
from tests.integration.sinks.databases.epochs import ROWS, UPSERT, commit, refusal
from tests.integration.sinks.databases.manual import documented_statements
from tests.integration.sinks.databases.mysql_place import MysqlPlace

pytestmark = pytest.mark.every_server


@pytest.fixture
def mysql_clerk(any_mysql: MysqlPlace) -> Iterator[MysqlPlace]:
    """A database on each server, and an account in it that may do nothing."""
    any_mysql.make_clerk()
    yield any_mysql
    any_mysql.drop_clerk()


@pytest.mark.parametrize("options", [{}, UPSERT], ids=["append", "upsert"])
def test_the_least_rights_are_enough_and_what_is_missing_is_named(
    mysql_clerk: MysqlPlace, options: dict[str, Any]
) -> None:
    sink = mysql_clerk.as_clerk(**options)
    rows = ROWS.append_column("_weight", pa.array([1, 1], pa.int8()))
    for ask in (sink.ledger, lambda: commit(sink, 1, rows)):
        with pytest.raises(AuthFailed, match="Access denied"):
            ask()
    # Something in the database, so that it lets the account in.
    mysql_clerk.query("CREATE TABLE open (x int)")
    mysql_clerk.grant(f"SELECT ON {mysql_clerk.database}.open")
    for ask in (sink.ledger, lambda: commit(sink, 1, rows)):
        with pytest.raises(AuthFailed, match="_laminar_ledger"):
            ask()
    with pytest.raises(AuthFailed, match="_laminar_ledger"):
        sink.check(rows.schema)
    for statement in documented_statements(
        "sinks-mysql.md", "reports.", f"{mysql_clerk.database}."
    ):
        mysql_clerk.query(statement.replace("TO laminar", f"TO {mysql_clerk.clerk}"))
    if options:
        wanted = "INSERT, SELECT, UPDATE"
        mysql_clerk.grant(f"SELECT, REFERENCES ON {mysql_clerk.database}.t")
        assert "may not INSERT, UPDATE on table `t`; grant it: GRANT" in refusal(sink, rows)
        mysql_clerk.grant(f"{wanted} ON {mysql_clerk.database}.t")
        assert "this account may not delete rows; GRANT DELETE ON `t`" in refusal(sink, rows)
        mysql_clerk.grant(f"DELETE ON {mysql_clerk.database}.t")
        assert "GRANT CREATE TEMPORARY TABLES" in refusal(sink, rows)
        with pytest.raises(InvalidConfig, match="GRANT CREATE TEMPORARY TABLES"):
            sink.check(rows.schema)
        mysql_clerk.grant(f"CREATE TEMPORARY TABLES ON {mysql_clerk.database}.*")
    else:
        assert "there is no such table" in refusal(sink, rows)
        mysql_clerk.grant(f"UPDATE ON {mysql_clerk.database}.t")
        assert "may not INSERT on table `t`" in refusal(sink, rows)
        mysql_clerk.grant(f"INSERT ON {mysql_clerk.database}.t")
    sink.check(rows.schema)
    commit(sink, 1, rows)
    assert mysql_clerk.query("SELECT k FROM t ORDER BY k") == [(1,), (2,)]
    assert "this account may not add them; GRANT ALTER ON `t`" in refusal(
        sink, ROWS.append_column("new", pa.array([1, 2])), 2
    )
    mysql_clerk.query("ALTER TABLE _laminar_ledger RENAME TO elsewhere")
    # The rights stay with the name.
    with pytest.raises(InvalidConfig, match="there is no table `_laminar_ledger`, and this acc"):
        sink.check(ROWS.schema)
    mysql_clerk.query("ALTER TABLE elsewhere RENAME TO _laminar_ledger")
    new = mysql_clerk.as_clerk(table="new", sink_id=SinkId("n"))
    with pytest.raises(InvalidConfig, match="may not make it; GRANT CREATE ON `new`"):
        new.check(ROWS.schema)
