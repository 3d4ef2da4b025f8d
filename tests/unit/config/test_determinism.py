"""What could give another answer when it is run again is found, and blocked unless allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.config.determinism import (
    RANDOM,
    SIDE_EFFECT,
    WALL_CLOCK,
    DeterminismWarning,
    kind_of_call,
)
from laminar_dagster.config.relations import Select
from laminar_dagster.config.sql.functions import ELSEWHERE, spark_functions
from tests.unit.config.folders import CONFIG, SOURCES, load, mistakes, read_query, wrong_query

WARN = f"{CONFIG}determinism: warn\n"


def warnings(folder: Path, expression: str) -> tuple[str, ...]:
    sql = f"SELECT {expression} AS x FROM clicks"
    files = {"pipeline.yml": WARN, "sources.sql": SOURCES, "models/m.sql": sql}
    return load(folder, files).warnings


@pytest.mark.parametrize(
    "call",
    [
        "now()",
        "NOW ( )",
        "`now`()",
        "current_timestamp",
        "current_timestamp()",
        "current_date",
        "curdate()",
        "localtimestamp",
        "current_time",
        "unix_timestamp()",
        "date_add(current_date, 1)",
        "transform(tags, x -> now())",
        "TIMESTAMP 'now'",
        "date 'Today'",
        "CAST('yesterday' AS DATE)",
        "to_date('tomorrow')",
        "timestamp(' now UTC')",
        # Any constant text that Spark makes a time, by CAST or by itself.
        "ts < 'now'",
        "'now' <=> ts",
        "CAST(('now') AS TIMESTAMP)",
        "CAST(r'now' AS TIMESTAMP)",
        "TIMESTAMP_NTZ 'now'",
        "'now'::TIMESTAMP_LTZ",
        "TRY_CAST('today+01:00' AS DATE)",
        "CAST('\\tToday Europe/Berlin' AS DATE)",
        "CAST('n' 'ow' AS TIMESTAMP)",
        "CAST('n' || 'ow' AS TIMESTAMP)",
        "CAST(lower('NOW') AS DATE)",
        "CAST(CAST('now' AS STRING) AS DATE)",
        "CAST(CAST(X'6E6F77' AS STRING) AS DATE)",
        "CAST(chr(110) || chr(111) || chr(119) AS DATE)",
        "CAST(element_at(array('now'), 1) AS DATE)",
        "CAST(named_struct('a', 'now').a AS DATE)",
        "CAST(IF(true, 'now', '') AS DATE)",
        "CAST(CASE WHEN true THEN 'now' END AS DATE)",
        "to_date(('now'))",
        "to_date(substr('xnow', 2))",
        "coalesce(ts, 'now')",
        "nvl(ts, 'now')",
        "if(user_id > 1, 'now', ts)",
        "nvl2(page, ts, 'now')",
        "decode(user_id, 1, ts, 'now')",
        "decode(ts, 'now', 1)",
        "array(ts, 'now')",
        "map('a', ts, 'b', 'now')",
        "CASE WHEN user_id > 1 THEN ts ELSE 'now' END",
        "CASE WHEN user_id > 1 THEN 'now' ELSE ts END",
        "CASE 'now' WHEN ts THEN 1 END",
        "CASE ts WHEN 'now' THEN 1 END",
        "ts IN ('2020-01-01', 'now')",
        "ts BETWEEN '2020-01-01' AND 'now'",
        "ts - 'now'",
        "'now' + INTERVAL '1' DAY",
        "date_add('today', 1)",
        "datediff('today', ts)",
        "hour('now')",
        "date_format('now', 'HH')",
        "dateadd(HOUR, 1, 'now')",
        "date_trunc('hour', 'now')",
        "extract(hour FROM 'now')",
        "map(ts, 1)['now']",
        "transform(array(ts), x -> coalesce(x, 'now'))",
        "filter(array(ts), x -> x < 'now')",
        "ts < concat('n', 'ow')",
    ],
)
def test_determinism_validator_wall_clock_warning(tmp_path: Path, call: str) -> None:
    (found,) = wrong_query(tmp_path, f"SELECT page, {call} AS x FROM clicks")
    assert "reads the wall clock, so view `m` is not deterministic" in found
    assert "epoch_time()" in found
    (warning,) = warnings(tmp_path, call)
    assert "reads the wall clock" in warning


@pytest.mark.parametrize(
    "call",
    [
        "rand()",
        "rand(42)",
        "randn()",
        "uuid()",
        "shuffle(tags)",
        "monotonically_increasing_id()",
        "aes_encrypt(page, 'key')",
    ],
)
def test_determinism_validator_random_warning(tmp_path: Path, call: str) -> None:
    (found,) = wrong_query(tmp_path, f"SELECT page FROM clicks WHERE {call} = 1")
    assert "is random, so view `m` is not deterministic" in found
    (warning,) = warnings(tmp_path, call)
    assert "is random" in warning


@pytest.mark.parametrize(
    "call",
    [
        "reflect('java.lang.System', 'nanoTime')",
        "java_method('java.util.UUID', 'randomUUID')",
        "input_file_name()",
        "current_user()",
        "user",
        "session_user",
        "spark_partition_id()",
        "version()",
    ],
)
def test_determinism_validator_side_effect_warning(tmp_path: Path, call: str) -> None:
    (found,) = wrong_query(tmp_path, f"SELECT {call} AS x FROM clicks")
    assert "depends or acts on something outside the data" in found
    (warning,) = warnings(tmp_path, call)
    assert warning.startswith(f"{tmp_path}/shop/models/m.sql:1:8: ")


@pytest.mark.parametrize(
    "call",
    [
        "lower(page)",
        "epoch_time()",
        "unix_timestamp(ts)",
        "to_date('2020-01-01')",
        "'now'",
        "page = 'today'",
        "ts < '2020-01-01'",
        "ts < 'epoch'",
        "CAST('2020-01-01' AS DATE)",
        "CAST(epoch_time() AS DATE)",
        "CAST(date_trunc('hour', epoch_time()) AS DATE)",
        "ts > to_timestamp('2020-01-01', 'yyyy-MM-dd')",
        "ts > make_timestamp(2020, 1, 1, 0, 0, 0) - INTERVAL '1' DAY",
        "CAST('nowhere' AS DATE)",
        "ts = 'now or never'",
        # Text beside text.
        "page IN ('now', 'today')",
        "page BETWEEN 'now' AND 'today'",
        "lower(page) <> 'now'",
        "device.os = 'now'",
        "clicks.device.os = 'now'",
        "tags[0] = 'now'",
        "exists(tags, x -> x = 'now')",
        "array_contains(tags, 'now')",
        "concat(page, 'now')",
        "page || 'now' = 'today'",
        "coalesce(page, 'now')",
        "coalesce(page, 'now') = 'today'",
        "if(user_id > 1, 'now', page)",
        "decode(user_id, 1, 'now', 'today')",
        "CASE WHEN user_id > 1 THEN 'now' ELSE 'today' END",
        "CASE page WHEN 'now' THEN 1 END",
        "array('now', 'today')",
        "named_struct('now', 'today')",
        "replace(page, 'now', 'today')",
        "page LIKE 'now'",
        "CAST(ts AS STRING) = 'now'",
        "CAST(user_id AS VARCHAR(9)) = 'now'",
        "mask(page, lowerChar => 'n')",
        "user_id = length('abc')",
        "user_id = decode(1, 1, 'now')",
        "ts = CAST('1' AS TIMESTAMP)",
        "date_from_unix_date(CAST('now' AS INT)) = ts",
        "named_struct('a', 1).a = 1",
        "page = upper('abc')",
        "split(page, ',')[0] = 'now'",
        "coalesce(page, named_struct('a', 'now').a)",
        "raise_error('x')",
        "xxhash64(page)",
        "aes_encrypt(page, 'key', 'ECB')",
    ],
)
def test_determinism_validator_clean_operator_no_warnings(tmp_path: Path, call: str) -> None:
    read_query(tmp_path, f"SELECT {call} AS x FROM clicks")
    assert warnings(tmp_path, call) == ()


TEXTS = [
    "SELECT x FROM (SELECT page AS x FROM clicks)",
    "SELECT x FROM (SELECT lower(page) AS x, ts FROM clicks)",
    "SELECT x FROM (SELECT page AS x FROM clicks UNION ALL SELECT page FROM clicks)",
    "SELECT x FROM clicks LATERAL VIEW explode(tags) t AS x",
    "SELECT x FROM clicks CROSS JOIN UNNEST(tags) AS t (x)",
    "SELECT x FROM (SELECT explode(tags) AS x FROM clicks)",
    "SELECT x FROM (SELECT page AS x, COUNT(*) AS n FROM clicks GROUP BY 1, "
    "TUMBLE(ts, INTERVAL '1' HOUR))",
    "SELECT x FROM (SELECT MAX(page) AS x FROM clicks GROUP BY TUMBLE(ts, INTERVAL '1' HOUR))",
]


@pytest.mark.parametrize("sql", TEXTS)
def test_a_text_stays_one_through_queries(tmp_path: Path, sql: str) -> None:
    read_query(tmp_path, f"{sql} WHERE x = 'now'")
    (found,) = wrong_query(tmp_path, f"{sql} WHERE x = 'now' AND CAST(x AS DATE) = 'today'")
    assert "`CAST(x AS DATE) = 'today'` reads the wall clock" in found


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("SELECT page FROM clicks WHERE ts < 'now'", 36),
        ("SELECT x FROM (SELECT ts AS x FROM clicks) WHERE x < 'now'", 54),
        ("SELECT x FROM (SELECT page AS x FROM clicks UNION ALL SELECT CAST(ts AS DATE) FROM "
         "clicks) WHERE x < 'now'", 102),
        ("SELECT page FROM clicks GROUP BY page, TUMBLE(ts, INTERVAL '1' HOUR) "
         "HAVING MAX(ts) < 'now'", 87),
        ("SELECT a.page FROM clicks a JOIN clicks b ON a.user_id = b.user_id AND a.ts < 'now' "
         "AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' HOUR", 79),
    ],
)  # fmt: skip
def test_a_text_that_becomes_a_time_has_its_place(tmp_path: Path, sql: str, column: int) -> None:
    (found,) = wrong_query(tmp_path, sql)
    assert found.startswith(f"models/m.sql:1:{column}: `")
    assert "< 'now'` reads the wall clock" in found
    assert "where text is meant, write it in one piece, beside text: CAST(x AS STRING)" in found


def test_in_a_scalar_subquery_the_types_are_those_of_its_table(tmp_path: Path) -> None:
    table = (
        "CREATE REFERENCE TABLE pages (page STRING, since TIMESTAMP, PRIMARY KEY (page)) "
        "WITH (connector = 'file', path = 'pages.csv', format = 'csv');"
    )
    sql = "SELECT page FROM clicks WHERE user_id > (SELECT count(*) FROM pages WHERE {} = 'now')"
    files = {"a.sql": SOURCES, "b.sql": table, "models/m.sql": sql.format("page")}
    assert load(tmp_path, files).warnings == ()
    (found,) = mistakes(tmp_path, {**files, "models/m.sql": sql.format("since")})
    assert "`since = 'now'` reads the wall clock" in found


def test_a_column_of_that_name_is_no_clock(tmp_path: Path) -> None:
    files = {
        "a.sql": "CREATE SOURCE TABLE s (user INT, localtimestamp INT) WITH (connector = 'file')",
        "models/m.sql": "SELECT user, localtimestamp FROM s",
    }
    query = load(tmp_path, files).views[0].query
    # Without backticks Spark would take them for its functions.
    assert "sql='`user`'" in str(query)
    assert "sql='`localtimestamp`'" in str(query)


def test_in_an_aggregate_and_in_having_it_is_found_too(tmp_path: Path) -> None:
    found = wrong_query(
        tmp_path,
        "SELECT sum(rand()) AS x FROM clicks GROUP BY TUMBLE(ts, INTERVAL '1' HOUR) "
        "HAVING max(ts) < now()",
    )
    assert [each.split(":")[2] for each in found] == ["12", "93"]


def test_every_function_that_is_not_deterministic_is_one_of_spark() -> None:
    assert (WALL_CLOCK | RANDOM | SIDE_EFFECT) <= set(spark_functions())
    assert not WALL_CLOCK & RANDOM and not RANDOM & SIDE_EFFECT
    assert kind_of_call("lower", ["x"]) is None
    warning = DeterminismWarning("random", "v", "rand()", "v.sql:1:8")
    assert warning.problem == "`rand()` is random, so view `v` is not deterministic"
    assert "determinism: warn" in warning.suggestion


def test_every_function_that_is_deterministic_is_taken(tmp_path: Path) -> None:
    """Plain calls of all of Spark's; what is grammar, or a window of its own, is told elsewhere."""
    grammar = "between case cast extract in overlay position substr substring trim try_cast when"
    apart = {*grammar.split(), *ELSEWHERE}
    names = [name for name, kind in spark_functions().items() if kind == "scalar"]
    calls = [name for name in names if name not in apart and not kind_of_call(name, [None])]
    assert len(calls) > 390
    columns = ", ".join(f"{name}(page) AS {name}_1" for name in calls)
    query = read_query(tmp_path, f"SELECT {columns} FROM clicks")
    assert isinstance(query, Select)
    # An operator, such as AND, is spelled as one.
    spelled = [each.sql.lower().replace(" ", "") for each in query.columns]
    assert spelled == [f"{name}(page)" for name in calls]
