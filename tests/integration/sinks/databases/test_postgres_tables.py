"""Tables and sessions of PostgreSQL, where it is like no other server."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.integration.sinks.databases.epochs import ROWS, UPSERT, commit, refusal, sink_at
from tests.integration.sinks.databases.postgres_place import PostgresPlace

pytestmark = pytest.mark.service("postgres")


def test_a_made_table_has_a_primary_key(postgres_place: PostgresPlace) -> None:
    commit(sink_at(postgres_place, **UPSERT), 1, ROWS)
    assert postgres_place.query(
        "SELECT conname, contype FROM pg_constraint WHERE conrelid = 't'::regclass"
    ) == [("t_pkey", "p")]


def test_case_matters_only_where_it_tells_columns_apart(postgres_place: PostgresPlace) -> None:
    postgres_place.query('CREATE TABLE t (userid bigint, "V" text, v text)')
    commit(sink_at(postgres_place), 1, pa.table({"userId": [1], "v": ["low"], "W": [True]}))
    assert postgres_place.query('SELECT userid, "V", v, "W" FROM t') == [(1, None, "low", True)]


@pytest.mark.parametrize("name", ["excluded", "target", "gone", "_laminar_rows", "select"])
def test_a_table_may_have_any_name(postgres_place: PostgresPlace, name: str) -> None:
    rows = ROWS.append_column("_weight", pa.array([1, -1], pa.int8()))
    sink = sink_at(postgres_place, name, **UPSERT)
    commit(sink, 1, ROWS)
    commit(sink, 2, rows)
    assert postgres_place.query(f'SELECT k, v FROM public."{name}"') == [(1, "a")]


def test_keys_that_are_one_to_the_table_are_refused(postgres_place: PostgresPlace) -> None:
    postgres_place.query(
        "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    postgres_place.query("CREATE TABLE t (k text COLLATE ci PRIMARY KEY, v text)")
    rows = pa.table({"k": ["A", "a"], "v": ["1", "2"]})
    assert "two keys of the view are one key to the table" in refusal(
        sink_at(postgres_place, **UPSERT), rows
    )


@pytest.mark.parametrize("options", [{}, UPSERT], ids=["append", "upsert"])
def test_a_trigger_that_leaves_rows_out_is_found(
    postgres_place: PostgresPlace, options: dict[str, Any]
) -> None:
    postgres_place.query("CREATE TABLE t (k bigint PRIMARY KEY, v text)")
    postgres_place.query(
        "CREATE FUNCTION drop_it() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF new.k = 2 THEN RETURN NULL; END IF; RETURN new; END $$"
    )
    postgres_place.query(
        "CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION drop_it()"
    )
    assert "took 1 of 2 rows; a trigger" in refusal(sink_at(postgres_place, **options))
    assert postgres_place.query("SELECT * FROM t") == []


def test_what_holds_inside_the_transaction(postgres_place: PostgresPlace) -> None:
    postgres_place.set("synchronous_commit", "off")
    postgres_place.set("default_transaction_isolation", "serializable")
    postgres_place.set("search_path", "nowhere")
    postgres_place.set("timezone", "'Asia/Tokyo'")
    postgres_place.query(
        "CREATE FUNCTION public.settings() RETURNS text LANGUAGE sql AS $$ SELECT string_agg("
        "current_setting(name), ' ' ORDER BY place) FROM unnest(ARRAY['synchronous_commit',"
        "'transaction_isolation', 'search_path', 'timezone', 'lock_timeout', 'statement_timeout',"
        "'idle_in_transaction_session_timeout', 'client_encoding', 'tcp_keepalives_idle'])"
        " WITH ORDINALITY AS n (name, place) $$"
    )
    postgres_place.query(
        "CREATE TABLE public.t (k bigint, v text, s text DEFAULT public.settings())"
    )
    limits = {"lock": 1, "statement": 2.5, "idle": 3}
    commit(postgres_place.sink(limits=limits), 1, ROWS)
    assert postgres_place.query("SELECT DISTINCT s FROM public.t") == [
        ("on read committed nowhere UTC 1s 2500ms 3s UTF8 30",)
    ]


def test_a_stricter_synchronous_commit_is_kept(postgres_place: PostgresPlace) -> None:
    postgres_place.set("synchronous_commit", "remote_apply")
    postgres_place.query(
        "CREATE TABLE t (k bigint, v text, s text DEFAULT current_setting('synchronous_commit'))"
    )
    commit(sink_at(postgres_place), 1, ROWS)
    assert postgres_place.query("SELECT DISTINCT s FROM t") == [("remote_apply",)]
