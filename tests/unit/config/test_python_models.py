"""Files of Python in ``models/``: loaded beside SQL, held against what they read, compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.config.definition import define
from laminar_dagster.config.lineage import column_lineage
from laminar_dagster.config.relations import PythonKeyed, PythonRows
from laminar_dagster.config.statements import run_statement
from laminar_dagster.core.definition import PipelineDefinition
from laminar_dagster.core.deployment import OperatorChange, compare_definitions
from laminar_dagster.core.document import decode, encode
from tests.unit.config.folders import CONFIG, SOURCES, load, mistakes

ROWS = """
import pyarrow as pa
from laminar_dagster.models import TIMESTAMP, model

@model(reads="clicks", columns={"page": pa.string(), "ts": TIMESTAMP}, event_time="ts")
def clean(clicks):
    return clicks.select(["page", "ts"])
"""
OPERATOR = '''
from datetime import timedelta
import pyarrow as pa
from laminar_dagster.models import Step, keyed_operator

@keyed_operator(
    reads="clean",
    keys=["page"],
    event_time="ts",
    state={"seen": pa.int32()},
    columns={"seen": pa.int64()},
    ttl=timedelta(days=1),
)
class Counts:
    """Counts."""

    def on_rows(self, rows, state):
        return Step()
'''
FILES = {"sources.sql": SOURCES, "models/clean.py": ROWS, "models/counts.py": OPERATOR}


def test_python_reads_sql_and_sql_reads_python(tmp_path: Path) -> None:
    views = "SELECT page, count(*) AS n FROM clean GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), page"
    model = load(tmp_path, {**FILES, "models/minutes.sql": views})
    by_name = {str(each.name): each for each in model.views}
    clean, counts = by_name["clean"], by_name["counts"]
    assert isinstance(clean.query, PythonRows)
    assert isinstance(counts.query, PythonKeyed)
    assert (clean.columns, clean.reads, clean.language) == (("page", "ts"), ("clicks",), "python")
    assert counts.columns == ("page", "ts", "seen")
    assert (clean.place.line, counts.place.line) == (5, 6)
    assert run_statement("SHOW VIEWS", model).rows[0][:3] == ("clean", "clicks", "2")
    lineage = column_lineage(model)
    assert {each.column for each in lineage["clean"]["page"]} >= {"user_id", "page", "ts"}
    assert [each.column for each in lineage["counts"]["page"]] == ["page"]
    assert [each.column for each in lineage["counts"]["seen"]] == ["page", "ts"]
    found = define(model)
    assert decode(encode(found), PipelineDefinition, "it") == found


def test_an_operator_reads_a_source_and_hands_event_time_on(tmp_path: Path) -> None:
    files = {
        **FILES,
        "models/counts.py": OPERATOR.replace('"clean"', '"clicks"').replace(
            'event_time="ts",', 'event_time="ts", takes=["AMOUNT"],'
        ),
        "models/m.sql": "SELECT count(*) AS n FROM counts GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
    }
    (query,) = (each.query for each in load(tmp_path, files).views if each.name == "counts")
    assert isinstance(query, PythonKeyed)
    assert query.takes == ("amount",)


def test_an_operator_waits_for_rows_that_waited_in_a_join(tmp_path: Path) -> None:
    join = (
        "SELECT a.page, a.ts FROM clicks a JOIN clicks b ON a.page = b.page"
        " AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '{}' SECOND"
    )
    definitions = []
    for number in (3, 4):
        files = {"sources.sql": SOURCES, "models/clean.sql": join.format(number)}
        model = load(tmp_path / str(number), {**files, "models/counts.py": OPERATOR})
        (query,) = (each.query for each in model.views if each.name == "counts")
        assert isinstance(query, PythonKeyed)
        assert query.lateness_micros == number * 1_000_000
        definitions.append(define(model))
    (change,) = (each for each in compare_definitions(*definitions) if each.operator_id == "counts")
    assert change.verdict == "rebuild"
    minutes = "SELECT count(*) AS n FROM counts GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)"
    (found,) = mistakes(tmp_path, {**files, "models/counts.py": OPERATOR, "models/m.sql": minutes})
    assert "would come too late" in found
    assert "allowed.lateness = '4s'" in found


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("clean", ROWS.replace('"clicks"', '"click"'), "clean.py:5: model `clean` reads `click`, "
         "which does not exist (did you mean `clicks`?)"),
        ("clean", ROWS.replace('reads="clicks"', 'reads="plain"'), "clean.py:5: `ts` is no event "
         "time of `plain` (WATERMARK FOR names one in a source)"),
        ("clean", ROWS.replace('"page": pa', '"_page": pa'), "clean.py:5: the name `_page` is "
         "reserved (choose one that begins with a letter)"),
        ("clean", ROWS.replace("columns=", "column="), "clean.py:5: model() got an unexpected"),
        ("clean", ROWS.replace("pa.string()", "pa.text()"), "clean.py:5: module 'pyarrow' has no"),
        ("clean", ROWS.replace("def clean", "def"), "clean.py:6: it is no Python: invalid syntax"),
        ("clean", "x = 1", "clean.py:1: the file declares no model: a file is one view (put @model "
         "or @keyed_operator before what makes the rows)"),
        ("clean", ROWS.replace("import pyarrow", "import time\nimport pyarrow"), "clean.py:2:1: "
         "`import time` reads the wall clock, so view `clean` is not deterministic"),
        ("clean", ROWS.replace("return", "clicks = clicks.sort_by('page')\n    return"),
         "clean.py:7:14: `clicks.sort_by` depends on which rows come together"),
        ("counts", OPERATOR.replace('["page"]', '["pages"]'), "counts.py:6: `clean` has no column "
         "`pages` (did you mean `page`?)"),
        ("counts", OPERATOR.replace('"clean"', '"per_minute"').replace('"ts"', '"window_start"'),
         "counts.py:6: rows of `per_minute` come only when a window after their time has closed"),
        ("counts", OPERATOR.replace("return Step()", "self.seen = 1"),
         "counts.py:18:9: `self.seen` is kept from one call to the next, so view `counts` is not "
         "deterministic (keep it in the state of a @keyed_operator"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line(
    tmp_path: Path, name: str, text: str, expected: str
) -> None:
    (found,) = mistakes(tmp_path, {**FILES, f"models/{name}.py": text})
    assert found.startswith(f"models/{expected}")


PAGES = """CREATE REFERENCE TABLE pages (page STRING, title STRING, PRIMARY KEY (page))
WITH (connector = 'file', path = 'pages.csv', format = 'csv');
"""


@pytest.mark.parametrize("name", ["clean", "counts"])
def test_a_reference_table_brings_no_rows_to_a_model(tmp_path: Path, name: str) -> None:
    text = {"clean": ROWS.replace(', event_time="ts"', ""), "counts": OPERATOR}[name]
    text = text.replace('reads="clicks"', 'reads="Pages"').replace('reads="clean"', 'reads="pages"')
    files = {**FILES, "tables.sql": PAGES, f"models/{name}.py": text}
    found = mistakes(tmp_path, files)
    assert found == [
        f"models/{name}.py:{5 if name == 'clean' else 6}: model `{name}` reads `pages`: a reference"
        " table that is not joined with a stream brings no rows of its own (read a view of SQL that"
        " joins a stream with it)"
    ]


def test_a_reference_table_is_not_proposed_to_a_model(tmp_path: Path) -> None:
    files = {**FILES, "tables.sql": PAGES, "models/clean.py": ROWS.replace('"clicks"', '"page"')}
    (found,) = mistakes(tmp_path, files)
    assert "which does not exist" in found and "`pages`" not in found


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("raise SystemExit(1)", "it would end the process that loads it: SystemExit(1)"),
        ("raise SystemExit", "it would end the process that loads it: SystemExit()"),
        ("{}['key']", "KeyError: 'key'"),
        ("1 / 0", "division by zero"),
        ("assert False", "AssertionError"),
    ],
)
def test_a_file_that_fails_is_named_however_it_does(
    tmp_path: Path, statement: str, reason: str
) -> None:
    files = {**FILES, "models/clean.py": f"{ROWS}\n{statement}\n", "models/b.py": "x = 1"}
    found = mistakes(tmp_path, files)
    # The others are told too.
    assert found[0].startswith("models/b.py:1: the file declares no model")
    assert found[1:] == [f"models/clean.py:9: {reason}"]


def test_who_stops_the_loading_is_heard(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        load(tmp_path, {**FILES, "models/clean.py": f"{ROWS}\nraise KeyboardInterrupt\n"})


def test_what_is_refused_is_not_run_and_all_is_told_at_once(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    bad = f"open({str(marker)!r}, 'w')\n" + ROWS
    files = {**FILES, "models/clean.py": bad, "models/other.py": "x = ", "models/a.sql": "SELECT 1"}
    found = mistakes(tmp_path, files)
    assert [each.partition(":")[0] for each in found] == [
        "models/a.sql",
        "models/clean.py",
        "models/other.py",
    ]
    assert not marker.exists()


def test_what_is_doubtful_can_be_allowed(tmp_path: Path) -> None:
    text = ROWS.replace("import pyarrow", "import time\nimport pyarrow")
    config = CONFIG + "determinism: warn\n"
    model = load(tmp_path, {**FILES, "models/clean.py": text, "pipeline.yml": config})
    assert "reads the wall clock" in model.warnings[0]


def test_rows_that_are_taken_back_are_handed_on(tmp_path: Path) -> None:
    totals = (
        "SELECT page, count(*) AS n FROM clicks GROUP BY page"
        " EMIT CHANGES WITH (state.ttl = 'unbounded')"
    )
    text = ROWS.replace('"clicks"', '"totals"').replace(', event_time="ts"', "")
    text = text.replace('"ts": TIMESTAMP', '"n": pa.int64()')
    files = {"sources.sql": SOURCES, "models/totals.sql": totals, "models/clean.py": text}
    (found,) = mistakes(tmp_path / "a", files)
    assert "`_weight` of `totals` is left out: deletes would look like rows" in found
    text = text.replace('"n": pa.int64()', '"n": pa.int64(), "_weight": pa.int8()')
    sink = "CREATE SINK s FROM clean WITH (connector = 'file');"
    (found,) = mistakes(tmp_path / "b", {**files, "models/clean.py": text, "sinks.sql": sink})
    assert "view `clean` takes rows back, and sink `s` appends" in found


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, {**FILES, "models/clicks.py": ROWS})
    assert "there is already a source, reference table or view `clicks`" in found


def change(folder: Path, text: str, clean: str = ROWS) -> OperatorChange:
    old = define(load(folder / "old", FILES))
    files = {**FILES, "models/counts.py": text, "models/clean.py": clean}
    (found, *_) = (
        each
        for each in compare_definitions(old, define(load(folder / "new", files)))
        if each.operator_id == "counts"
    )
    return found


@pytest.mark.parametrize(
    ("text", "verdict", "reason"),
    [
        (OPERATOR.replace("Counts.", "Other words.") + "# a comment", "keep", ""),
        (OPERATOR.replace("Step()", "Step(emits=None)"), "migrate", "its code has changed"),
        (OPERATOR.replace("int32()}", 'int32(), "x": pa.string()}'), "migrate", "`x` is added"),
        (OPERATOR.replace("int32()}", "int64()}"), "migrate", "`seen` of its state is widened"),
        (OPERATOR.replace("int32()}", "string()}"), "rebuild", "was int32, and is string"),
        (OPERATOR.replace("ttl=", 'version="2", ttl='), "rebuild", "its version was nothing"),
        (OPERATOR.replace("days=1", "days=2"), "rebuild", "rows were kept for 86400 s"),
        (OPERATOR.replace("ttl=", "takes=[], ttl="), "migrate", "its code has changed"),
    ],
)
def test_what_becomes_of_the_state_is_told(
    tmp_path: Path, text: str, verdict: str, reason: str
) -> None:
    found = change(tmp_path, text)
    assert found.verdict == verdict
    assert any(reason in each for each in found.reasons) or not reason


def test_another_function_below_an_operator_is_told(tmp_path: Path) -> None:
    found = change(tmp_path, OPERATOR, ROWS.replace('select(["page", "ts"])', "drop([])"))
    assert (found.verdict, found.reasons) == ("rebuild", ("`clean`, which it reads, has changed",))
