"""A change of what an operator reads: an aggregate of a view below it, or a reference table."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from laminar_dagster.config.definition import define
from laminar_dagster.core.definition import PipelineDefinition
from laminar_dagster.core.deployment import OperatorChange, compare_definitions
from tests.unit.config.folders import SOURCES, load

BELOW = (
    "SELECT window_end, page, {} AS p, COUNT(*) AS n FROM clicks"
    " GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), page"
)
ABOVE = "SELECT page, MAX(p) AS m FROM va GROUP BY page EMIT CHANGES WITH (state.ttl = '1d')"


def over(folder: Path, aggregate: str) -> PipelineDefinition:
    """A view ``vb`` over an aggregate of the view ``va``."""
    views = {"models/va.sql": BELOW.format(aggregate), "models/vb.sql": ABOVE}
    return define(load(folder / str(len([*folder.iterdir()])), {"s.sql": SOURCES, **views}))


def change(old: PipelineDefinition, new: PipelineDefinition, operator: str) -> OperatorChange:
    (found,) = (each for each in compare_definitions(old, new) if each.operator_id == operator)
    return found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("PERCENTILE(amount, 0.5)", "PERCENTILE(amount, 0.9)"),
        ("PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY amount)", "PERCENTILE(amount, 0.1)"),
        ("APPROX_PERCENTILE(amount, 0.5)", "APPROX_PERCENTILE(amount, 0.9)"),
        ("APPROX_PERCENTILE(amount, 0.5, 100)", "APPROX_PERCENTILE(amount, 0.5, 1000)"),
        ("APPROX_COUNT_DISTINCT(user_id)", "APPROX_COUNT_DISTINCT(user_id, 0.01)"),
        ("CORR(amount, user_id)", "CORR(amount, `a b`)"),
        ("COUNT(DISTINCT user_id)", "COUNT(DISTINCT user_id, amount)"),
        ("STRING_AGG(page, ',')", "STRING_AGG(page, ';')"),
        ("STRING_AGG(page, ',')", "STRING_AGG(DISTINCT page, ',')"),
        (
            "LISTAGG(page, ',') WITHIN GROUP (ORDER BY ts)",
            "LISTAGG(page, ',') WITHIN GROUP (ORDER BY ts DESC)",
        ),
        (
            "LISTAGG(page, ',') WITHIN GROUP (ORDER BY ts)",
            "LISTAGG(page, ',') WITHIN GROUP (ORDER BY amount)",
        ),
        ("MAX_BY(amount, ts)", "MAX_BY(amount, user_id)"),
    ],
)
def test_every_argument_of_an_aggregate_below_counts(tmp_path: Path, old: str, new: str) -> None:
    found = change(over(tmp_path, old), over(tmp_path, new), "vb")
    assert (found.verdict, found.reasons) == ("rebuild", ("`va`, which it reads, has changed",))


@pytest.mark.parametrize("argument", ["CORR(amount, x)", "LISTAGG(page) WITHIN GROUP (ORDER BY x)"])
def test_what_every_argument_is_computed_from_counts(tmp_path: Path, argument: str) -> None:
    def given(x: str) -> PipelineDefinition:
        views = {
            "models/v0.sql": f"SELECT page, amount, {x} AS x, ts FROM clicks",
            "models/va.sql": BELOW.format(argument).replace("clicks", "v0"),
            "models/vb.sql": ABOVE,
        }
        return define(load(tmp_path / str(len([*tmp_path.iterdir()])), {"s.sql": SOURCES, **views}))

    assert change(given("user_id"), given("user_id + 1"), "vb").verdict == "rebuild"


def test_an_aggregate_that_it_does_not_use_still_does_not_count(tmp_path: Path) -> None:
    old, new = "MAX(amount)", "MAX(amount) AS p, PERCENTILE(amount, 0.9) AS other, MIN(amount)"
    views = {"models/vb.sql": ABOVE}
    changed = BELOW.format(new).replace("AS p, COUNT(*) AS n", "AS least, COUNT(*) AS n")
    after = define(load(tmp_path / "n", {"s.sql": SOURCES, "models/va.sql": changed, **views}))
    assert change(over(tmp_path, old), after, "vb").verdict == "keep"


# What was written down before every argument counted.
EARLIER = {
    "SUM(amount)": "aebcb152102e897ee2ae3e4a72f24375d57fa91c662ecf9eebfd44398f6ec0c9",
    "MAX_BY(amount, ts)": "146dde3ca5774059aedb70ac0372171da09c3da8916ff4c80f80f1f8a5059bb5",
    "COUNT(DISTINCT user_id, amount)": (
        "d27d77cee478879cb31a088a658e35ff9345814b4dcea3c4ca8d6085ac97ae94"
    ),
    "STRING_AGG(page, ',')": "a43664d526155f6631dcdd42208fc9aa55c175f72474334154dffe158f0a3246",
    "PERCENTILE(amount, 0.5)": "8d9803ff622df628e78c52e89fa6cefc74d452267ad0c034897c55635b78a36a",
}


def as_earlier(new: PipelineDefinition, aggregate: str) -> PipelineDefinition:
    *others, vb = new.operators
    assert vb.operator_id == "vb"
    return structs.replace(new, operators=(*others, structs.replace(vb, input=EARLIER[aggregate])))


@pytest.mark.parametrize("aggregate", EARLIER)
def test_a_stored_definition_of_before_makes_no_rebuild_of_what_is_the_same(
    tmp_path: Path, aggregate: str
) -> None:
    now = over(tmp_path, aggregate)
    assert change(as_earlier(now, aggregate), now, "vb").verdict == "keep"


@pytest.mark.parametrize("aggregate", ["SUM(amount)", "MAX_BY(amount, ts)"])
def test_what_was_told_wholly_before_is_told_in_the_same_words(
    tmp_path: Path, aggregate: str
) -> None:
    assert over(tmp_path, aggregate).operators[-1].input == EARLIER[aggregate]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("STRING_AGG(page, ',')", "STRING_AGG(page)"),
        ("COUNT(DISTINCT user_id, amount)", "COUNT(DISTINCT user_id)"),
        ("PERCENTILE(amount, 0.5)", "PERCENTILE(amount, 0.9)"),
    ],
)
def test_a_stored_definition_of_before_hides_no_change(tmp_path: Path, old: str, new: str) -> None:
    before = as_earlier(over(tmp_path, old), old)
    assert change(before, over(tmp_path, new), "vb").verdict == "rebuild"


TABLE = """\
CREATE REFERENCE TABLE pages (
    page STRING, title STRING, weight INT, section INT, spare INT, PRIMARY KEY (page)
) WITH (connector = 'file', path = 'pages.csv', format = 'csv'{});
"""
FOREVER = "EMIT CHANGES WITH (state.ttl = 'unbounded')"
PER_SECTION = f"""SELECT p.section, COUNT(*) AS n, MAX(p.title) AS title
FROM clicks c JOIN pages p ON c.page = p.page GROUP BY p.section {FOREVER}"""
ABOVE_LIMIT = f"""SELECT page, COUNT(*) AS n FROM clicks
WHERE amount > (SELECT MAX(weight) FROM pages WHERE section > 1) GROUP BY page {FOREVER}"""
PAIRS = f"""SELECT a.user_id, b.id FROM (
    SELECT c.user_id, p.section FROM clicks c JOIN pages p ON c.page = p.page
) a JOIN plain b ON a.section = b.id {FOREVER}"""
COUNTED = f"SELECT page, COUNT(*) AS n FROM clicks GROUP BY page {FOREVER}"
BY_SIZE = f"""SELECT p.section, SUM(n) AS n FROM counted c
JOIN pages p ON c.page = p.page GROUP BY p.section {FOREVER}"""
LARGE = f"""SELECT n, COUNT(*) AS pages FROM counted
WHERE n > (SELECT MAX(weight) FROM pages) GROUP BY n {FOREVER}"""


def joined(folder: Path, sql: str, table: str = TABLE.format("")) -> PipelineDefinition:
    """A view ``m`` over the reference table."""
    views = {"models/counted.sql": COUNTED, "models/m.sql": sql}
    files = {"s.sql": SOURCES, "t.sql": table, **views}
    return define(load(folder / str(len([*folder.iterdir()])), files))


@pytest.mark.parametrize("sql", [PER_SECTION, ABOVE_LIMIT, PAIRS])
@pytest.mark.parametrize(
    ("old", "new"),
    [("pages.csv", "other.csv"), ("'csv'", "'ndjson'"), (", PRIMARY KEY (page)", "")],
)
def test_a_table_that_moves_is_kept_as_after_a_refresh_and_told(
    tmp_path: Path, sql: str, old: str, new: str
) -> None:
    table = TABLE.format("")
    found = change(joined(tmp_path, sql), joined(tmp_path, sql, table.replace(old, new)), "m")
    assert found.verdict == "keep"
    assert found.reasons == (
        "`pages` is declared otherwise: records meet its new rows from the next epoch on, as after"
        " a refresh",
    )


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        (PER_SECTION, "section INT"),
        (PER_SECTION, "title STRING"),
        (PER_SECTION, "page STRING"),
        (ABOVE_LIMIT, "weight INT"),
        (ABOVE_LIMIT, "section INT"),
        (PAIRS, "section INT"),
    ],
)
def test_a_column_in_use_of_another_type_is_a_rebuild(
    tmp_path: Path, sql: str, column: str
) -> None:
    name, kind = column.split()
    table = TABLE.format("").replace(column, f"{name} DATE")
    found = change(joined(tmp_path, sql), joined(tmp_path, sql, table), "m")
    assert found.verdict == "rebuild"
    assert found.reasons == (f"`pages.{name}` was {kind}, and is DATE",)


@pytest.mark.parametrize("sql", [PER_SECTION, ABOVE_LIMIT, PAIRS])
@pytest.mark.parametrize("new", ["spare DATE", "spare INT, more INT"])
def test_a_column_that_is_not_in_use_does_not_count(tmp_path: Path, sql: str, new: str) -> None:
    table = TABLE.format("").replace("spare INT", new)
    found = change(joined(tmp_path, sql), joined(tmp_path, sql, table), "m")
    assert (found.verdict, found.reasons) == ("keep", ())


NEVER = ", 'refresh.interval' = 'never'"
ACCEPTED = ", on_retraction = 'join_current'"


@pytest.mark.parametrize("sql", [BY_SIZE, LARGE])
@pytest.mark.parametrize("change_of", [("pages.csv", "other.csv"), ("spare INT", "spare DATE")])
def test_rows_that_are_taken_back_need_the_table_that_they_met(
    tmp_path: Path, sql: str, change_of: tuple[str, str]
) -> None:
    """It would be copied anew, and its rows of today would be taken from sums of those of then."""
    table = TABLE.format(NEVER)
    new = joined(tmp_path, sql, table.replace(*change_of))
    found = change(joined(tmp_path, sql, table), new, "m")
    assert found.verdict == "rebuild"
    (reason,) = found.reasons
    assert reason.startswith("`pages` is declared otherwise, and would be copied anew")
    assert "on_retraction = 'join_current'" in reason
    # Whoever accepts that they meet what it holds now may go on.
    accepted = TABLE.format(NEVER + ACCEPTED).replace(*change_of)
    assert change(joined(tmp_path, sql, table), joined(tmp_path, sql, accepted), "m").verdict == (
        "keep"
    )


@pytest.mark.parametrize("sql", [PER_SECTION, ABOVE_LIMIT, PAIRS])
def test_a_table_that_is_copied_once_may_move_where_nothing_is_taken_back(
    tmp_path: Path, sql: str
) -> None:
    table = TABLE.format(NEVER)
    new = joined(tmp_path, sql, table.replace("pages.csv", "other.csv"))
    assert change(joined(tmp_path, sql, table), new, "m").verdict == "keep"


def before_tables_were_told(definition: PipelineDefinition) -> PipelineDefinition:
    """As it was written before an operator told the tables that it reads."""
    operators = (
        structs.replace(
            each,
            references={},
            fixed=(),
            columns={name: kind for name, kind in each.columns.items() if "pages." not in name},
        )
        for each in definition.operators
    )
    return structs.replace(definition, operators=(*operators,))


@pytest.mark.parametrize("options", ["", NEVER + ACCEPTED])
@pytest.mark.parametrize("sql", [PER_SECTION, ABOVE_LIMIT, PAIRS])
def test_a_stored_definition_that_told_no_tables(tmp_path: Path, sql: str, options: str) -> None:
    table = TABLE.format(options)
    old = before_tables_were_told(joined(tmp_path, sql, table))
    same = change(old, joined(tmp_path, sql, table), "m")
    assert (same.verdict, same.reasons) == ("keep", ())
    moved = change(old, joined(tmp_path, sql, table.replace("pages.csv", "other.csv")), "m")
    assert (moved.verdict, len(moved.reasons)) == ("keep", 1)


@pytest.mark.parametrize("sql", [BY_SIZE, LARGE])
def test_a_stored_definition_that_told_no_tables_that_must_stay(tmp_path: Path, sql: str) -> None:
    table = TABLE.format(NEVER)
    old = before_tables_were_told(joined(tmp_path, sql, table))
    assert change(old, joined(tmp_path, sql, table), "m").verdict == "keep"
    moved = joined(tmp_path, sql, table.replace("pages.csv", "other.csv"))
    assert change(old, moved, "m").verdict == "rebuild"


def test_another_table_and_none_are_rebuilds(tmp_path: Path) -> None:
    other = TABLE.format("").replace("pages (", "sites (") + TABLE.format("")
    old = joined(tmp_path, PER_SECTION, other)
    new = joined(tmp_path, PER_SECTION.replace("pages", "sites"), other)
    found = change(old, new, "m")
    assert found.verdict == "rebuild"
    assert "`pages`, which it reads, is no longer read" in found.reasons
    assert "`sites`, which it reads, was not read before" in found.reasons
