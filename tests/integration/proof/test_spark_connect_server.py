"""The Spark Connect server that other proofs rely on: its life, and who may use it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infra.ports import free_port, is_listening
from infra.spark_connect import SparkConnect, SparkConnectEndpoint
from tests.integration.dagster.shown import files_with
from tests.services.process_tree import (
    PROCESSES,
    command_line,
    descendants,
    environment_of,
)

pytestmark = [pytest.mark.slow, pytest.mark.service("spark_connect")]

_ROOT = Path(__file__).parents[3]
_CLIENT = """
from laminar_dagster.spark.session import open_session
spark = open_session({"spark.sql.shuffle.partitions": "3"})
rows = spark.range(10).mapInArrow(lambda batches: batches, "id long")
print(rows.selectExpr("sum(id)").collect()[0][0],
      spark.conf.get("spark.sql.shuffle.partitions"),
      spark.conf.get("spark.sql.session.timeZone"))
"""


def run(
    command: list[str], environment: dict[str, str], cwd: Path = _ROOT
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(_ROOT), os.environ.get("PYTHONPATH", "")))
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **environment, "PYTHONPATH": path},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def test_a_process_opens_its_session_there(spark_connect: SparkConnectEndpoint) -> None:
    answer = run(["-c", _CLIENT], spark_connect.environment())
    assert answer.stdout.split() == ["45", "3", "UTC"], answer.stderr


def test_a_client_without_the_token_is_refused(spark_connect: SparkConnectEndpoint) -> None:
    stranger = dataclasses.replace(spark_connect, token="guessed")
    answer = run(["-c", _CLIENT], stranger.environment())
    assert answer.returncode != 0
    assert "Invalid authentication token" in answer.stderr


def test_the_token_is_not_shown(spark_connect: SparkConnectEndpoint) -> None:
    """Nor handed on: the server and its Python workers run what clients send."""
    answer = run(["-c", _CLIENT], spark_connect.environment())
    assert answer.returncode == 0, answer.stderr
    setting = f"binding.port={spark_connect.port}"
    lines = {int(each.name): command_line(int(each.name)) for each in PROCESSES.glob("[0-9]*")}
    (server,) = (pid for pid, line in lines.items() if setting in line)
    workers = descendants(server)
    assert any("worker_daemon" in command_line(pid) for pid in workers)
    for pid in (server, *workers):
        assert spark_connect.token not in command_line(pid) + environment_of(pid)
    assert spark_connect.token not in repr(spark_connect)
    assert [*files_with(spark_connect.token, spark_connect.log.parent)] == []


def test_a_server_elsewhere_is_not_taken_for_this_one(
    spark_connect: SparkConnectEndpoint, tmp_path: Path
) -> None:
    server = SparkConnect()
    assert server.is_ready(spark_connect)
    log = tmp_path / "other.log"
    log.write_text("")
    assert not server.is_ready(dataclasses.replace(spark_connect, log=log))
    free = free_port()
    log.write_text(f"started at: 127.0.0.1:{free}")
    assert not server.is_ready(dataclasses.replace(spark_connect, log=log, port=free))


def test_it_stays_between_commands(tmp_path: Path) -> None:
    started = run(["-m", "infra", "up", "spark_connect"], {}, tmp_path)
    try:
        assert started.returncode == 0, started.stderr
        exports = dict(
            line.removeprefix("export ").split("=", 1)
            for line in started.stdout.splitlines()
            if line.startswith("export ")
        )
        port = int(exports["SPARK_REMOTE"].rpartition(":")[2])
        assert is_listening(port)
        status = run(["-m", "infra", "status", "spark_connect"], {}, tmp_path)
        assert "spark_connect: running" in status.stdout
    finally:
        ended = run(["-m", "infra", "down", "spark_connect"], {}, tmp_path)
    assert "spark_connect: stopped" in ended.stdout
    # The last threads of a large process take a moment to let go of its sockets.
    deadline = time.monotonic() + 30
    while is_listening(port) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not is_listening(port)
