"""Tables and sessions of PostgreSQL, where it is like no other server."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest

from laminar_dagster.core.errors import InvalidConfig
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


CI = "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        (f"{CI} CREATE TABLE t (k text COLLATE ci PRIMARY KEY, v text)", "its collation takes"),
        (
            f"{CI} CREATE DOMAIN word AS text COLLATE ci; CREATE TABLE t (k word UNIQUE, v text)",
            "its collation takes",
        ),
        # A row that meets either index takes the place of another.
        (
            f"{CI} CREATE TABLE t (k text PRIMARY KEY, v text);"
            " CREATE UNIQUE INDEX ON t (k COLLATE ci) INCLUDE (v)",
            "the collation of a unique index takes",
        ),
        # Deletes go by the column's.
        (
            f"{CI} CREATE TABLE t (k text COLLATE ci, v text);"
            ' CREATE UNIQUE INDEX ON t (k COLLATE "C")',
            "its collation takes",
        ),
        (
            "CREATE EXTENSION citext; CREATE TABLE t (k citext PRIMARY KEY, v text)",
            "its type citext takes",
        ),
        ("CREATE TABLE t (k jsonb PRIMARY KEY, v text)", "its type jsonb takes"),
        ("CREATE TABLE t (k bpchar PRIMARY KEY, v text)", "its type bpchar takes"),
    ],
)
def test_keys_that_are_one_to_the_table_are_refused(
    postgres_place: PostgresPlace, ddl: str, problem: str
) -> None:
    """Else the second would take the place of the first, if it came in another epoch."""
    postgres_place.query(ddl)
    sink = sink_at(postgres_place, **UPSERT)
    rows = pa.table({"k": ["1"], "v": ["1"]})
    with pytest.raises(InvalidConfig) as caught:
        sink.check(rows.schema)
    for told in (str(caught.value), refusal(sink, rows)):
        assert f"column `k` of table `t` is part of the key, and {problem} different" in told
    assert postgres_place.query("SELECT * FROM t") == []


def test_texts_that_fold_may_stand_beside_the_key(postgres_place: PostgresPlace) -> None:
    postgres_place.query(
        f'{CI} CREATE TABLE t (k text COLLATE "C", v text COLLATE ci, w jsonb, UNIQUE (k, v));'
        " CREATE UNIQUE INDEX ON t (k)"
    )
    rows = pa.table({"k": ["A", "a"], "v": ["x", "X"], "w": ["{}", "{ }"]})
    commit(sink_at(postgres_place, **UPSERT), 1, rows)
    assert postgres_place.query("SELECT k, v, w FROM t ORDER BY k") == [
        ("A", "x", {}),
        ("a", "X", {}),
    ]


def test_a_key_of_uuids_has_one_spelling(postgres_place: PostgresPlace) -> None:
    postgres_place.query("CREATE TABLE t (k uuid PRIMARY KEY, v text, other uuid)")
    one = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    sink = sink_at(postgres_place, **UPSERT)
    commit(sink, 1, pa.table({"k": [str(one)], "v": ["1"], "other": [one.hex]}))
    for spelling in (str(one).upper(), one.hex):
        for weight in (1, -1):
            row = {"k": [spelling], "v": ["2"], "_weight": [weight]}
            assert "in lower case with hyphens" in refusal(sink, pa.table(row), 2)
    commit(sink, 2, pa.table({"k": pa.array([str(one)]).dictionary_encode(), "v": ["3"]}))
    raw = pa.array([uuid.UUID(int=1).bytes], pa.binary(16))
    commit(sink, 3, pa.table({"k": raw, "v": ["4"]}))
    assert postgres_place.query("SELECT k, v, other FROM t ORDER BY v") == [
        (one, "3", one),
        (uuid.UUID(int=1), "4", None),
    ]


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
