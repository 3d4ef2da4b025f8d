"""`laminar init`: what it makes, and what it refuses to touch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from laminar_dagster.config.example_project import project_files
from laminar_dagster.core.ids import PipelineName
from tests.unit.cli.conditions import Laminar, Project

FILES = {
    ".gitignore",
    "README.md",
    "definitions.py",
    "workspace.yaml",
    "dbt_like_configs/shop/pipeline.yml",
    "dbt_like_configs/shop/pipeline.schema.json",
    "dbt_like_configs/shop/sources.sql",
    "dbt_like_configs/shop/sinks.sql",
    "dbt_like_configs/shop/models/clicks_per_minute.sql",
    "dbt_like_configs/shop/models/purchases.sql",
    "dbt_like_configs/shop/contracts/clicks_per_minute.yml",
    "input/server-a.ndjson",
    "input/server-b.ndjson",
}


def test_makes_a_project_that_validates(tmp_path: Path) -> None:
    root = tmp_path / "new" / "shop"
    told = Laminar().json("init", str(root), "--name", "shop")
    made = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    assert made == FILES == set(told["files"])
    assert told["project"] == str(root)
    assert told["next"][:3] == [f"cd {root}", "laminar validate", "laminar run"]
    (checked,) = Laminar().json("--project", str(root), "validate")["pipelines"]
    assert checked["pipeline"] == "shop"
    assert checked["warnings"] == []
    assert checked["sinks"] == ["minutes", "minutes_lake", "purchases"]
    assert not any("__pipeline__" in path.read_text() for path in root.rglob("*.*ml"))


def test_what_is_not_installed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    root = tmp_path / "shop"
    told = Laminar().json("init", str(root), "--name", "shop")
    assert set(told["files"]) == FILES
    (checked,) = Laminar().json("--project", str(root), "validate")["pipelines"]
    assert checked["sinks"] == ["minutes", "purchases"]


def test_a_topic_without_its_client_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    options = ("--from-topic", "t", "--bootstrap-servers", "h:1")
    error = Laminar().error("init", str(tmp_path / "shop"), *options, exit_code=2)
    assert error["hint"] == 'pip install "laminar-dagster[kafka]"'
    assert not (tmp_path / "shop").exists()


def test_tells_what_to_do_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = Laminar()("init", "my shop").stdout
    assert "Pipeline clickstream is in my shop: 13 files." in told
    assert "  cd 'my shop'\n  laminar validate\n  laminar run\n" in told
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert "cd " not in Laminar()("init", ".").stdout
    assert (tmp_path / "here" / "README.md").exists()


def test_the_readme_names_only_commands_that_there_are(project: Project) -> None:
    text = (project.root / "README.md").read_text()
    commands = {line.split()[2] for line in text.splitlines() if line.startswith("$ laminar ")}
    assert commands == {"validate", "run", "status", "epochs"}
    listed = Laminar()("--help").stdout
    assert all(f"\n  {each} " in listed for each in commands)


def test_dagster_loads_it(project: Project) -> None:
    program = (
        "import definitions; "
        "print(*definitions.defs.resolve_asset_graph().get_all_asset_keys(), sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=project.root, capture_output=True, text=True
    )
    assert "checkpoint_manifest" in done.stdout, done.stderr


def test_an_odd_name_stays_a_text(tmp_path: Path) -> None:
    for name in ("1e3", "true", "größe"):
        root = tmp_path / name
        assert Laminar()("init", str(root), "--name", name).exit_code == 0
        (checked,) = Laminar().json("--project", str(root), "validate")["pipelines"]
        assert checked["pipeline"] == name


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "a b", "x" * 201])
def test_a_name_that_cannot_be_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    error = Laminar().error("init", str(tmp_path / "new"), "--name", name, exit_code=2)
    assert error["kind"] == "invalid_name"
    assert not (tmp_path / "new").exists()


def test_never_writes_over_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine")
    error = Laminar().error("init", str(tmp_path), exit_code=2)
    assert error["kind"] == "folder_not_empty"
    assert os.listdir(tmp_path) == ["kept"]
    error = Laminar().error("init", str(tmp_path / "kept"), exit_code=2)
    assert error["kind"] == "cannot_make_project"
    assert "Not a directory" in error["message"]
    error = Laminar().error("init", str(tmp_path / "kept" / "below"), exit_code=2)
    assert error["kind"] == "cannot_make_project"
    assert (tmp_path / "kept").read_text() == "mine"


TOPIC = ("--from-topic", "t", "--bootstrap-servers", "h:1")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--bootstrap-servers", "h:9092"), "need --from-topic"),
        (("--with", "a=b"), "need --from-topic"),
        (("--from-topic", "t"), "needs --bootstrap-servers"),
        ((*TOPIC, "--subject", "s"), "--schema-registry"),
        ((*TOPIC, "--with", "kafka.sasl.password=hunter2"), "as '${VARIABLE}'"),
        ((*TOPIC, "--with", "a"), "takes NAME=VALUE"),
        ((*TOPIC, "--with", "a="), "takes NAME=VALUE"),
        ((*TOPIC, "--with", "topic=u"), "--from-topic"),
        ((*TOPIC, "--with", "format=csv"), "found out"),
        ((*TOPIC, "--with", "x=${NO_SUCH}"), "NO_SUCH"),
        (("--from-topic", "a b", "--bootstrap-servers", "h:1"), "cannot be a topic's name"),
        ((*TOPIC, "--with", "grup.id=x"), "group.id"),
    ],
)
def test_what_a_topic_takes_to_be_asked_is_told_before_anybody_is(
    tmp_path: Path, given: tuple[str, ...], told: str
) -> None:
    error = Laminar().error("init", str(tmp_path / "new"), *given, exit_code=2)
    assert told in f"{error['message']} {error['hint']}"
    assert not (tmp_path / "new").exists()


def test_a_folder_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    error = Laminar().error("init", "/proc/laminar", exit_code=2)
    assert error["kind"] == "cannot_make_project"
    assert "/proc/laminar" in error["message"]


def test_the_sample_is_the_same_every_time_and_as_messy_as_it_says() -> None:
    files = dict(project_files(PipelineName("shop")))
    assert files == dict(project_files(PipelineName("shop")))
    for name in ("input/server-a.ndjson", "input/server-b.ndjson"):
        lines = files[name].splitlines()
        assert 300 <= len(lines) <= 310
        newest, late, broken = 0.0, 0, 0
        for line in lines:
            try:
                click = json.loads(line)
                assert isinstance(click["user_id"], int)
                moment = datetime.fromisoformat(click["ts"]).timestamp()
            except (ValueError, AssertionError, KeyError):
                broken += 1
                continue
            late += moment < newest - 10
            newest = max(newest, moment)
        assert (late, broken) == (5, 4)
