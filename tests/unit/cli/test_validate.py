"""`laminar validate`: every mistake at once, and every service by name."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from laminar_dagster.cli import validate
from laminar_dagster.core.errors import InvalidConfig, SourceUnavailable, StoreUnavailable
from laminar_dagster.core.health import HealthReport
from laminar_dagster.core.ids import PipelineName, SinkId, SourceId
from laminar_dagster.core.offsets import SourcePosition
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.runtime import assembly
from laminar_dagster.runtime.assembly import Adapters
from laminar_dagster.sinks.delta.sink import DeltaSink
from laminar_dagster.testing.memory_pipeline import (
    MemoryLog,
    MemorySink,
    MemorySource,
    MemoryTable,
)
from tests.unit.cli.conditions import Laminar, Project
from tests.unit.runtime.observed import ObservedSource
from tests.unit.runtime.test_backlog import AwaySource


def test_lists_what_a_right_pipeline_has(project: Project) -> None:
    told = project.laminar("validate")
    assert (told.exit_code, told.stderr) == (0, "")
    assert "clicks_per_minute, purchases" in told.stdout
    assert "1 pipeline, no mistake in the files." in told.stdout
    # It only reads.
    assert not (project.root / ".laminar").exists()
    assert not (project.root / "output").exists()


def test_tells_every_mistake_of_every_pipeline_and_of_every_option(project: Project) -> None:
    project.edit("sources.sql", "format = 'ndjson'", "format = 'json'")
    project.edit("sinks.sql", "mode = 'upsert'", "mood = 'upsert'")
    project.edit("pipeline.yml", "store: .laminar/clicks/store", "store: s4://bucket")
    other = project.root / "dbt_like_configs" / "other"
    (other / "models").mkdir(parents=True)
    (other / "pipeline.yml").write_text("name: other\nstroe: x\n")
    (other / "models" / "m.sql").write_text("SELECT a FROM nothing")
    error = project.laminar.error("validate", exit_code=2)
    assert error["kind"] == "invalid_config"
    assert error["message"] == f"{len(error['mistakes'])} mistakes"
    told = [(Path(each["where"]).name, each["problem"]) for each in error["mistakes"]]
    for place, problem in (
        ("sources.sql:2", "`format` must be one of"),
        ("sinks.sql:2", "unknown option `mood`"),
        ("pipeline.yml", "`store`: there is no scheme 's4'"),
        ("pipeline.yml:2", "stroe"),
    ):
        assert any(where == place and problem in text for where, text in told), (place, told)
    # Another pipeline's mistakes are no obstacle.
    project.edit("sources.sql", "format = 'json'", "format = 'ndjson'")
    project.edit("sinks.sql", "mood = 'upsert'", "mode = 'upsert'")
    project.edit("pipeline.yml", "store: s4://bucket", "store: state")
    assert project.laminar("validate", "clicks").exit_code == 0
    assert project.laminar("validate").exit_code == 2


def test_each_mistake_has_its_line_with_the_place_first(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.edit("models/purchases.sql", "amount > 0", "amuont > 0")
    project.edit("sinks.sql", "FROM purchases", "FROM purchase")
    monkeypatch.chdir(project.root)
    # The folder is given as an absolute path, and told from here.
    first, *lines = project.laminar("validate").stderr.splitlines()
    assert first == "error[invalid_config]: 2 mistakes"
    assert [line.split(": ")[0] for line in lines] == [
        "  dbt_like_configs/clicks/models/purchases.sql:4:7",
        "  dbt_like_configs/clicks/sinks.sql:15:28",
    ]
    assert lines[1].endswith("(did you mean `purchases`?)")


def test_one_mistake_is_told_as_any_error(project: Project) -> None:
    project.edit("pipeline.yml", "buckets: 4", "bukcets: 4")
    error = project.laminar.error("validate", exit_code=2)
    assert "bukcets" in error["message"]
    assert error["hint"] == "did you mean `buckets`?"
    assert len(error["mistakes"]) == 1


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pipeline.yml", "name: [clicks\n"),
        ("pipeline.yml", ""),
        ("pipeline.yml", "\t"),
        ("sources.sql", "CREATE SOURCE"),
        ("models/purchases.sql", "SELECT"),
        ("contracts/clicks_per_minute.yml", "columns: 7\n"),
    ],
)
def test_a_broken_file_is_named(project: Project, file: str, text: str) -> None:
    (project.folder / file).write_text(text)
    error = project.laminar.error("validate", exit_code=2)
    assert error["kind"] == "invalid_config"
    assert any(file in each["where"] for each in error["mistakes"])


def test_a_folder_without_pipelines_says_how_to_make_one(tmp_path: Path) -> None:
    for command in (("validate",), ("sql", "SHOW SOURCES"), ("run",), ("status",)):
        error = Laminar(before=("--project", str(tmp_path))).error(*command, exit_code=2)
        assert error["kind"] == "no_pipelines"
        assert "laminar init" in error["hint"]


def test_a_pipeline_is_found_by_name(project: Project) -> None:
    error = project.laminar.error("status", "clciks", exit_code=2)
    assert error["kind"] == "unknown_pipeline"
    assert error["hint"] == "did you mean `clicks`?"
    error = project.laminar.error("status", "something", exit_code=2)
    assert error["hint"] == "there is: clicks"
    other = project.root / "dbt_like_configs" / "other"
    other.mkdir()
    (other / "pipeline.yml").write_text("nonsense")
    error = project.laminar.error("sql", "SHOW SOURCES", exit_code=2)
    assert (error["kind"], error["hint"]) == ("several_pipelines", "name one of: clicks, other")
    assert project.laminar("sql", "SHOW SOURCES", "clicks").exit_code == 0


def test_warnings_of_the_files_go_to_standard_error(project: Project) -> None:
    for file in ("models/purchases.sql", "models/clicks_per_minute.sql", "sinks.sql"):
        (project.folder / file).unlink()
    (project.folder / "contracts" / "clicks_per_minute.yml").unlink()
    told = project.laminar("validate", "--json")
    assert told.exit_code == 0
    assert told.stderr.startswith("warning: ")
    assert "no view" in told.stderr


# --- with the services --------------------------------------------------------------------------


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark says is tested where there is one."""
    monkeypatch.setattr(validate, "check_queries", lambda _model, _pipeline, _silent: ())


