from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from laminar_dagster.cli.main import cli
from tests.unit.cli.conditions import History, Laminar


@pytest.mark.parametrize("command", ["list", "verify", "gc"])
def test_a_path_that_is_not_there_is_refused_and_not_made(tmp_path: Path, command: str) -> None:
    missing = tmp_path / "no" / "where"
    uri = missing.as_uri()
    for store in (str(missing), uri, uri.replace("file:", "FILE:"), f"file://localhost{missing}"):
        error = Laminar(store).error("checkpoints", command, exit_code=2)
        assert error["kind"] == "invalid_config"
        assert f"there is no folder {missing}" in error["message"]
    assert not missing.parent.exists()


def test_a_file_is_no_store(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    error = Laminar(str(file)).error("checkpoints", "list", exit_code=2)
    assert error["message"] == f"store: {file} is not a folder"
    error = Laminar(str(file / "below")).error("checkpoints", "list", exit_code=2)
    assert "Not a directory" in error["message"]


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/x",
        "S4://bucket",
        "s3://",
        "s3:bucket",
        "file:relative",
        "file://host/path",
        "file:///tmp?x=1",
        "file:///tmp#x",
        "file:///tmp/%00",
        "s3://bucket?regoin=eu",
        "http://[half",
        "~no-such-user/store",
        "file:/tmp",
        "x" * 5000,
    ],
)
def test_a_bad_address_is_refused(url: str) -> None:
    assert Laminar(url).error("checkpoints", "list", exit_code=2)["kind"] == "invalid_config"


def test_without_a_store_says_how_to_give_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = Laminar().error("checkpoints", "list", exit_code=2)
    assert error["message"] == "store: none is given"
    assert error["hint"] == "give --store URL, or set LAMINAR_STORE"


def _write_pipeline(project: Path, name: str, store: Path | str) -> None:
    folder = project / "dbt_like_configs" / name
    folder.mkdir(parents=True)
    (folder / "pipeline.yml").write_text(f"name: {name}\nstore: {store}\n")
    # No obstacle to looking at checkpoints.
    (folder / "sources.sql").write_text("CREATE NONSENSE")


def test_the_only_pipeline_of_the_project_has_the_store(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    _write_pipeline(project, "one", history.root)
    at = ("--project", str(project), "checkpoints")
    run = Laminar()
    assert len(run.json(*at, "list")) == 5
    assert len(run.json(*at, "list", "--pipeline", "one")) == 5
    assert len(run.json(*at, "--pipeline", "one", "list")) == 5
    error = run.error(*at, "list", "--pipeline", "onne", exit_code=2)
    assert (error["kind"], error["hint"]) == ("unknown_pipeline", "did you mean `one`?")
    error = run.error(*at, "list", "--pipeline", "one", "--store", "x", exit_code=2)
    assert error["message"] == "give --store or --pipeline, not both"
    _write_pipeline(project, "two", "nowhere")
    error = run.error(*at, "list", exit_code=2)
    assert error["hint"] == "give --pipeline with one of: one, two"
    assert len(run.json(*at, "list", "--pipeline", "one")) == 5
    error = run.error(*at, "list", "--pipeline", "two", exit_code=2)
    assert f"there is no folder {project / 'nowhere'}" in error["message"]
    # The variable counts where nothing is said on the command line, and only there.
    monkeypatch.setenv("LAMINAR_STORE", str(project))
    assert run.json(*at, "list") == []
    assert len(run.json(*at, "list", "--pipeline", "one")) == 5


def test_the_nearest_of_option_group_and_variable_counts(
    history: History, empty: Laminar, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert empty.store is not None
    full, none = str(history.root), empty.store
    monkeypatch.setenv("LAMINAR_STORE", full)
    run = Laminar()
    assert len(run.json("checkpoints", "list")) == 5
    assert run.json("checkpoints", "--store", none, "list") == []
    assert run.json("checkpoints", "list", "--store", none) == []
    assert len(run.json("checkpoints", "--store", none, "list", "--store", full)) == 5
    # An empty shell variable must not fall back to another store.
    for args in (["checkpoints", "gc", "--store", ""], ["checkpoints", "--store", "", "gc"]):
        assert "'--store': it is empty" in run.error(*args, exit_code=2)["message"]
    monkeypatch.setenv("LAMINAR_STORE", " ")
    error = run.error("checkpoints", "list", exit_code=2)
    assert error["message"] == "LAMINAR_STORE: it is set, and empty"


@pytest.mark.parametrize("spelling", ["path", "file", "relative", "project"])
def test_a_local_store_has_several_spellings(
    history: History, spelling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, above = history.root, history.root.parent
    monkeypatch.chdir(above if spelling == "relative" else "/")
    args = {
        "path": ["checkpoints", "list", "--store", str(root)],
        "file": ["checkpoints", "list", "--store", root.as_uri()],
        "relative": ["checkpoints", "list", "--store", root.name],
        "project": ["--project", str(above), "checkpoints", "list", "--store", f"./{root.name}"],
    }[spelling]
    assert len(Laminar().json(*args)) == 5


@pytest.mark.parametrize("name", ["a b%20c#d?e", "\udcff", "größe"])
def test_a_folder_with_odd_characters_is_found(tmp_path: Path, name: str) -> None:
    history = History(tmp_path / name).run(1)
    for store in (str(history.root), history.root.as_uri()):
        assert len(Laminar(store).json("checkpoints", "list")) == 1


@pytest.mark.parametrize("project", ["/no/such/folder", __file__])
def test_a_project_must_be_a_folder(project: str) -> None:
    error = Laminar().error("--project", project, "checkpoints", "list", exit_code=2)
    assert "--project" in error["message"]


def test_a_link_to_a_store_is_followed(history: History, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(history.root)
    result = CliRunner().invoke(cli, ["checkpoints", "list", "--store", str(link)])
    assert result.stdout.count("clicks") == 5
