"""What nobody shall see, looked for wherever a run may have put it."""

from __future__ import annotations

import random
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import pytest

from infra.ports import free_port
from tests.integration.cli.test_console_script import SCRIPT, environment
from tests.integration.dagster.shown import files_with
from tests.integration.spark.project import Project, random_records
from tests.services.process_tree import command_line, descendants, environment_of, listening

pytestmark = pytest.mark.slow

ValueT = TypeVar("ValueT")

IN_ENVIRONMENT: Final = "canary-of-the-environment-7f3a9b61"
IN_FILE: Final = "canary-of-the-file-0c44e1d2"
CONFIG: Final = """
spark:
  spark.master: local[2]
  spark.sql.shuffle.partitions: 2
  spark.sql.catalog.lake.url: jdbc:postgresql://ann:${{LAKE_KEY}}@db.example/lake
  spark.hadoop.fs.azure.account.key.lake: ${{LAKE_KEY}}
  spark.hadoop.fs.s3a.secret.key: {literal}
  spark.sql.catalog.shop.url: jdbc:postgresql://bob:{literal}@db.example/shop
  spark.eventLog.enabled: "true"
  spark.eventLog.compress: "false"
  spark.eventLog.dir: {events}
  spark.ui.enabled: "true"
  spark.ui.port: "{port}"
"""
PAGES: Final = ("environment/", "SQL/", "jobs/", "executors/", "api/v1/applications")


def wait_for(find: Callable[[], ValueT], what: str) -> ValueT:
    deadline = time.monotonic() + 240
    while not (found := find()):
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.1)
    return found


@contextmanager
def running(project: Project, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A pipeline that has committed an epoch, and waits for more."""
    events = project.root / "events"
    events.mkdir()
    (project.root / "home").mkdir()
    project.write(config=CONFIG.format(literal=IN_FILE, events=events.as_uri(), port=port))
    project.append("a.ndjson", random_records(random.Random(5), 200))
    own = environment(DAGSTER_HOME=str(project.root / "home"), LAKE_KEY=IN_ENVIRONMENT)
    own.pop("SPARK_REMOTE", None)
    with (project.root / "log").open("wb") as log:
        process = subprocess.Popen(
            [SCRIPT, "run", "clicks", "--forever"],
            cwd=project.root,
            env=own,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        latest = project.root / "state" / "checkpoints" / "_latest"
        wait_for(lambda: process.poll() is not None or latest.exists(), "epoch")
        assert process.poll() is None, (project.root / "log").read_text()
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(120)


def page(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=60) as answer:
        return str(answer.read().decode())


def test_a_run_shows_no_secret_of_spark(tmp_path: Path) -> None:
    project, port = Project(tmp_path), free_port()
    with running(project, port) as process:
        below = descendants(process.pid)
        lines = {pid: command_line(pid) for pid in {process.pid, *below}}
        addresses = {address for pid in lines for address in listening(pid)}
        surroundings = {pid: environment_of(pid) for pid in below}
        shown = [page(port, path) for path in PAGES]
        (application,) = (tmp_path / "events").glob("*")
        name = application.name.removeprefix("eventlog_v2_").removesuffix(".inprogress")
        shown.append(page(port, f"api/v1/applications/{name}/environment"))
    assert any("org.apache.spark.deploy.SparkSubmit" in line for line in lines.values())
    assert any("worker_daemon" in line for line in lines.values())
    # Spark's pages among them, and they have no login.
    assert addresses == {"127.0.0.1"}
    # What is searched holds the names of what is searched for.
    assert "spark.sql.catalog.lake.url" in shown[-1]
    for secret in (IN_ENVIRONMENT, IN_FILE):
        for text in (*lines.values(), *surroundings.values(), *shown):
            assert secret not in text
        kept = {path.relative_to(tmp_path).parts[0] for path in files_with(secret, tmp_path)}
        # The file that its author wrote it into.
        assert kept == ({"dbt_like_configs"} if secret == IN_FILE else set())
    assert [*files_with("spark.sql.catalog.lake.url", tmp_path / "events")]
    # That of a process which has ended meanwhile is empty.
    read = [text for text in surroundings.values() if text]
    assert read
    assert all("PATH=" in text for text in read)
