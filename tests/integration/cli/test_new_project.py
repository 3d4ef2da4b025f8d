"""From `laminar init` to a running pipeline, as a new user would go, on a real Spark."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
import zipfile
from collections import defaultdict
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.integration.cli.test_console_script import SCRIPT, environment

ROOT = Path(__file__).parents[3]
DELAY = timedelta(seconds=10)

Minutes = dict[tuple[str, datetime], tuple[int, Decimal]]


def laminar(project: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, *args],
        cwd=project,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=240,
    )


def document(project: Path, *args: str) -> Any:
    done = laminar(project, *args, "--json")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made and run once; the tests below go on with it, in their order."""
    above = tmp_path_factory.mktemp("new user")
    assert laminar(above, "init", "shop").returncode == 0
    return above / "shop"


class Answer:
    """What must come of the input, computed without the engine."""

    def __init__(self, project: Path) -> None:
        self.read = self.late = self.broken = 0
        self.purchases: list[tuple[int, str, Decimal]] = []
        groups: dict[tuple[str, datetime], list[Decimal]] = defaultdict(list)
        watermarks = []
        for path in sorted((project / "input").iterdir()):
            newest: datetime | None = None
            for line in path.read_text().splitlines():
                self.read += 1
                try:
                    click = json.loads(line, parse_float=Decimal)
                    user, moment = click["user_id"], datetime.fromisoformat(click["ts"])
                    assert isinstance(user, int)
                except (ValueError, KeyError, AssertionError):
                    self.broken += 1
                    continue
                if newest is not None and moment < newest - DELAY:
                    self.late += 1
                    continue
                newest = moment if newest is None else max(newest, moment)
                amount = Decimal(click["amount"] or 0)
                minute = moment.replace(second=0, microsecond=0)
                groups[click["page"], minute].append(amount)
                if amount:
                    self.purchases.append((user, click["page"], amount))
            assert newest is not None
            watermarks.append(newest - DELAY)
        self.watermark = min(watermarks)
        self.minutes: Minutes = {
            key: (len(amounts), sum(amounts, Decimal(0)))
            for key, amounts in groups.items()
            if key[1] + timedelta(minutes=1) <= self.watermark
        }


def sqlite_rows(project: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(project / "output" / "clicks.db")) as database:
        return database.execute(sql).fetchall()


def minutes_in_sqlite(project: Path) -> Minutes:
    rows = sqlite_rows(project, "SELECT page, minute, clicks, revenue FROM clicks_per_minute")
    found = {
        (page, datetime.fromisoformat(minute)): (clicks, Decimal(str(revenue)))
        for page, minute, clicks, revenue in rows
    }
    assert len(found) == len(rows)
    return found


def minutes_in_delta(project: Path) -> Minutes:
    rows = DeltaTable(project / "output" / "clicks_per_minute").to_pyarrow_table().to_pylist()
    found = {
        (row["page"], row["minute"].astimezone(UTC)): (row["clicks"], row["revenue"])
        for row in rows
    }
    assert len(found) == len(rows)
    return found


def outputs(project: Path) -> dict[Path, bytes]:
    """Everything that the sinks hold; SQLite's index of its log changes when it is read."""
    paths = (project / "output").rglob("*")
    return {
        path: path.read_bytes()
        for path in paths
        if path.is_file() and not path.name.endswith("-shm")
    }


def check_outputs(project: Path, answer: Answer) -> None:
    assert minutes_in_sqlite(project) == answer.minutes
    assert minutes_in_delta(project) == answer.minutes
    purchases = sqlite_rows(project, "SELECT user_id, page, amount FROM purchases")
    assert sorted((user, page, Decimal(str(amount))) for user, page, amount in purchases) == sorted(
        answer.purchases
    )


def test_a_new_project_runs_as_it_stands(project: Path) -> None:
    assert laminar(project, "validate").returncode == 0
    answer = Answer(project)
    assert answer.late
    assert answer.broken
    done = laminar(project, "run", "--json")
    # Not a word of Spark's either.
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    (epoch,) = json.loads(done.stdout)["epochs"]
    assert epoch["counts"]["read"] == answer.read
    assert epoch["counts"]["late"] == answer.late
    assert epoch["counts"]["dead_lettered"] == answer.broken
    assert epoch["rows_out"] == 2 * len(answer.minutes) + len(answer.purchases)
    check_outputs(project, answer)


def test_its_status_and_its_dossier_tell_the_same(project: Path) -> None:
    answer = Answer(project)
    status = document(project, "status")
    assert status["last_epoch"]["epoch"] == 1
    assert status["is_changed"] is False
    assert status["unfinished"] == []
    assert [each["waiting"] for each in status["sources"]] == [0]
    assert {each["state"] for each in status["sinks"]} == {"at"}
    micros = round(answer.watermark.timestamp() * 1e6)
    assert status["last_epoch"]["watermark"] == micros
    shown = document(project, "epochs", "show", "1")
    assert shown["state"] == "done"
    assert shown["manifest"]["watermark"] == micros
    ends = [part["end"]["byte_offset"] for part in shown["plan"]["sources"][0]["ranges"]]
    assert ends == [path.stat().st_size for path in sorted((project / "input").iterdir())]
    told = laminar(project, "epochs", "show", "1").stdout
    assert f"{answer.read} read = " in told


def test_a_second_run_does_nothing(project: Path) -> None:
    before = outputs(project)
    done = laminar(project, "run")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Pipeline clickstream: nothing is left to read. No epoch was run.\n"
    assert document(project, "status")["last_epoch"]["epoch"] == 1
    assert outputs(project) == before


def test_for_ever_takes_what_arrives_and_ends_after_the_epoch_at_hand(project: Path) -> None:
    """As the README of the project says: one more click for each server closes the minutes."""
    click = '{"user_id": 1, "page": "/", "amount": null, "ts": "2026-01-01T10:00:00Z"}\n'
    for path in (project / "input").iterdir():
        with path.open("a") as file:
            file.write(click)
    answer = Answer(project)
    process = subprocess.Popen(
        # A shell that starts it in the background lets it ignore Ctrl-C.
        ["bash", "-c", 'trap "" INT; exec "$@"', "bash", SCRIPT, "run", "--forever"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("epoch 2: 2 read, 0 late, 0 dead, ")
        # Spark would take Ctrl-C for itself, and end its own jobs.
        process.send_signal(signal.SIGINT)
        begun = time.monotonic()
        out, err = process.communicate(timeout=60)
        assert time.monotonic() - begun < 30
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert err == "stopping after the epoch at hand; once more ends at once\n"
    assert "1 epoch, 2 records; stopped as asked." in out
    check_outputs(project, answer)


def test_the_wheel_holds_the_files_of_a_new_project(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    template = ROOT / "laminar_dagster" / "project_template"
    wanted = {path.relative_to(ROOT).as_posix() for path in template.rglob("*") if path.is_file()}
    assert wanted
    assert wanted <= set(zipfile.ZipFile(wheel).namelist())
