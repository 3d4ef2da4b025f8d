"""`make kafka-demo`, with fewer orders: the same broker, producer, pipeline and kill."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from examples.kafka_orders.answer import Answer
from examples.kafka_orders.board import Sample
from examples.kafka_orders.screen import curve
from infra.load import Deadline
from laminar_dagster.config.project import load_pipeline
from laminar_dagster.runtime.assembly import known_connectors

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "examples.kafka_orders"]

# Two starts of Spark, on a machine that may be busy with other tests.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def demo(*options: str, environment: Mapping[str, str] = {}) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *options],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=880,
    )


def processes_of(folder: Path) -> list[str]:
    """Whoever works in the demo's folder: the broker, the producer, the pipeline, Spark."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdecimal() and Path(os.readlink(each / "cwd")).is_relative_to(
                folder.resolve()
            ):
                found.append((each / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kafka") / "demo"


@pytest.fixture(scope="module")
def told(folder: Path) -> tuple[dict[str, Any], str]:
    """The verdict of a demo whose folder was kept, and what it said on the way."""
    done = demo(
        *("--seconds", "2", "--rate", "2000", "--kills", "1"),
        *("--json", "--keep", "--folder", str(folder)),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout), done.stderr


def test_it_is_killed_catches_up_and_ends_with_the_right_answer(
    folder: Path, told: tuple[dict[str, Any], str]
) -> None:
    verdict, news = told
    assert verdict["is_right"]
    assert verdict["problems"] == []
    (kill,) = verdict["kills"]
    assert kill["processes"] > 1
    assert verdict["epochs"] > kill["epoch"] > 1
    assert verdict["most_waiting"] > kill["lag"]
    assert f"in the middle of epoch {kill['epoch']}" in news
    assert "connector = 'kafka'" in news
    assert "0 lost, 0 doubled" in news
    assert not processes_of(folder)


def test_every_order_is_in_both_sinks(told: tuple[dict[str, Any], str]) -> None:
    verdict, _ = told
    sent = verdict["sent"]
    assert sent["acknowledged"] == sent["records"] > 4_000
    assert sent["late"] > 0
    assert sent["broken"] > 0
    counts = list(verdict["counts"].values())
    assert counts[0] == counts[1] == counts[2]
    assert counts[0]["read"] == sent["records"]
    for sink in verdict["sinks"]:
        # All but the last one of each partition, whose window is open.
        assert sink["orders"] == counts[0]["on_time"] - 4
        assert (sink["lost"], sink["doubled"]) == (0, 0)


def test_the_group_stands_where_the_last_epoch_ended(told: tuple[dict[str, Any], str]) -> None:
    verdict, _ = told
    assert len(verdict["group"]) == 4
    assert verdict["group"] == verdict["positions"] == verdict["sent"]["ends"]


def test_what_it_left_can_be_looked_at_and_compared_again(
    folder: Path, told: tuple[dict[str, Any], str]
) -> None:
    _, news = told
    assert f"laminar --project {folder} dead-letters list orders" in news
    done = demo("--check", "--folder", str(folder))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "Both sinks equal the answer" in done.stdout
    letters = subprocess.run(
        [
            *(Path(sys.executable).with_name("laminar"), "--project", folder),
            *("dead-letters", "list", "orders", "--json"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(letters.stdout)


# --- a sink that is wrong -------------------------------------------------------------------------


@contextmanager
def changed(path: Path) -> Iterator[Path]:
    """Something of the demo's folder, as it was when the block is over."""
    kept = path.with_name(f"{path.name}.kept")
    copy = shutil.copytree if path.is_dir() else shutil.copy2
    copy(path, kept)
    try:
        yield path
    finally:
        if path.is_dir():
            shutil.rmtree(path)
        kept.replace(path)


def test_an_order_less_in_sqlite_is_lost(folder: Path, told: tuple[dict[str, Any], str]) -> None:
    with changed(folder / "output" / "shop.db") as path:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(
                "UPDATE product_sales SET orders = orders - 1"
                " WHERE rowid = (SELECT max(rowid) FROM product_sales)"
            )
        done = demo("--check", "--json", "--folder", str(folder))
    assert done.returncode == 1
    verdict = json.loads(done.stdout)
    assert verdict["problems"] == ["sales differs from the answer"]
    assert [(each["lost"], each["doubled"]) for each in verdict["sinks"]] == [(1, 0), (0, 0)]
    assert "WRONG: sales differs from the answer" in done.stderr
    assert "equal the answer" not in done.stderr


def test_a_row_twice_in_delta_is_doubled(folder: Path, told: tuple[dict[str, Any], str]) -> None:
    with changed(folder / "output" / "product_sales") as path:
        row = DeltaTable(path).to_pyarrow_table().slice(0, 1)
        write_deltalake(path, row, mode="append")
        done = demo("--check", "--json", "--folder", str(folder))
    assert done.returncode == 1
    verdict = json.loads(done.stdout)
    assert verdict["problems"] == ["sales_lake differs from the answer"]
    assert verdict["sinks"][1]["doubled"] == row["orders"][0].as_py()


def test_a_record_that_no_epoch_read_is_found(
    folder: Path, told: tuple[dict[str, Any], str]
) -> None:
    with changed(folder / "topic.parquet") as path:
        records = pq.read_table(path)
        pq.write_table(pa.concat_tables([records, records.slice(0, 1)]), path)
        done = demo("--check", "--folder", str(folder))
    assert done.returncode == 1
    assert "WRONG: the counts differ" in done.stdout


def test_a_group_that_stands_elsewhere_is_found(
    folder: Path, told: tuple[dict[str, Any], str]
) -> None:
    with changed(folder / "demo.json") as path:
        record = json.loads(path.read_text())
        record["group"]["0"] -= 1
        path.write_text(json.dumps(record))
        done = demo("--check", "--folder", str(folder))
    assert done.returncode == 1
    assert "WRONG: the group stands at" in done.stdout


# --- without an end -------------------------------------------------------------------------------


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    process = subprocess.Popen(
        [*PROGRAM, "--rate", "1000", "--folder", str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = Deadline(200)
        # The broker's Java and Spark's: everything has been started by then.
        while sum("java" in each for each in processes_of(folder)) < 2:
            assert process.poll() is None, process.communicate()[0]
            assert not deadline.is_over
            time.sleep(0.2)
        refused = demo("--folder", str(folder))
        process.send_signal(signal.SIGINT)
        told, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, told
    assert "No process is left" in told
    assert not processes_of(folder)
    assert not folder.exists()
    assert refused.returncode == 2
    assert "another demo is at work" in refused.stdout


# --- without a broker -----------------------------------------------------------------------------


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all my work")
    done = demo("--folder", str(tmp_path / "mine"))
    assert done.returncode == 2
    assert "holds files that are not the demo's" in done.stdout
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "all my work"


def test_there_is_nothing_to_check_before_the_first_run(tmp_path: Path) -> None:
    done = demo("--check", "--json", "--folder", str(tmp_path / "demo"))
    assert done.returncode == 2
    assert "make kafka-demo" in json.loads(done.stdout)["error"]


def test_without_a_network_it_says_so_and_may_be_tried_again(tmp_path: Path) -> None:
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text("#!/bin/sh\necho '[ERROR] Unknown host repo.maven.apache.org'\nexit 1\n")
    maven.chmod(0o755)
    done = demo(
        *("--folder", str(tmp_path / "demo")),
        environment={
            "LAMINAR_CACHE": str(tmp_path / "cache"),
            "PATH": f"{maven.parent}:{os.environ['PATH']}",
        },
    )
    assert done.returncode == 75, done.stdout + done.stderr
    assert "Fetching Kafka with Maven" in done.stdout
    assert "Unknown host" in done.stdout
    assert "Try again when the network is there" in done.stdout
    assert not (tmp_path / "demo").exists()


def test_without_maven_it_says_what_to_install(tmp_path: Path) -> None:
    done = demo(
        *("--folder", str(tmp_path / "demo")),
        environment={"LAMINAR_CACHE": str(tmp_path / "cache"), "PATH": str(tmp_path)},
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "install Apache Maven" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_without_java_it_says_what_to_install(tmp_path: Path) -> None:
    script = (
        "import runpy, infra.java; infra.java.examine = lambda home: None;"
        "runpy.run_module('examples.kafka_orders', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "--folder", str(tmp_path / "demo")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "install Java 17 or later" in done.stdout


def test_the_pipeline_has_no_mistake() -> None:
    folder = ROOT / "examples" / "kafka_orders" / "orders"
    model = load_pipeline(folder, connectors=known_connectors())
    assert str(model.config.name) == "orders"
    assert not model.warnings


def test_the_answer_knows_late_broken_and_open(tmp_path: Path) -> None:
    def order(second: float, amount: str = "1.50") -> str:
        ts = f"2026-01-01T00:00:{second:09.6f}Z"
        return f'{{"order_id":1,"product":"a","amount":{amount},"ts":"{ts}"}}'

    values = [order(1), order(9, "2.25"), order(3.5), order(4), "no order", order(16)]
    table = pa.table(
        {"partition": [0] * 6, "offset": list(range(6)), "value": values},
        schema=pa.schema(
            [("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.string())]
        ),
    )
    pq.write_table(table, tmp_path / "topic.parquet")
    answer = Answer(tmp_path / "topic.parquet")
    counts = answer.counts()
    # 3.5 is more than five seconds behind 9; 4 is not. 16 closes the first ten seconds.
    assert (counts.read, counts.on_time, counts.late, counts.broken) == (6, 4, 1, 1)
    assert answer.cents() == 150 + 225 + 150


def test_the_curve_shows_the_most_of_each_share() -> None:
    samples = [Sample(0.0, 0, 0), Sample(1.0, 0, 70), Sample(2.0, 0, 10), Sample(3.9, 0, 0)]
    assert curve(samples, 4) == "▁█▂▁"
    assert curve([], 3) == "▁▁▁"
