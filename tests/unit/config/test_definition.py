"""What becomes of the state when a pipeline changes, and the reason that is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.config.definition import define
from laminar_dagster.core.definition import PipelineDefinition
from laminar_dagster.core.deployment import OperatorChange, Verdict, compare_definitions, is_wider
from laminar_dagster.core.document import decode, encode
from laminar_dagster.core.ids import OperatorId
from tests.unit.config.folders import load

SOURCE = """CREATE SOURCE TABLE s (k STRING, n INT, m INT, p DECIMAL(10, 2), ts TIMESTAMP,
WATERMARK FOR ts AS ts) WITH (connector = 'file', path = 'a');
"""
SUMS = """SELECT window_start, k, sum(n) AS a, avg(p) AS b, max(n) AS c FROM s WHERE m > 0
GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), k"""


def definition(folder: Path, source: str = SOURCE, sums: str = SUMS) -> PipelineDefinition:
    number = len(list(folder.iterdir()))
    return define(load(folder / str(number), {"a.sql": source, "models/sums.sql": sums}))


def change(folder: Path, *, source: str = SOURCE, sums: str = SUMS) -> OperatorChange:
    (found,) = compare_definitions(definition(folder), definition(folder, source, sums))
    return found


def test_it_says_what_the_state_holds(tmp_path: Path) -> None:
    found = definition(tmp_path)
    (operator,) = found.operators
    assert operator.partials == ("sum(n)", "sum(p)", "count(p)", "max(n)")
    assert operator.keys == ("k",)
    assert operator.columns == {
        "s.k": "string",
        "s.n": "int",
        "s.m": "int",
        "s.p": "decimal(10,2)",
        "s.ts": "timestamp",
    }
    assert operator.arguments == ("s.n", "s.p")
    assert decode(encode(found), PipelineDefinition, "it") == found


@pytest.mark.parametrize(
    ("old", "new", "verdict", "reason"),
    [
        ("max(n) AS c", "min(n) AS c", "rebuild", "open windows hold no `min(n)`"),
        (", max(n) AS c", "", "migrate", "`max(n)` is left out"),
        ("avg(p) AS b", "sum(p) AS b", "migrate", "`count(p)` is left out"),
        ("sum(n) AS a, avg(p) AS b", "avg(p) AS b, sum(n) AS a", "keep", ""),
        ("m > 0", "m > 1", "rebuild", "filtered by `m > 0`, and the filter is `m > 1`"),
        (" WHERE m > 0", "", "rebuild", "filtered by `m > 0`, and the filter is nothing"),
        ("'1' MINUTE", "'2' MINUTE", "rebuild", "the window was 60 s, and is 120 s"),
        (
            "TUMBLE(ts, ",
            "HOP(ts, INTERVAL '30' SECOND, ",
            "rebuild",
            "the window was 60 s, and is 60 s every 30 s",
        ),
        ("), k", "), m", "rebuild", "the keys were `k`, and are `m`"),
    ],
)
def test_a_changed_query(tmp_path: Path, old: str, new: str, verdict: Verdict, reason: str) -> None:
    changed = SUMS.replace(old, new)
    assert changed != SUMS
    changed = changed.replace("start, k", "start, m") if "), m" in new else changed
    found = change(tmp_path, sums=changed)
    assert found.verdict == verdict
    assert any(reason in each for each in found.reasons) or not reason


@pytest.mark.parametrize(
    ("old", "new", "verdict", "reason"),
    [
        ("n INT", "n BIGINT", "migrate", "`s.n` is widened from INT to BIGINT"),
        ("n INT", "n SMALLINT", "rebuild", "`s.n` was INT, and is SMALLINT"),
        ("p DECIMAL(10, 2)", "p DECIMAL(12, 2)", "migrate", "`s.p` is widened"),
        ("p DECIMAL(10, 2)", "p DECIMAL(12, 3)", "rebuild", "`s.p` was DECIMAL(10,2)"),
        ("m INT", "m BIGINT", "rebuild", "`s.m` was INT, and is BIGINT"),
        ("k STRING", "k STRING, more DATE", "keep", ""),
        ("'a'", "'b'", "rebuild", "`s`, which it reads, has changed"),
    ],
)
def test_a_changed_source(
    tmp_path: Path, old: str, new: str, verdict: Verdict, reason: str
) -> None:
    found = change(tmp_path, source=SOURCE.replace(old, new))
    assert found.verdict == verdict
    assert any(reason in each for each in found.reasons) or not reason


def test_views_that_come_and_go(tmp_path: Path) -> None:
    files = {"a.sql": SOURCE, "models/sums.sql": SUMS}
    one = define(load(tmp_path / "1", files))
    two = define(load(tmp_path / "2", {"a.sql": SOURCE, "models/totals.sql": SUMS}))
    assert [(each.operator_id, each.verdict) for each in compare_definitions(one, two)] == [
        ("sums", "drop"),
        ("totals", "new"),
    ]


def test_each_part_of_a_union_and_a_window_below_a_window_is_an_operator(tmp_path: Path) -> None:
    window = "TUMBLE(window_start, INTERVAL '1' HOUR)"
    more = f"SELECT window_start AS w, sum(a) AS t FROM sums GROUP BY {window}"
    files = {
        "a.sql": SOURCE,
        "models/sums.sql": SUMS,
        "models/both.sql": f"{more} UNION ALL {more.replace('sum(a)', 'max(a)')}",
    }
    found = define(load(tmp_path, files))
    assert [each.operator_id for each in found.operators] == ["sums", "both.0", "both.1"]
    assert set(found.operators[1].reads) == {"s", "sums"}


HOURS = """SELECT window_start AS w, k, sum(a) AS t FROM sums
GROUP BY TUMBLE(window_start, INTERVAL '1' HOUR), k"""


@pytest.mark.parametrize(
    ("sums", "verdict"),
    [
        (SUMS.replace("sum(n) AS a", "min(m) AS d, sum(n) AS a"), "keep"),
        (SUMS.replace("max(n) AS c", "upper(k) AS c"), "keep"),
        (SUMS.replace("b, max(n) AS c", "b"), "keep"),
        (SUMS.replace("sum(n) AS a", "min(n) AS a"), "rebuild"),
        (SUMS.replace("sum(n) AS a", "sum(n) + count(*) AS a"), "rebuild"),
        (f"{SUMS} HAVING max(n) > 1", "rebuild"),
        (SUMS.replace("m > 0", "m > 1"), "rebuild"),
    ],
)
def test_an_operator_minds_only_what_it_uses_of_the_views_below(
    tmp_path: Path, sums: str, verdict: Verdict
) -> None:
    files = {"a.sql": SOURCE, "models/sums.sql": SUMS, "models/hours.sql": HOURS}
    old = define(load(tmp_path / "1", files))
    new = define(load(tmp_path / "2", {**files, "models/sums.sql": sums}))
    found = {each.operator_id: each.verdict for each in compare_definitions(old, new)}
    assert found[OperatorId("hours")] == verdict


def test_a_query_may_become_a_view_of_its_own_and_a_view_be_renamed(tmp_path: Path) -> None:
    inner = "SELECT k, n * 2 AS n, ts FROM s WHERE m > 0"
    outer = (
        "SELECT window_start, k, sum(n) AS a FROM {} GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), k"
    )
    versions = [
        {"models/sums.sql": outer.format(f"({inner})")},
        {"models/clean.sql": inner, "models/sums.sql": outer.format("clean")},
        {"models/tidy.sql": inner, "models/sums.sql": outer.format("tidy")},
        {"models/sums.sql": f"WITH c AS ({inner}) " + outer.format("c")},
    ]
    found = [
        define(load(tmp_path / str(number), {"a.sql": SOURCE, **files}))
        for number, files in enumerate(versions)
    ]
    for other in found[1:]:
        (change,) = compare_definitions(found[0], other)
        assert change.verdict == "keep", change.reasons


def test_columns_of_a_union_are_told_by_their_place(tmp_path: Path) -> None:
    sums = "SELECT window_end, sum(n) AS a FROM u GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"
    unions = [
        "SELECT n, m, ts FROM s UNION ALL SELECT m, n, ts FROM s",
        "SELECT n, m + 1 AS m, ts FROM s UNION ALL SELECT m, n + 1 AS n, ts FROM s",
        "SELECT n, m, ts FROM s UNION ALL SELECT n, m, ts FROM s",
    ]
    found = [
        define(load(tmp_path / str(i), {"a.sql": SOURCE, "models/u.sql": u, "models/x.sql": sums}))
        for i, u in enumerate(unions)
    ]
    assert compare_definitions(found[0], found[1])[0].verdict == "keep"
    assert compare_definitions(found[0], found[2])[0].verdict == "rebuild"


@pytest.mark.parametrize("emit", ["ON WINDOW CLOSE", "CHANGES"])
def test_a_view_says_what_an_added_aggregate_may_show(tmp_path: Path, emit: str) -> None:
    sums = f"{SUMS} EMIT {emit} WITH (state.added = 'null')"
    old = definition(tmp_path, sums=f"{SUMS} EMIT {emit}")
    new = definition(tmp_path, sums=sums.replace("max(n) AS c", "max(n) AS c, min(n) AS d"))
    (found,) = compare_definitions(old, new)
    assert found.verdict == "migrate"
    assert found.reasons == (
        "`min(n)` is added: NULL in rows that are there, exact in all that begin",
    )
    assert old.fingerprint != definition(tmp_path, sums=sums).fingerprint


def test_a_type_that_is_wider() -> None:
    assert is_wider("INT", "bigint")
    assert is_wider("float", "double")
    assert is_wider("decimal(10,2)", "decimal(10, 2)")
    assert not is_wider("bigint", "int")
    assert not is_wider("int", "double")
    assert not is_wider("string", "int")