@pytest.mark.usefixtures("without_spark")
def test_asks_store_sources_and_sinks(project: Project) -> None:
    (checked,) = project.laminar.json("validate", "--connect")["pipelines"]
    parts = {each["part"]: each for each in checked["connections"]}
    assert list(parts) == [
        "store", "source clicks", "sink minutes", "sink minutes_lake", "sink purchases",
    ]  # fmt: skip
    assert all(each["error"] is None for each in parts.values())
    assert parts["store"]["found"].endswith("no epoch yet")
    assert parts["source clicks"]["found"] == "50.1 KiB in 2 of 2 partitions"
    assert parts["sink minutes"]["found"] == "nothing committed yet"
    # The sinks were asked, not made.
    assert not (project.root / "output").exists()
    assert "5 parts, all of them answer." in project.laminar("validate", "--connect").stdout


@pytest.mark.usefixtures("without_spark")
def test_a_store_that_others_can_read_is_told(project: Project) -> None:
    assert project.laminar("validate", "--connect").stderr == ""
    (project.root / ".laminar" / "clicks" / "store").chmod(0o755)
    told = project.laminar("validate", "--connect")
    assert told.exit_code == 0
    assert "warning: store file://" in told.stderr
    assert "every account of this machine can get into its folder (mode 0755)" in told.stderr
    (checked,) = project.laminar.json("validate", "--connect")["pipelines"]
    assert "chmod -R go=" in checked["connections"][0]["warning"]


def _with(monkeypatch: pytest.MonkeyPatch, adapters: Adapters) -> None:
    def build(*_args: object) -> Adapters:
        return adapters

    monkeypatch.setattr(assembly, "build_adapters", build)


