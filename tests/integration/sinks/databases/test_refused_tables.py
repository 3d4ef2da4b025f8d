"""Tables that cannot take a view, rows that a table refuses, and how both are told."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from laminar_dagster.core.errors import InvalidConfig
from tests.integration.sinks.databases.epochs import ROWS, UPSERT, commit, refusal, sink_at
from tests.integration.sinks.databases.mysql_place import PLAIN
from tests.integration.sinks.databases.place import DatabasePlace
from tests.integration.sinks.databases.servers import MYSQL_SERVERS, ON_MARIADB, ON_MYSQL, on

POSTGRES_SHAPES: list[tuple[str, dict[str, Any], str]] = [
    ("SELECT 1", {"create": False}, "there is no table `t` in schema `public`; make it"),
    ("SELECT 1", {"schema": "nowhere"}, "there is no schema `nowhere`; make it: CREATE SCHEMA"),
    ("CREATE VIEW t AS SELECT 1 AS k", {}, "`t` is a view"),
    ("CREATE MATERIALIZED VIEW t AS SELECT 1 AS k", {}, "`t` is a materialized view"),
    ("CREATE SEQUENCE t", {}, "`t` is a sequence"),
    ("CREATE UNLOGGED TABLE t (k bigint, v text)", {}, "lost when the server crashes"),
    (
        "CREATE EXTENSION file_fdw; CREATE SERVER s FOREIGN DATA WRAPPER file_fdw;"
        "CREATE FOREIGN TABLE t (k bigint, v text) SERVER s OPTIONS (filename '/dev/null')",
        {},
        "`t` is a foreign table",
    ),
    (
        "CREATE TABLE t (k bigint, v text) PARTITION BY LIST (k);"
        "CREATE UNLOGGED TABLE part PARTITION OF t DEFAULT",
        {},
        "partition `part` of table `t` is foreign or not logged",
    ),
    (
        "CREATE TABLE t (k bigint, v text, w text GENERATED ALWAYS AS (v || '!') STORED,"
        " x int NOT NULL)",
        {},
        "column `x` of table `t` must not be null and has no default",
    ),
    (
        "CREATE TABLE t (k bigint, v text GENERATED ALWAYS AS ('x') STORED)",
        {},
        "column `v` of table `t` is computed by the server",
    ),
    (
        "CREATE TABLE t (k bigint GENERATED ALWAYS AS IDENTITY, v text)",
        {},
        "column `k` of table `t` is computed by the server",
    ),
    ("CREATE TABLE t (k bigint, v text)", UPSERT, 'CREATE UNIQUE INDEX … ON "public"."t" ("k")'),
    ("CREATE TABLE t (k bigint, v text, UNIQUE (k, v))", UPSERT, "is not unique"),
    ("CREATE TABLE t (k bigint UNIQUE DEFERRABLE, v text)", UPSERT, "is not unique"),
    (
        "CREATE TABLE t (k bigint, v text); CREATE UNIQUE INDEX ON t (k) WHERE k > 0",
        UPSERT,
        "is not unique",
    ),
    (
        "CREATE TABLE t (k bigint, v text); CREATE UNIQUE INDEX ON t (abs(k))",
        UPSERT,
        "is not unique",
    ),
    (
        "CREATE TABLE t (k bigint PRIMARY KEY, v text)",
        {"mode": "upsert", "key": ("kk",)},
        "the view has no key column `kk`; did you mean `k`?",
    ),
]

MYSQL_SHAPES: list[tuple[str, dict[str, Any], str]] = [
    ("SELECT 1", {"create": False}, "there is no table `t`; make it, or set create = 'true'"),
    ("CREATE VIEW t AS SELECT 1 AS k", {}, "`t` is no table but a view"),
    (
        "CREATE TABLE t (k bigint, v longtext) ENGINE = MyISAM",
        {},
        "the engine MyISAM, which has no",
    ),
    ("CREATE TABLE t (k bigint, v varchar(9)) ENGINE = MEMORY", {}, "the engine MEMORY"),
    (
        "CREATE TABLE t (k bigint, v longtext, w text AS (concat(v, '!')) STORED, x int NOT NULL)"
        " CHARSET utf8mb4",
        {},
        "column `x` of table `t` must not be null and has no default",
    ),
    (
        "CREATE TABLE t (k bigint, v varchar(9) AS ('x') VIRTUAL)",
        {},
        "column `v` of table `t` is computed by the server",
    ),
    (
        "CREATE TABLE t (k bigint, v longtext) CHARSET utf8mb4",
        UPSERT,
        "ALTER TABLE `t` ADD UNIQUE (`k`)",
    ),
    (
        "CREATE TABLE t (k bigint, v varchar(9), UNIQUE (k, v)) CHARSET utf8mb4",
        UPSERT,
        "is not unique",
    ),
    (
        "CREATE TABLE t (k bigint PRIMARY KEY, v varchar(9) UNIQUE) CHARSET utf8mb4",
        UPSERT,
        "has another unique key, `v`: a row that meets it would replace the row of another key",
    ),
    (
        "CREATE TABLE t (k bigint PRIMARY KEY, v longtext, UNIQUE (v(9))) CHARSET utf8mb4",
        UPSERT,
        "has another unique key, `v`",
    ),
    (
        PLAIN,
        {"mode": "upsert", "key": ("kk",)},
        "the view has no key column `kk`; did you mean `k`?",
    ),
]
MARIADB_SHAPES: list[tuple[str, dict[str, Any], str]] = [
    ("CREATE SEQUENCE t", {}, "`t` is no table but a sequence"),
    ("CREATE TABLE t (k bigint, v longtext) ENGINE = Aria", UPSERT, "ENGINE = InnoDB"),
]


@pytest.mark.parametrize(
    ("place", "shape", "options", "reason"),
    [
        *on("postgres", cases=POSTGRES_SHAPES),
        *on(*MYSQL_SERVERS, cases=MYSQL_SHAPES),
        *on("mariadb", cases=MARIADB_SHAPES),
    ],
    indirect=["place"],
)
def test_a_table_that_cannot_take_the_view_is_refused_by_name(
    place: DatabasePlace, shape: str, options: dict[str, Any], reason: str
) -> None:
    place.query(shape)
    sink = sink_at(place, **options)
    with pytest.raises(InvalidConfig) as caught:
        sink.check(ROWS.schema)
    assert reason in str(caught.value)
    assert "_laminar_ledger" not in place.relations()
    assert reason in refusal(sink)


@pytest.mark.parametrize(
    ("place", "name", "problem"),
    [
        *on(
            "postgres",
            cases=[("x" * 64, "longer than 63 bytes"), ("é" * 32, "longer than 63 bytes")],
        ),
        *on(
            *MYSQL_SERVERS,
            cases=[
                ("x" * 65, "longer than 64 characters"),
                ("x ", "ends with a space"),
                ("\U0001f600", "beyond U+FFFF"),
            ],
        ),
    ],
    indirect=["place"],
)
def test_a_name_that_the_server_would_not_keep_is_refused(
    place: DatabasePlace, name: str, problem: str
) -> None:
    assert problem in refusal(sink_at(place), pa.table({name: [1]}))


# --- constraints ----------------------------------------------------------------------------------

POSTGRES_CONSTRAINTS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    (
        "k bigint CHECK (k < 2), v {text}",
        {},
        ("t_k_check", "(2, b)", "change the view, or the constraint"),
    ),
    ("k bigint CHECK (k < 2), v {text}", UPSERT, ("t_k_check", "(2, b)")),
    (
        "k bigint REFERENCES other (id), v {text}",
        {},
        ("t_k_fkey", "(k)=(2) is not present", "must be there first"),
    ),
    ("k bigint REFERENCES other (id), v {text}", UPSERT, ("t_k_fkey", "(k)=(2) is not present")),
    (
        "k bigint REFERENCES other (id) DEFERRABLE INITIALLY DEFERRED, v {text}",
        UPSERT,
        ("t_k_fkey", "(k)=(2) is not present"),
    ),
    (
        "k bigint CONSTRAINT one UNIQUE DEFERRABLE INITIALLY DEFERRED, v {text}",
        {},
        ("one", "(k)=(2)", "upsert"),
    ),
]
MARIADB_CONSTRAINTS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    (
        "k bigint, v {text}, CONSTRAINT few CHECK (k < 2), KEY (k)",
        {},
        ("few", "k=2", "change the view, or the constraint"),
    ),
    ("k bigint, v {text}, CONSTRAINT few CHECK (k < 2)", UPSERT, ("few", "k=2")),
    (
        "k bigint, v {text}, CONSTRAINT ref FOREIGN KEY (k) REFERENCES other (id), KEY (k)",
        {},
        ("`ref`", "k=2", "must be there first"),
    ),
    (
        "k bigint, v {text}, CONSTRAINT ref FOREIGN KEY (k) REFERENCES other (id)",
        UPSERT,
        ("`ref`", "k=2"),
    ),
    (
        "k bigint, v {text}, CONSTRAINT one UNIQUE (k)",
        {},
        ("'one'", "Duplicate entry '2'", "k=2", "upsert"),
    ),
]
# MySQL does not tell which row it was, and names a key with its table.
MYSQL_CONSTRAINTS = [
    (
        columns,
        options,
        tuple({"'one'": "'t.one'"}.get(part, part) for part in told if part != "k=2"),
    )
    for columns, options, told in MARIADB_CONSTRAINTS
]


@pytest.mark.parametrize(
    ("every_way", "columns", "options", "told"),
    [
        *on("postgres", cases=POSTGRES_CONSTRAINTS),
        *on(*ON_MARIADB, cases=MARIADB_CONSTRAINTS),
        *on(*ON_MYSQL, cases=MYSQL_CONSTRAINTS),
    ],
    indirect=["every_way"],
)
def test_a_violated_constraint_is_named_with_a_row(
    every_way: DatabasePlace, columns: str, options: dict[str, Any], told: tuple[str, ...]
) -> None:
    every_way.query("CREATE TABLE other (id bigint PRIMARY KEY)")
    every_way.query("INSERT INTO other VALUES (1)")
    every_way.query(f"CREATE TABLE t ({columns.format(text=every_way.traits.text)})")
    if options:
        every_way.query("CREATE UNIQUE INDEX its_key ON t (k)")
    rows = pa.table({"k": [1, 2, 2], "v": ["a", "b", "b"]})
    reason = refusal(sink_at(every_way, **options), rows)
    for part in told:
        assert part in reason
    assert every_way.query("SELECT * FROM t") == []


UTF8 = "varchar(9) CHARACTER SET utf8mb4"
NULL = ("column `v` has 1 values that are null",)


@pytest.mark.parametrize(
    ("every_way", "text", "null", "double"),
    [
        *on(
            "postgres",
            cases=[
                ("text", ("(2, null)", "DROP NOT NULL"), ("t_pkey", "(k)=(7) already exists")),
            ],
        ),
        *on(
            *ON_MARIADB,
            cases=[(UTF8, NULL, ("Duplicate entry '7' for key 'PRIMARY'", "v='b'"))],
        ),
        *on(*ON_MYSQL, cases=[(UTF8, NULL, ("Duplicate entry '7' for key 't.PRIMARY'",))]),
    ],
    indirect=["every_way"],
)
def test_null_and_double_in_a_strict_table(
    every_way: DatabasePlace, text: str, null: tuple[str, ...], double: tuple[str, ...]
) -> None:
    every_way.query(f"CREATE TABLE t (k bigint PRIMARY KEY, v {text} NOT NULL)")
    reason = refusal(sink_at(every_way), pa.table({"k": [1, 2], "v": ["a", None]}))
    for part in null:
        assert part in reason
    reason = refusal(sink_at(every_way), pa.table({"k": [7, 7], "v": ["a", "b"]}))
    for part in double:
        assert part in reason
    assert "key column `k` is null in 1 rows" in refusal(
        sink_at(every_way, **UPSERT), pa.table({"k": [1, None], "v": ["a", "b"]})
    )


def test_rows_that_others_refer_to_are_not_deleted(every_way: DatabasePlace) -> None:
    commit(sink_at(every_way, **UPSERT), 1, ROWS)
    every_way.query(
        "CREATE TABLE child (k bigint, CONSTRAINT kin FOREIGN KEY (k) REFERENCES t (k))"
    )
    every_way.query("INSERT INTO child VALUES (1)")
    gone = ROWS.append_column("_weight", pa.array([-1, -1], pa.int8()))
    quote = every_way.traits.quote
    assert f"{quote}kin{quote}" in refusal(sink_at(every_way, **UPSERT), gone, 2)
    assert len(every_way.query("SELECT * FROM t")) == 2


def test_no_secret_is_in_any_text(clerk: DatabasePlace) -> None:
    sink = clerk.as_clerk()
    password = "clerks-own-secret"
    assert password not in repr(sink) + sink.address + repr(vars(sink))
    clerk.grant_all()
    clerk.query("ALTER TABLE t ADD CONSTRAINT short CHECK (length(v) < 3)")
    for keys, texts in (([1], [password]), ([1, 1], [password, "x"])):
        assert password not in refusal(sink, pa.table({"k": keys, "v": texts}))
