"""What makes a pipeline wrong is told by every way in: each check through each of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster.components.testing.utils import component_defs

from laminar_dagster.cli.main import cli
from laminar_dagster.config.project import load_pipeline
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.core.ids import BranchName
from laminar_dagster.orchestration.component import StreamPipelineComponent
from laminar_dagster.orchestration.pipeline_defs import build_pipeline_defs, build_project_defs
from laminar_dagster.runtime.assembly import assemble
from laminar_dagster.runtime.branches.assembly import assemble_branch
from laminar_dagster.stores.url import open_store
from tests.unit.orchestration.conditions import FILES, write_pipeline

pytestmark = pytest.mark.filterwarnings("ignore:.* is currently in (beta|preview)")

Way = Callable[[Path], str]

SINK: Final = (
    "  - {name: table, view: totals, connector: sqlite, options: {path: out.db, table: t}}\n"
)


def _command(*args: str) -> Way:
    def run(project: Path) -> str:
        result = CliRunner().invoke(cli, ["--project", str(project), *args, "--json"])
        assert isinstance(result.exception, SystemExit | None), result.exc_info
        error = json.loads(result.stdout).get("error")
        assert error, "it was let in"
        assert (error["kind"], result.exit_code) == ("invalid_config", 2), error
        return str(error)

    return run


def _call(load: Callable[[Path], object]) -> Way:
    def refused(project: Path) -> str:
        with pytest.raises(InvalidConfig) as caught:
            load(project)
        return f"{caught.value}; {caught.value.advice()}"

    return refused


def _component(project: Path) -> dg.Definitions:
    folder = str(project / "dbt_like_configs" / "clicks")
    made = StreamPipelineComponent(folder=folder, project=str(project))
    return component_defs(component=made)


def _branch(project: Path) -> object:
    model = load_pipeline(project / "dbt_like_configs" / "clicks")
    store = open_store(model.config.store, project)
    return assemble_branch(model, project, store, BranchName("b"), None)


WAYS: Final[Mapping[str, Way]] = {
    **{
        " ".join(args): _command(*args)
        for args in (
            ("validate", "clicks"),
            ("plan", "clicks"),
            ("status", "clicks"),
            ("run", "clicks"),
            ("run", "clicks", "--no-dagster"),
            ("recover", "clicks"),
            ("recover", "clicks", "--dry-run"),
            ("rescale", "clicks"),
            ("rescale", "clicks", "--dry-run"),
            ("verify", "clicks"),
            ("fork", "clicks", "--from-epoch", "0", "--as", "b"),
            ("branch", "run", "clicks", "b"),
            ("promote", "clicks", "b"),
            ("txn", "list", "clicks"),
            ("dead-letters", "replay", "1", "clicks"),
            ("sql", "SHOW SINKS", "clicks"),
        )
    },
    "project definitions": _call(build_project_defs),
    "pipeline definitions": _call(
        lambda project: build_pipeline_defs(
            load_pipeline(project / "dbt_like_configs" / "clicks"), project
        )
    ),
    "component": _call(_component),
    "Python": _call(
        lambda project: assemble(
            load_pipeline(project / "dbt_like_configs" / "clicks"), project, None
        )
    ),
    "branch": _call(_branch),
}


def _replaced(old: str, new: str) -> Mapping[str, str]:
    assert old in FILES["pipeline.yml"]
    return {**FILES, "pipeline.yml": FILES["pipeline.yml"].replace(old, new)}


def _other_pipeline(sink: str = SINK) -> Mapping[str, str]:
    files = _replaced(SINK, sink)
    return {**files, "pipeline.yml": files["pipeline.yml"].replace("name: clicks", "name: other")}


# Files of pipelines by name, and what has to be told of `clicks`.
CHECKS: Final[Mapping[str, tuple[Mapping[str, Mapping[str, str]], tuple[str, ...]]]] = {
    "two sinks at one table": (
        {"clicks": _replaced(SINK, SINK + SINK.replace("name: table", "name: twin"))},
        ("sink `twin` writes where `table` does", "pipeline.yml:8"),
    ),
    "a sink of another pipeline at the table": (
        {"clicks": FILES, "other": _other_pipeline()},
        ("sink `table` writes where `table` does", "other/pipeline.yml:8"),
    ),
    "two sinks of one name on one line": (
        {"clicks": _replaced(f"sinks:\n{SINK}", f"sinks: [{SINK[4:-1]}, {SINK[4:-1]}]\n")},
        (
            "already a sink `table`",
            "pipeline.yml:7:16",
            f"pipeline.yml:7:{16 + len(SINK[4:-1]) + 2}",
        ),
    ),
    "a key that the view does not have": (
        {"clicks": _replaced("table: t}", "table: t, mode: upsert, key: twise}")},
        ("`key` of sink `table` names `twise`", "did you mean `twice`?"),
    ),
    "an option that is wrong": (
        {"clicks": _replaced("table: t}", "table: t, mood: append}")},
        ("unknown option `mood`", "pipeline.yml:8"),
    ),
    "a connector that there is not": (
        {"clicks": _replaced("connector: sqlite", "connector: sqlight")},
        ("sqlight", "pipeline.yml:8"),
    ),
    "an address that is none": (
        {"clicks": _replaced("store: state", "store: 's4://bucket/prefix'")},
        ("s4",),
    ),
}


PAIRS: Final = [
    (check, way)
    for check in CHECKS
    for way in WAYS
    # Whoever opens a branch has opened the store before.
    if (check, way) != ("an address that is none", "branch")
]


@pytest.mark.parametrize(("check", "way"), PAIRS)
def test_every_way_in_refuses_what_is_wrong(check: str, way: str, tmp_path: Path) -> None:
    pipelines, told = CHECKS[check]
    for name, files in pipelines.items():
        write_pipeline(tmp_path, name, files)
    refusal = WAYS[way](tmp_path)
    assert [each for each in told if each not in refusal] == []
    assert not (tmp_path / "out.db").exists()


def test_nothing_is_wrong_with_a_pipeline_beside_one_that_is_broken(tmp_path: Path) -> None:
    write_pipeline(tmp_path, "clicks", FILES)
    write_pipeline(tmp_path, "broken", {"pipeline.yml": "name: [\n"})
    clicks = assemble(load_pipeline(tmp_path / "dbt_like_configs" / "clicks"), tmp_path, None)
    assert clicks.name == "clicks"


# The options of two sinks that are one table to the system, however they are written.
SAME: Final = {
    "relative and absolute": (
        "sqlite",
        "path: out.db, table: t",
        "path: '{project}/out.db', table: t",
    ),
    "dots": ("sqlite", "path: out.db, table: t", "path: lake/../out.db, table: t"),
    "a link": ("sqlite", "path: out.db, table: t", "path: link/out.db, table: t"),
    "case in SQLite": ("sqlite", "path: out.db, table: Totals", "path: out.db, table: tOTALS"),
    "a Delta folder through a link": ("delta", "path: lake", "path: link/lake/"),
    "URLs with and without a slash": ("delta", "path: 's3://b/t'", "path: 's3a://b/t/'"),
    "schema by default": (
        "postgres",
        "host: db, database: d, table: t",
        "host: DB, port: '5432', database: d, schema: public, table: t",
    ),
    "a dsn": (
        "postgres",
        "host: localhost, database: d, table: t",
        "dsn: 'postgresql://127.0.0.1:5432/d', table: t",
    ),
    "one of several hosts": (
        "postgres",
        "host: 'a,b', database: d, table: t",
        "host: b, database: d, table: t",
    ),
    "port by default": (
        "mysql",
        "host: db, database: d, user: u, table: t",
        "host: db., port: '3306', database: d, user: u, table: t",
    ),
    "brokers": (
        "kafka",
        "bootstrap.servers: 'a:9092, b', topic: t",
        "bootstrap.servers: 'PLAINTEXT://B:9092', topic: t",
    ),
}
APART: Final = {
    "case in PostgreSQL": (
        "postgres",
        "host: db, database: d, table: t",
        "host: db, database: d, table: T",
    ),
    "another port": (
        "postgres",
        "host: db, database: d, table: t",
        "host: db, port: '5433', database: d, table: t",
    ),
    "another letter of case": ("sqlite", "path: out.db, table: Ä", "path: out.db, table: ä"),
    "two tables of a file": ("sqlite", "path: out.db, table: a", "path: out.db, table: b"),
    "two endpoints": (
        "delta",
        "path: 's3://b/t', storage.AWS_ENDPOINT_URL: 'https://one.example'",
        "path: 's3://b/t', storage.AWS_ENDPOINT_URL: 'https://two.example'",
    ),
}


def _two_sinks(project: Path, connector: str, first: str, second: str) -> Path:
    (project / "lake").mkdir()
    (project / "link").symlink_to(".")
    sinks = "".join(
        f"  - {{name: {name}, view: totals, connector: {connector}, options: {{{options}}}}}\n"
        for name, options in (("one", first), ("two", second.replace("{project}", str(project))))
    )
    return write_pipeline(project, "clicks", _replaced(SINK, sinks))


@pytest.mark.parametrize("spelling", SAME)
def test_a_table_is_the_same_however_it_is_written(spelling: str, tmp_path: Path) -> None:
    folder = _two_sinks(tmp_path, *SAME[spelling])
    with pytest.raises(InvalidConfig, match="sink `two` writes where `one` does"):
        assemble(load_pipeline(folder), tmp_path, None)


@pytest.mark.parametrize("spelling", APART)
def test_tables_that_look_alike_are_not_taken_for_one(spelling: str, tmp_path: Path) -> None:
    folder = _two_sinks(tmp_path, *APART[spelling])
    assemble(load_pipeline(folder), tmp_path, None)
