"""Each column of a view is traced to the columns of what the view reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from laminar_dagster.config.lineage import InputColumn, column_lineage
from laminar_dagster.config.project import load_pipeline
from laminar_dagster.config.relations import Projection, Select
from tests.unit.config.folders import SOURCES, load
from tests.unit.config.test_queries import TEXTS

ROOT = Path(__file__).parents[3]
W = "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"
# In the order in which `clicks` declares them.
CLICKS = ("user_id", "page", "amount", "device", "tags", "ts", "a b")


def trace(folder: Path, sql: str) -> Mapping[str, set[str]]:
    """Where the columns of one query over ``SOURCES`` come from, as ``relation.column``."""
    model = load(folder, {"sources.sql": SOURCES, "models/m.sql": sql})
    found = column_lineage(model)["m"]
    (view,) = (each for each in model.views if each.name == "m")
    assert tuple(found) == view.columns
    assert all(list(origins) == sorted(set(origins)) for origins in found.values())
    return {name: {".".join(each) for each in origins} for name, origins in found.items()}


EXPRESSIONS = [
    ("page", "page"),
    ("C.PAGE", "page"),
    ("c.device.os", "device"),
    ("Device.OS", "device"),
    ("`a b` + 1", "a b"),
    ("`USER_ID` + amount", "amount user_id"),
    ("'page'", ""),
    ("epoch_time()", ""),
    ("tags[user_id]", "tags user_id"),
    ("case when page = 'a' then amount else 0 end", "amount page"),
    ("transform(tags, page -> page || 'x')", "tags"),
    ("transform(tags, t -> concat(t, c.page))", "page tags"),
    ("struct(page, user_id AS ts)", "page user_id"),
    ("named_struct('ts', page).ts", "page"),
    ("dateadd(day, 1, ts)", "ts"),
    ("extract(hour from ts)", "ts"),
    ("cast(page as int) :: string", "page"),
    ("mask(page, lowerChar => 'q')", "page"),
    ("page -- and not amount", "page"),
]


@pytest.mark.parametrize(("written", "columns"), EXPRESSIONS)
def test_an_expression_is_computed_from_the_columns_in_it(
    tmp_path: Path, written: str, columns: str
) -> None:
    found = trace(tmp_path, f"SELECT {written}\nAS x FROM clicks AS c WHERE user_id > 1")
    wanted = ["a b"] if columns == "a b" else columns.split()
    assert found == {"x": {f"clicks.{each}" for each in wanted}}


@pytest.mark.parametrize("written", [written for written, _ in TEXTS])
def test_whatever_a_query_may_hold_can_be_read_again(tmp_path: Path, written: str) -> None:
    """What cannot is traced to all columns; no expression of these mentions so many."""
    (found,) = trace(tmp_path, f"SELECT {written} AS x FROM clicks AS c").values()
    assert len(found) < len(CLICKS) - 1


def test_a_unit_is_no_column_although_there_is_one_of_its_name(tmp_path: Path) -> None:
    files = {
        "a.sql": "CREATE SOURCE TABLE s (day INT, ts TIMESTAMP) WITH (connector = 'file')",
        "models/m.sql": "SELECT dateadd(DAY, day, ts) AS a, dateadd(DAY, 1, ts) AS b FROM s",
    }
    day, ts = InputColumn("s", "day"), InputColumn("s", "ts")
    assert column_lineage(load(tmp_path, files)) == {"m": {"a": (day, ts), "b": (ts,)}}


def test_keys_aggregates_and_the_edges_of_a_window(tmp_path: Path) -> None:
    found = trace(
        tmp_path,
        "SELECT window_start, TUMBLE_END(ts, INTERVAL '1' MINUTE) AS e, upper(page) AS p, "
        "device.os, count(*) AS n, count(tags) AS t, sum(amount) / count(*) AS mean, "
        "max(user_id + `a b`) - min(amount) AS d, 1 AS one, "
        "to_json(struct(device, upper(page), count(*) AS tags)) AS j "
        f"FROM clicks WHERE user_id > 0 {W}, upper(page), device HAVING avg(user_id) > 2",
    )
    assert found == {
        "window_start": {"clicks.ts"},
        "e": {"clicks.ts"},
        "p": {"clicks.page"},
        "os": {"clicks.device"},
        "n": set(),
        "t": {"clicks.tags"},
        "mean": {"clicks.amount"},
        "d": {"clicks.user_id", "clicks.a b", "clicks.amount"},
        "one": set(),
        "j": {"clicks.device", "clicks.page"},
    }


def test_queries_in_queries_are_seen_through(tmp_path: Path) -> None:
    found = trace(
        tmp_path,
        "SELECT N * 2 AS twice, who, w, o FROM (SELECT sum(v) AS n, max(u) AS who, "
        "window_end AS w, min(d.os) AS o FROM (SELECT amount + `a b` AS v, user_id AS u, "
        "device AS d, ts AS t FROM clicks) GROUP BY HOP(t, INTERVAL '1' MINUTE, INTERVAL "
        "'5' MINUTE)) AS q",
    )
    assert found == {
        "twice": {"clicks.amount", "clicks.a b"},
        "who": {"clicks.user_id"},
        "w": {"clicks.ts"},
        "o": {"clicks.device"},
    }


def test_a_union_joins_columns_by_position(tmp_path: Path) -> None:
    found = trace(
        tmp_path,
        "SELECT a AS first, b FROM (SELECT page AS a, user_id AS b FROM clicks UNION ALL "
        "SELECT n, PAGE FROM per_minute UNION ALL SELECT 1, id FROM Plain)",
    )
    assert found == {
        "first": {"clicks.page", "per_minute.n"},
        "b": {"clicks.user_id", "per_minute.page", "plain.id"},
    }


def test_names_are_those_that_were_declared(tmp_path: Path) -> None:
    files = {
        "a.sql": "CREATE SOURCE TABLE Raw (`Möbel` INT, B STRING) WITH (connector = 'file')",
        "models/One.sql": "SELECT möbel AS Piece, b FROM RAW",
        "models/two.sql": "SELECT piece || b AS P, * FROM one",
    }
    assert column_lineage(load(tmp_path, files)) == {
        "One": {"Piece": (("Raw", "Möbel"),), "b": (("Raw", "B"),)},
        "two": {
            "P": (("One", "Piece"), ("One", "b")),
            "Piece": (("One", "Piece"),),
            "b": (("One", "b"),),
        },
    }


@pytest.mark.parametrize("sql", ["page +", "unheard_of(page)", "nowhere", "(" * 40 + ")" * 40])
def test_what_cannot_be_read_is_computed_from_every_column(tmp_path: Path, sql: str) -> None:
    model = load(tmp_path, {"a.sql": SOURCES, "models/m.sql": "SELECT page FROM clicks"})
    view = next(each for each in model.views if each.name == "m")
    assert isinstance(view.query, Select)
    broken = replace(view, query=replace(view.query, columns=(Projection("page", sql),)))
    found = column_lineage(replace(model, views=(broken,)))
    assert {each.column for each in found["m"]["page"]} == set(CLICKS)


def test_the_pipeline_of_the_demo() -> None:
    model = load_pipeline(ROOT / "dbt_like_configs" / "clickstream", {})
    assert column_lineage(model) == {
        "visits": {
            name: (InputColumn("clicks", name),)
            for name in ("user_id", "page", "load_ms", "amount", "ts")
        },
        "page_minutes": {
            "page": (InputColumn("visits", "page"),),
            "minute": (InputColumn("visits", "ts"),),
            "views": (),
            "revenue": (InputColumn("visits", "amount"),),
            "mean_load_ms": (InputColumn("visits", "load_ms"),),
            "max_load_ms": (InputColumn("visits", "load_ms"),),
        },
        "purchases": {
            name: (InputColumn("visits", name),) for name in ("user_id", "page", "amount", "ts")
        },
    }
