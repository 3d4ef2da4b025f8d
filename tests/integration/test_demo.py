"""`make demo`, with fewer events: the same program, the same worker, the same kills."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from examples.clickstream import generator
from examples.clickstream.answer import Answer
from infra.load import Deadline
from laminar_dagster.config.project import load_project
from laminar_dagster.runtime.assembly import known_connectors

ROOT = Path(__file__).parents[2]
EVENTS = 40_000

# Three starts of Spark, on a machine that may be busy with other tests.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def demo(project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "examples.clickstream", "--project", str(project), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=880,
    )


def make_project(folder: Path) -> Path:
    """The pipeline as it is in the repository, with smaller epochs."""
    shutil.copytree(ROOT / "dbt_like_configs", folder / "dbt_like_configs")
    config = folder / "dbt_like_configs" / "clickstream" / "pipeline.yml"
    text, changes = re.subn(r"max_records: \d+", f"max_records: {EVENTS // 4}", config.read_text())
    assert changes == 1
    config.write_text(text)
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def told(project: Path) -> str:
    done = demo(project, "--twice", "--events", str(EVENTS))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def processes_of(project: Path) -> list[str]:
    """Whoever works in the project's folder."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdecimal() and Path(os.readlink(each / "cwd")) == project.resolve():
                found.append((each / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def test_it_is_killed_in_a_commit_and_ends_with_the_right_answer(project: Path, told: str) -> None:
    assert re.search(r"\nthe first epoch took \d+\.\d s, with the start of Spark\n", told)
    assert re.search(r"kill -9 in epoch 2, computing", told)
    assert re.search(r"kill -9 in epoch 3, committing", told)
    found = "manifest written, minutes_lake committed, minutes and purchases not committed"
    assert f"found: {found}" in told
    assert "epoch 3 of 4 finished from what worker 2 left" in told
    assert "Exactly once: every row of both systems is right" in told
    assert not processes_of(project)


def test_what_it_left_can_be_compared_again(project: Path, told: str) -> None:
    done = demo(project, "--check")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "Exactly once" in done.stdout


def test_a_row_less_in_sqlite_is_found(project: Path, told: str) -> None:
    path = project / ".laminar" / "clickstream" / "output" / "clicks.db"
    kept = path.read_bytes()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM purchases WHERE rowid = (SELECT max(rowid) FROM purchases)")
    done = demo(project, "--check")
    for each in path.parent.glob("clicks.db-*"):
        each.unlink()
    path.write_bytes(kept)
    assert done.returncode == 1
    assert "WRONG: purchases differs from the answer" in done.stdout
    assert "purchases: missing: " in done.stdout
    assert "minutes differs" not in done.stdout
    assert "Exactly once" not in done.stdout


def test_a_row_twice_in_delta_is_found(project: Path, told: str) -> None:
    path = project / ".laminar" / "clickstream" / "output" / "page_minutes"
    kept = project / "kept"
    shutil.copytree(path, kept)
    write_deltalake(path, DeltaTable(path).to_pyarrow_table().slice(0, 1), mode="append")
    done = demo(project, "--check")
    shutil.rmtree(path)
    kept.rename(path)
    assert done.returncode == 1
    assert "WRONG: minutes_lake differs from the answer" in done.stdout
    assert "minutes_lake: surplus: " in done.stdout


def test_an_event_that_nobody_counted_is_found(project: Path, told: str) -> None:
    path = project / ".laminar" / "clickstream" / "input" / "server-a.ndjson"
    kept = path.read_bytes()
    path.write_bytes(kept + b"nonsense\n")
    done = demo(project, "--check")
    path.write_bytes(kept)
    assert done.returncode == 1
    assert "WRONG: the counts differ" in done.stdout


def test_ctrl_c_leaves_no_process_behind(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.clickstream", "--project", project, "--events", "40000"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        deadline = Deadline(200)
        # Java, Spark's own, is the last that a worker starts before it computes.
        while not any("java" in each for each in processes_of(project)):
            assert process.poll() is None, process.communicate()[0]
            assert not deadline.is_over
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        told, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, told
    assert "No process is left" in told
    assert not processes_of(project)


def test_too_few_events_are_refused(project: Path) -> None:
    done = demo(project, "--events", "10000")
    assert done.returncode == 1
    assert "give more --events" in done.stdout


# --- without Spark --------------------------------------------------------------------------------


def test_the_pipelines_of_the_repository_have_no_mistake() -> None:
    models = load_project(ROOT, {}, known_connectors())
    names = [str(model.config.name) for model in models]
    assert names == ["clickstream", "customers", "funnels", "products", "visitors"]
    assert all(not model.warnings for model in models)


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    first = generator.write(tmp_path / "first", 20_000)
    assert generator.write(tmp_path / "again", 20_000) == first
    other = generator.write(tmp_path / "other", 20_000, seed=8)
    assert other.events == first.events
    for file in (tmp_path / "first").iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()
        assert (tmp_path / "other" / file.name).read_bytes() != file.read_bytes()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_generator_knows_what_it_wrote(tmp_path: Path, seed: int) -> None:
    written = generator.write(tmp_path / "input", 30_001, seed)
    lines = [
        line for file in (tmp_path / "input").iterdir() for line in file.read_bytes().splitlines()
    ]
    counts = Answer(tmp_path / "input").counts()
    assert counts.read == written.events == len(lines) == 30_001
    assert counts.is_balanced
    assert counts.processed == written.processed
    assert counts.filtered == written.filtered
    assert counts.late == written.late > 0
    assert counts.dead_lettered == written.broken > 0
    assert written.repeated > 0
