"""Faults that only MySQL and MariaDB know."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pymysql
import pytest

from laminar_dagster.clients.mysql.session import Answer, Session
from laminar_dagster.core.errors import CommitOutcomeUnknown, LaminarError, SinkUnavailable
from tests.integration.sinks.databases.epochs import (
    PATIENT,
    UPSERT,
    commit,
    commit_numbered,
    expected,
    rows_in,
    until,
)
from tests.integration.sinks.databases.mysql_place import MysqlPlace


@pytest.mark.parametrize(("code", "kind"), [(1213, SinkUnavailable), (1180, CommitOutcomeUnknown)])
def test_a_commit_that_the_server_refuses(
    any_mysql: MysqlPlace, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[LaminarError]
) -> None:
    """As a cluster does when another node was quicker; of other errors nobody can be certain."""
    sink = any_mysql.sink(limits=PATIENT)
    commit_numbered(sink, 1)
    run = Session.run

    def refuse(session: Session, statement: str, values: Sequence[object] = ()) -> Answer:
        if statement == "COMMIT":
            run(session, "ROLLBACK")
            raise pymysql.err.OperationalError(code, "the server said no")
        return run(session, statement, values)

    monkeypatch.setattr(Session, "run", refuse)
    with pytest.raises(kind, match="the server said no"):
        commit_numbered(sink, 2)
    monkeypatch.undo()
    assert rows_in(any_mysql) == expected(1)
    commit_numbered(sink, 2)
    assert rows_in(any_mysql) == expected(2)


def test_a_deadlock_is_tried_again(any_mysql: MysqlPlace) -> None:
    """Another has a row of this sink, and then wants its ledger."""
    sink = any_mysql.sink(limits=PATIENT, **UPSERT)
    commit_numbered(sink, 1)
    both = pa.table({"k": [10, 20, 21, 22, 23], "v": ["1", "2", "2", "2", "2"]})
    with any_mysql.other() as other:
        other.execute("SELECT * FROM t WHERE k = 10 FOR UPDATE")
        # Whoever has changed more is not the one to be rolled back.
        other.execute(f"INSERT INTO t VALUES {', '.join(f'({1000 + n}, 1)' for n in range(100))}")
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(commit, sink, 2, both)
            until(lambda: any_mysql.waiting() == 1)
            other.execute("SELECT * FROM _laminar_ledger FOR UPDATE")
            with pytest.raises(SinkUnavailable, match="it was in a deadlock"):
                running.result(30)
    commit(sink, 2, both)
    assert rows_in(any_mysql) == expected(2)
