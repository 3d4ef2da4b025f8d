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
from tests.unit.config.folders import CONFIG, SOURCES, load, read_query, wrong_query

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
        "raise_error('x')",
        "xxhash64(page)",
        "aes_encrypt(page, 'key', 'ECB')",
    ],
)
def test_determinism_validator_clean_operator_no_warnings(tmp_path: Path, call: str) -> None:
    read_query(tmp_path, f"SELECT {call} AS x FROM clicks")
    assert warnings(tmp_path, call) == ()


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
