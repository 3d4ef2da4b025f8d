"""What stands beside ROW_NUMBER is applied or refused, never left out."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from laminar_dagster.config.aggregate import Ordering
from laminar_dagster.config.relations import (
    KeyedAggregate,
    Projection,
    Ranked,
    Select,
    TableInput,
)
from tests.unit.config.folders import SOURCES, load, mistakes, read_query, wrong_query

TTL = "EMIT CHANGES WITH (state.ttl = '1d')"
NUMBER = "ROW_NUMBER() OVER (PARTITION BY page ORDER BY ts)"
INSIDE = f"SELECT page, user_id, {NUMBER} AS rn FROM clicks"
RANKED = Ranked(
    source=TableInput("clicks"),
    keys=(Projection("_k0", "page"),),
    order=(Ordering("ts", False, True),),
    limit=2,
    rank="rn",
    columns=(Projection("page", "page"), Projection("user_id", "user_id")),
    time="ts",
    gap_micros=86_400_000_000,
)
WITH_FIELD = SOURCES.replace("STRUCT<os: STRING>", "STRUCT<os: STRING, rn: INT>")


@pytest.mark.parametrize(
    "condition",
    ["rn <= 2", "RN < 3", "((rn <= 2))", f"{NUMBER} <= 2", f"(({NUMBER.lower()}) < 3)"],
)
def test_qualify_limits_the_row_number_of_select(tmp_path: Path, condition: str) -> None:
    assert read_query(tmp_path, f"{INSIDE} QUALIFY {condition} {TTL}") == RANKED


def test_qualify_may_stand_in_parentheses_by_itself(tmp_path: Path) -> None:
    query = read_query(tmp_path, f"SELECT page, user_id FROM clicks QUALIFY ({NUMBER} < 3) {TTL}")
    assert query == dataclasses.replace(RANKED, rank=None)


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("rn <= 2 AND page > 'a'", "rn <= 2 AND page > 'a'"),
        ("page > 'a' AND (x.rn < 3 AND user_id > 0)", "page > 'a' AND (rn < 3 AND user_id > 0)"),
    ],
)
def test_the_query_around_keeps_its_other_conditions(tmp_path: Path, where: str, kept: str) -> None:
    query = read_query(tmp_path, f"SELECT page FROM ({INSIDE}) x WHERE {where} {TTL}")
    assert isinstance(query, Select)
    assert (query.source, query.where) == (RANKED, kept)


def test_groups_around_keep_their_other_conditions(tmp_path: Path) -> None:
    sql = f"SELECT user_id, COUNT(*) AS n FROM ({INSIDE}) WHERE rn <= 2 AND page > 'a' "
    query = read_query(tmp_path, f"{sql} GROUP BY user_id {TTL.replace('1d', 'unbounded')}")
    assert isinstance(query, KeyedAggregate)
    assert query.where == "rn <= 2 AND page > 'a'"
    assert isinstance(query.source, Ranked)


BESIDE = (
    "a condition beside the limit of ROW_NUMBER in QUALIFY is not supported yet "
    "(say it by WHERE in a query around: FROM (SELECT … QUALIFY …) WHERE …)"
)
NO_LIMIT = (
    "ROW_NUMBER without a limit would keep every row (say WHERE rn = 1 or rn <= n in the query "
    "around it, or QUALIFY ROW_NUMBER() … <= n)"
)
BESIDE_GROUPS = (
    "QUALIFY beside GROUP BY, DISTINCT or aggregates is not supported yet (number the rows in a "
    "query around: FROM (SELECT … GROUP BY …) QUALIFY ROW_NUMBER() …)"
)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (f"{INSIDE} QUALIFY rn <= 2 AND page > 'a'", f"1:99: {BESIDE}"),
        (f"{INSIDE} QUALIFY (page > 'a' AND rn <= 2)", f"1:99: {BESIDE}"),
        (f"SELECT page FROM clicks QUALIFY {NUMBER} <= 2 AND page > 'a'", f"1:33: {BESIDE}"),
        (f"{INSIDE} QUALIFY page > 'a'", f"1:23: {NO_LIMIT}"),
        (f"{INSIDE} QUALIFY rn <= 2 OR page > 'a'", f"1:23: {NO_LIMIT}"),
        (f"{INSIDE} QUALIFY rn <= 12345678901", f"1:23: {NO_LIMIT}"),
        (
            f"{INSIDE} QUALIFY ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY ts DESC) <= 2",
            "1:99: QUALIFY of another ROW_NUMBER than the one in SELECT is not supported yet "
            "(write its name in QUALIFY, or leave it out of SELECT)",
        ),
        (
            f"{INSIDE} HAVING page = 'x' QUALIFY rn = 1",
            "1:91: HAVING stands without GROUP BY (use WHERE)",
        ),
        (
            f"SELECT page, {NUMBER} AS user_id FROM clicks QUALIFY user_id <= 1",
            "1:95: `user_id` is both a column of the input and a column of SELECT "
            "(give the column of SELECT another name)",
        ),
        (
            "SELECT page FROM clicks QUALIFY ROW_NUMBER() OVER (w ORDER BY ts) = 1",
            "1:33: ROW_NUMBER without ORDER BY, or with a frame has no first rows "
            "(write ROW_NUMBER() OVER (PARTITION BY … ORDER BY …))",
        ),
        (
            "SELECT page, COUNT(*) AS n FROM clicks GROUP BY page "
            "QUALIFY ROW_NUMBER() OVER (ORDER BY page) <= 2",
            f"1:54: {BESIDE_GROUPS}",
        ),
        (f"SELECT DISTINCT page FROM clicks QUALIFY {NUMBER} <= 2", f"1:34: {BESIDE_GROUPS}"),
        (f"SELECT COUNT(*) AS n FROM clicks QUALIFY {NUMBER} <= 2", f"1:34: {BESIDE_GROUPS}"),
    ],
)
def test_what_would_be_left_out_is_refused(tmp_path: Path, sql: str, expected: str) -> None:
    assert wrong_query(tmp_path, f"{sql} {TTL}") == [f"models/m.sql:{expected}"]


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT page FROM (SELECT *, {NUMBER} AS rn FROM clicks) WHERE device.rn <= 1",
        f"SELECT page, {NUMBER} AS rn FROM clicks QUALIFY device.rn <= 1",
        f"SELECT page, {NUMBER} AS rn FROM clicks QUALIFY clicks.rn <= 1",
    ],
)
def test_a_field_of_the_same_name_is_no_row_number(tmp_path: Path, sql: str) -> None:
    files = {"sources.sql": WITH_FIELD, "models/m.sql": f"{sql} {TTL}"}
    (found,) = mistakes(tmp_path, files)
    assert found.endswith(f": {NO_LIMIT}")


def test_a_row_number_and_a_field_of_its_name_stand_together(tmp_path: Path) -> None:
    sql = f"SELECT page FROM (SELECT *, {NUMBER} AS rn FROM clicks) WHERE device.rn = 1 AND rn < 4"
    files = {"sources.sql": WITH_FIELD, "models/m.sql": f"{sql} {TTL}"}
    (query,) = [each.query for each in load(tmp_path, files).views if each.name == "m"]
    assert isinstance(query, Select)
    assert isinstance(query.source, Ranked)
    assert (query.source.limit, query.where) == (3, "device.rn = 1 AND rn < 4")
