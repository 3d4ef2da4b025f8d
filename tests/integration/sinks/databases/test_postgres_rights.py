"""The least rights that a sink on PostgreSQL needs, and what it says without them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from laminar_dagster.core.errors import AuthFailed, InvalidConfig, WriteFailed
from laminar_dagster.core.ids import SinkId
from tests.integration.sinks.databases.epochs import ROWS, UPSERT, commit, refusal
from tests.integration.sinks.databases.manual import documented_statements
from tests.integration.sinks.databases.postgres_place import PostgresPlace

pytestmark = pytest.mark.service("postgres")


@pytest.fixture
def postgres_clerk(postgres_place: PostgresPlace) -> PostgresPlace:
    """The database, and a role in it that owns nothing."""
    postgres_place.make_clerk()
    return postgres_place


@pytest.mark.parametrize("options", [{}, UPSERT], ids=["append", "upsert"])
def test_the_least_rights_are_enough_and_what_is_missing_is_named(
    postgres_clerk: PostgresPlace, options: dict[str, Any]
) -> None:
    postgres_clerk.query("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    postgres_clerk.query(f'REVOKE TEMPORARY ON DATABASE "{postgres_clerk.database}" FROM PUBLIC')
    statements = documented_statements("sinks-postgres.md", "reports", "public")
    sink = postgres_clerk.as_clerk(**options)
    rows = ROWS.append_column("_weight", pa.array([1, 1], pa.int8()))
    assert "there is no table `_laminar_ledger` in schema `public`" in refusal(sink, rows)
    for statement in statements:
        if statement.startswith("CREATE TABLE"):
            postgres_clerk.query(statement)
    with pytest.raises(AuthFailed, match="permission denied for table _laminar_ledger"):
        commit(sink, 1, rows)
    with pytest.raises(AuthFailed, match="permission denied for table _laminar_ledger"):
        sink.ledger()
    for statement in statements:
        if statement.startswith("GRANT"):
            postgres_clerk.query(statement.replace(" TO laminar", f" TO {postgres_clerk.clerk}"))
    if options:
        assert "this role may not make temporary tables" in refusal(sink, rows)
        postgres_clerk.grant(f'TEMPORARY ON DATABASE "{postgres_clerk.database}"')
    wanted = "INSERT, SELECT, UPDATE, DELETE" if options else "INSERT"
    reason = refusal(sink, rows)
    assert f"may not {wanted} on table `t`; grant it: GRANT {wanted} ON" in reason
    postgres_clerk.grant(f"{wanted} ON t")
    commit(sink, 1, rows)
    assert postgres_clerk.query("SELECT k FROM t ORDER BY k") == [(1,), (2,)]
    assert "this role does not own the table" in refusal(
        sink, ROWS.append_column("new", pa.array([1, 2])), 2
    )
    missing = postgres_clerk.sink("missing", sink_id=SinkId("m"), create=False)
    with pytest.raises(InvalidConfig, match="there is no table `missing`"):
        missing.check(ROWS.schema)


def test_rows_hidden_by_a_policy_are_an_error(postgres_clerk: PostgresPlace) -> None:
    postgres_clerk.query("GRANT CREATE ON SCHEMA public TO PUBLIC")
    postgres_clerk.grant("ALL ON t")
    sink = postgres_clerk.as_clerk(**UPSERT)
    commit(sink, 1, ROWS)
    postgres_clerk.query(
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON t USING (k <> 1)"
    )
    gone = ROWS.append_column("_weight", pa.array([-1, -1], pa.int8()))
    with pytest.raises((WriteFailed, AuthFailed), match="row-level security"):
        commit(sink, 2, gone)
    assert sink.ledger() == 1
    assert len(postgres_clerk.query("SELECT * FROM t")) == 2
