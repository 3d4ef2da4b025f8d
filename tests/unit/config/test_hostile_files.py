"""Whatever stands in a folder, loading it ends soon, in a model or in a named error."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyspark
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from laminar_dagster.config.project import load_pipeline
from laminar_dagster.config.sql.functions import spark_functions
from laminar_dagster.config.statements import run_statement
from laminar_dagster.core.errors import LaminarError
from tests.unit.config.folders import CONFIG, SOURCES, load, mistakes, write

pytestmark = pytest.mark.slow

SOON = 20.0

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)

HOSTILE: list[tuple[str, str | bytes, str]] = [
    ("pipeline.yml", BOMB, "aliases are not allowed"),
    ("pipeline.yml", "a: " + "[" * 5_000, "nested more than 50 deep"),
    ("pipeline.yml", "x" * 2_000_000, "it is larger than 1048576 bytes"),
    ("pipeline.yml", b"\xff\xfe\x00", "it is not UTF-8"),
    ("pipeline.yml", "a: \x07", "it holds U+0007, which YAML does not allow"),
    ("pipeline.yml", f"{CONFIG}buckets: {'9' * 5_000}", "cannot be read"),
    ("models/m.sql", b"\x7fELF\x02\x01\x00", "it holds a NUL character"),
    ("models/m.sql", b"\x80\x81", "it is not UTF-8"),
    ("models/m.sql", "x" * 2_000_000, "it is larger than 1048576 bytes"),
    ("models/m.sql", "SELECT " + "(" * 30_000, "it is nested more than 32 deep"),
    ("models/m.sql", "SELECT " + "- " * 50_000 + "1 AS x FROM clicks", "nested too deeply"),
    ("models/m.sql", "SELECT " + "NOT " * 50_000 + "x AS x FROM clicks", "nested too deeply"),
    ("models/m.sql", "SELECT " + "CASE WHEN 1 THEN " * 20_000, "nested too deeply"),
    ("models/m.sql", "SELECT " + "date(" * 30 + ")" * 30 + " FROM clicks", "needs a name"),
    ("models/m.sql", "SELECT '" + "x" * 500_000, "is never closed"),
    ("models/m.sql", "/* " * 1_000 + "SELECT", "models/m.sql"),
    ("models/m.sql", ", " * 300_000, "it holds more than 200000 words"),
    ("models/m.sql", "SELECT x FROM clicks " + "JOIN t " * 2_000, "more than 8 joins in one view"),
    ("contracts/per_minute.yml", BOMB, "aliases are not allowed"),
    ("contracts/per_minute.yml", "/etc/passwd", "a schema is a mapping"),
    ("models/a..sql", "SELECT page FROM clicks", "must not begin or end with '.'"),
    ("models/a b.sql", "SELECT page FROM clicks", "operator id 'a b' holds U+0020"),
]


@pytest.mark.parametrize(("name", "content", "expected"), HOSTILE)
def test_a_hostile_file_ends_in_a_named_error(
    tmp_path: Path, name: str, content: str | bytes, expected: str
) -> None:
    began = time.monotonic()
    found = mistakes(tmp_path, {"sources.sql": SOURCES, name: content})
    assert expected in "\n".join(found)
    assert all(len(each) < 1_000 for each in found)
    assert time.monotonic() - began < SOON


def test_files_that_lead_out_of_the_folder_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.sql").write_text("SELECT hunter2")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "m.sql").write_text("SELECT hunter2")
    root = write(tmp_path, {"models/ok.sql": "SELECT page FROM clicks"})
    (root / "a.sql").symlink_to(tmp_path / "secret.sql")
    (root / "contracts").symlink_to(tmp_path / "elsewhere")
    (root / "loop.sql").symlink_to(root / "loop.sql")
    found = "\n".join(mistakes(tmp_path, {"sources.sql": SOURCES}))
    assert "a.sql: it leads out of the pipeline's folder" in found
    assert "hunter2" not in found


def test_a_named_pipe_is_not_waited_for(tmp_path: Path) -> None:
    root = write(tmp_path, {})
    os.mkfifo(root / "a.sql")
    assert mistakes(tmp_path, {}) == ["a.sql: it is not a regular file"]


def test_ten_thousand_columns_do_not_hang(tmp_path: Path) -> None:
    columns = ", ".join(f"column_{number} INT" for number in range(10_000))
    wrong = ", ".join(f"colum_{number}" for number in range(200))
    source = f"CREATE SOURCE TABLE wide ({columns}) WITH (connector = 'file')"
    views = {f"models/v{n}.sql": f"SELECT * FROM {f'v{n - 1}' if n else 'wide'}" for n in range(5)}
    began = time.monotonic()
    model = load(tmp_path / "good", {"a.sql": source, **views})
    assert len(model.views[-1].columns) == 10_000
    bad = {"a.sql": source, "models/m.sql": f"SELECT {wrong} FROM wide"}
    assert len(mistakes(tmp_path / "bad", bad)) == 100
    assert time.monotonic() - began < 2 * SOON


def test_long_chains_are_no_problem(tmp_path: Path) -> None:
    total = " + ".join(["user_id"] * 5_000)
    union = " UNION ALL ".join(["SELECT page FROM clicks"] * 300)
    model = load(
        tmp_path,
        {
            "a.sql": SOURCES,
            "models/sum.sql": f"SELECT {total} AS x FROM clicks",
            "models/union.sql": union,
            **{
                f"models/v{n}.sql": f"SELECT page FROM {f'v{n + 1}' if n < 99 else 'clicks'}"
                for n in range(100)
            },
        },
    )
    assert len(model.views) == 103


PIECES = st.sampled_from(
    "CREATE SOURCE TABLE VIEW MATERIALIZED SINK FROM WITH AS SELECT WHERE GROUP BY HAVING UNION "
    "TUMBLE HOP ( ) , . ; = ' \" ` * + - / -> :: : [ ] { } < > <= ! | || @ # $ ? \\ /* */ -- \n "
    "INTERVAL '1' MINUTE WATERMARK FOR ts clicks page a1 count sum now rand 1 1.5 1L 'x' NULL NOT "
    "CASE WHEN THEN END CAST INT ARRAY STRUCT MAP OVER DISTINCT IN LIKE BETWEEN IS ORDER LIMIT "
    "JOIN ALL ON EMIT WINDOW CLOSE TABLE DESCRIPTOR LATERAL EXISTS TRIM EXTRACT DATE TIMESTAMP -> "
    "SHOW SOURCES DESCRIBE DROP VALUES PIVOT CUBE window_start epoch_time ( ) AS é \u200b".split(
        " "
    )
)
SQL_LIKE = st.lists(PIECES, max_size=40).map(" ".join)
GARBAGE = st.one_of(SQL_LIKE, st.text(max_size=200), SQL_LIKE.map(lambda text: f"SELECT {text}"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example("SELECT * FROM clicks c, c.tags")
@example("SELECT CASE")
@example("SELECT x.y.z.a.b.c FROM clicks")
@given(sql=GARBAGE)
def test_garbage_sql_is_a_named_error_at_worst(tmp_path: Path, sql: str) -> None:
    root = write(tmp_path, {"sources.sql": SOURCES})
    for name in ("models/m.sql", "x.sql"):
        target = root / name
        target.parent.mkdir(exist_ok=True)
        target.write_text(sql, encoding="utf-8", errors="surrogatepass")
        _load(root)
        target.unlink()
    model = load_pipeline(root, {})
    try:
        run_statement(sql, model)
    except LaminarError:
        pass


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(expression=SQL_LIKE, clause=st.sampled_from(["{} AS x", "page FROM clicks WHERE {}"]))
def test_garbage_expressions_too(tmp_path: Path, expression: str, clause: str) -> None:
    sql = f"SELECT {clause.format(expression)}"
    root = write(tmp_path, {"sources.sql": SOURCES, "models/m.sql": f"{sql} FROM clicks"})
    _load(root)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.one_of(st.binary(max_size=100), st.text(max_size=200).map(str.encode)))
def test_garbage_yaml_is_a_named_error_at_worst(tmp_path: Path, content: bytes) -> None:
    for name in ("pipeline.yml", "contracts/per_minute.yml"):
        _load(write(tmp_path / name.replace("/", "_"), {"sources.sql": SOURCES, name: content}))


def _load(root: Path) -> None:
    try:
        load_pipeline(root, {})
    except LaminarError as error:
        assert str(error)


def test_the_list_of_functions_is_that_of_the_installed_spark() -> None:
    from importlib.resources import files

    first = (
        (files("laminar_dagster.config.sql") / "spark_functions.txt").read_text().splitlines()[0]
    )
    # Run `python -m tests.unit.config.write_spark_functions` when this fails.
    assert first == f"# The functions of Spark {pyspark.__version__}: name, kind."
    assert spark_functions()["sum"] == "aggregate"