@pytest.mark.usefixtures("without_spark")
def test_what_is_away_hides_nothing_else(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MemoryLog()
    log.partitions[0].extend((1, 2, 3))
    sources = (AwaySource(log, SourceId("away")), MemorySource(log))
    _with(monkeypatch, Adapters(sources, (MemorySink(MemoryTable(is_away=True)),)))
    told = project.laminar("validate", "--connect")
    assert told.exit_code == 75
    assert "3 records in 1 of 2 partitions" in told.stdout
    assert "2 of 4 parts failed." in told.stdout
    assert "error[source_unavailable]: source away is away" in told.stderr
    assert "error[sink_unavailable]: sink table is away" in told.stderr
    document = project.laminar.json("validate", "--connect", exit_code=75)
    kinds = [
        each["error"] and each["error"]["kind"] for each in document["pipelines"][0]["connections"]
    ]
    assert kinds == [None, "source_unavailable", None, "sink_unavailable"]


@pytest.mark.usefixtures("without_spark")
def test_a_table_with_several_rows_of_one_key_is_told(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As merges by a key of many digits left it, before this was mended."""
    folder = project.root / "lake"
    lake = DeltaSink(SinkId("lake"), PipelineName("clicks"), folder, mode="upsert", key=("page",))
    _with(monkeypatch, Adapters((), (lake,)))
    write_deltalake(str(folder), pa.table({"page": ["a", "b", "c"]}))
    assert project.laminar("validate", "--connect").exit_code == 0
    write_deltalake(str(folder), pa.table({"page": ["b", "c"]}), mode="append")
    told = project.laminar("validate", "--connect")
    assert told.exit_code == 2
    assert "2 keys of " in told.stderr
    assert "/lake have several rows, such as page='" in told.stderr
    assert "docs/sinks-delta.md" in told.stderr


@pytest.mark.usefixtures("without_spark")
def test_a_source_that_is_away_or_wrong_is_told_with_its_place(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoTopic(AwaySource):
        def plan(self, *_args: object) -> SourcePlan:
            raise InvalidConfig("kafka://broker/clicks", "the cluster has no topic clicks")

    monkeypatch.chdir(project.root)
    place = "dbt_like_configs/clicks/sources.sql:2"
    for source, code, told in (
        (AwaySource(MemoryLog(), SourceId("clicks")), 75, "source clicks is away: no route to"),
        (NoTopic(MemoryLog(), SourceId("clicks")), 2, "the cluster has no topic clicks"),
    ):
        _with(monkeypatch, Adapters((source,), ()))
        human = project.laminar("validate", "--connect")
        assert human.exit_code == code
        assert f"]: {place}: {told}" in human.stderr
        document = project.laminar.json("validate", "--connect", exit_code=code)
        found = document["pipelines"][0]["connections"][1]
        assert found["where"].endswith("sources.sql:2")
        assert found["error"]["message"].startswith(f"{place}: {told}")


@pytest.mark.usefixtures("without_spark")
def test_a_source_is_asked_how_it_does(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MemoryLog([[1, 2, 3], []])
    _with(monkeypatch, Adapters((ObservedSource(log, SourceId("clicks")),), ()))
    (checked,) = project.laminar.json("validate", "--connect")["pipelines"]
    found = checked["connections"][1]["found"]
    assert found == "3 records in 1 of 2 partitions; connected to 1 broker(s), lag 3"


@pytest.mark.usefixtures("without_spark")
def test_what_is_doubtful_about_a_source_is_told(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Doubtful(ObservedSource):
        def health(self, positions: tuple[SourcePosition, ...]) -> HealthReport:
            return replace(super().health(positions), warning="its log has no checksums")

    _with(monkeypatch, Adapters((Doubtful(MemoryLog([[1]]), SourceId("clicks")),), ()))
    told = project.laminar("validate", "--connect")
    assert told.exit_code == 0
    assert "warning: source clicks: its log has no checksums" in told.stderr


def test_metrics_without_their_packages_are_a_mistake(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.prometheus", None)
    assert project.laminar("validate").exit_code == 0
    with (project.folder / "pipeline.yml").open("a") as file:
        file.write("\nmetrics: {prometheus: 9464}\n")
    for command in ("validate", "run"):
        error = project.laminar.error(command, exit_code=2)
        assert error["kind"] == "invalid_config"
        assert (
            "clicks/pipeline.yml: metrics need packages that are not installed" in error["message"]
        )
        assert error["hint"] == 'pip install "laminar-dagster[metrics]"'


def test_a_lasting_problem_decides_the_exit_code(project: Project) -> None:
    (project.root / ".laminar").write_text("in the way of the store")
    assert project.laminar("validate", "--connect").exit_code == 2
    errors: list[Any] = [StoreUnavailable("s", "away"), InvalidConfig("x", "y")]
    assert validate._exit_code(errors) == 2
    assert validate._exit_code([SourceUnavailable("s", "r")]) == 75
    assert validate._exit_code([]) == 0
