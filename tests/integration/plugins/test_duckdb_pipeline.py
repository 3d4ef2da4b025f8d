"""A plug-in that is installed beside the package: named, validated, run, killed and recovered.

Its wheel is built and unpacked as an installer does it. Nothing of the package knows it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

pytestmark = pytest.mark.slow

PLUGIN = Path(__file__).parents[3] / "examples" / "laminar_duckdb"
ROWS = 600
# DuckDB's TIMESTAMP has no zone, and the source takes it for UTC.
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC).replace(tzinfo=None)

PIPELINE = "name: clicks\nstore: state\nbuckets: 2\nepoch:\n  max_records: 200\n"
SOURCES = """CREATE SOURCE TABLE clicks (
    page STRING NOT NULL, amount DECIMAL(10, 2), ts TIMESTAMP, WATERMARK FOR ts AS ts
) WITH (connector = 'duckdb', path = 'in.duckdb', table = 'clicks', sequence = 'id');
"""
VIEWS = {
    "totals": "SELECT page, sum(amount) AS total, count(*) AS n FROM clicks\n"
    "GROUP BY page EMIT CHANGES WITH (state.ttl = 'unbounded')",
    "large": "SELECT page, amount, ts FROM clicks WHERE amount > 50",
}
SINKS = """CREATE SINK totals_table FROM totals
WITH (connector = 'duckdb', path = 'out.duckdb', table = 'totals', mode = 'upsert', key = 'page');
CREATE SINK large_table FROM large
WITH (connector = 'duckdb', path = 'lake.duckdb', table = 'large');
"""
# The command, in a process that dies at one of its sinks' commits.
KILLED = """
import sys
from laminar_dagster.cli.main import main
from laminar_dagster.testing.crash import kill_this_process
from laminar_duckdb.sink import DuckdbSink

when, last, send = sys.argv.pop(1), int(sys.argv.pop(1)), DuckdbSink._send_commit

def die(sink, connection, epoch):
    if (sink.sink_id, epoch) == ("totals_table", last):
        if when == "after":
            send(sink, connection, epoch)
        kill_this_process()
    send(sink, connection, epoch)

DuckdbSink._send_commit = die
main()
"""


@dataclass(frozen=True)
class Project:
    """A project's folder, and where the plug-in is installed; empty if it is not."""

    root: Path
    site: str

    def run(self, *args: str, killed: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """The command, in a process of its own."""
        program = KILLED if killed else "from laminar_dagster.cli.main import main; main()"
        command = [sys.executable, "-c", program, *killed, *args]
        environment: Mapping[str, str] = os.environ | {"PYTHONPATH": self.site}
        return subprocess.run(
            command, cwd=self.root, env=environment, text=True, capture_output=True, timeout=600
        )

    def json(self, *args: str) -> Any:
        """The document that a command prints; it has to succeed."""
        result = self.run(*args, "--json")
        assert result.returncode == 0, result.stdout + result.stderr
        return json.loads(result.stdout)

    def dies(self, when: str, epoch: int) -> None:
        """Run until a process dies before or after the commit of an epoch."""
        dead = self.run("run", killed=(when, str(epoch)))
        assert dead.returncode == -signal.SIGKILL, dead.stdout + dead.stderr

    def query(self, file: str, query: str) -> list[Any]:
        """The rows of a query of one of the databases."""
        with duckdb.connect(str(self.root / file), read_only=True) as connection:
            return connection.execute(query).fetchall()

    def ledger(self, file: str) -> list[Any]:
        return self.query(file, "SELECT sink, epoch FROM _laminar_ledger")

    def answer(self) -> tuple[list[Any], list[Any]]:
        """What has to be in the tables, by DuckDB's own query of all rows."""
        totals = "SELECT page, sum(amount), count(*) FROM clicks GROUP BY page ORDER BY page"
        large = "SELECT page, amount, ts FROM clicks WHERE amount > 50 ORDER BY ALL"
        return self.query("in.duckdb", totals), self.query("in.duckdb", large)

    def published(self) -> tuple[list[Any], list[Any]]:
        totals = self.query("out.duckdb", "SELECT page, total, n FROM totals ORDER BY page")
        columns = "page, amount, timezone('UTC', ts) AS ts"
        return totals, self.query("lake.duckdb", f"SELECT {columns} FROM large ORDER BY ALL")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the plug-in's distribution."""
    copy = tmp_path_factory.mktemp("built") / "plugin"
    shutil.copytree(PLUGIN, copy)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    subprocess.run(build, cwd=copy, check=True, capture_output=True, timeout=120)
    (wheel,) = (copy / "dist").glob("*.whl")
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def project(tmp_path: Path, site: Path) -> Project:
    folder = tmp_path / "dbt_like_configs" / "clicks"
    (folder / "models").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(PIPELINE)
    (folder / "sources.sql").write_text(SOURCES)
    (folder / "sinks.sql").write_text(SINKS)
    for name, text in VIEWS.items():
        (folder / "models" / f"{name}.sql").write_text(text)
    with duckdb.connect(str(tmp_path / "in.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE clicks (id BIGINT, page TEXT, amount DECIMAL(10, 2), ts TIMESTAMP)"
        )
        rows = [
            [place, f"/{place % 7}", f"{place * 37 % 101}.25", NOON + timedelta(seconds=place)]
            for place in range(ROWS)
        ]
        connection.executemany("INSERT INTO clicks VALUES (?, ?, ?, ?)", rows)
    return Project(tmp_path, str(site))


def test_without_it_the_connector_is_unknown(project: Project) -> None:
    result = Project(project.root, "").run("validate", "--json")
    mistakes = json.loads(result.stdout)["error"]["mistakes"]
    assert result.returncode == 2
    assert len(mistakes) == 3
    assert all("connector `duckdb` that does not exist" in each["problem"] for each in mistakes)


# Four Sparks, one after the other.
@pytest.mark.timeout(900)
def test_it_is_validated_run_killed_in_a_commit_and_recovered(project: Project) -> None:
    (checked,) = project.json("validate", "--connect")["pipelines"]
    assert (checked["sources"], len(checked["sinks"])) == (["clicks"], 2)

    # Dead before its commit: nothing of the epoch is there.
    project.dies("before", 1)
    assert project.query("out.duckdb", "FROM duckdb_tables()") == []

    # The next process finishes that epoch. Dead after the commit of its own, before it is known.
    project.dies("after", 2)
    assert project.ledger("out.duckdb") == [("totals_table", 2)]

    project.json("run")
    assert project.published() == project.answer()
    assert project.ledger("out.duckdb") == [("totals_table", 3)]
    assert project.ledger("lake.duckdb") == [("large_table", 3)]

    # What was planned gives the same bytes again.
    project.json("verify", "--epoch", "2")
