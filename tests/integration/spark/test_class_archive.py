"""An archive of Spark's classes, made and used by real Javas."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from infra import java
from laminar_dagster.spark.class_archive import (
    VARIABLE,
    archive_folder,
    fitting_name,
    java_options,
    remove_archives,
    usable_archive,
)

# An archive is made, and Java started three times, on a machine that may be busy with other tests.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_CODE: Final = "from laminar_dagster.cli.main import main; main()"
_SECONDS: Final = 900.0
_PROBE: Final = """
import json, sys
from pathlib import Path
from pyspark import SparkContext
from laminar_dagster.spark.session import open_session
spark = open_session({**json.loads(sys.argv[1]), "spark.master": "local[1]"}, is_brief=True)
java = SparkContext._gateway.proc.pid
given = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
print(json.dumps({
    "options": list(given.getInputArguments()),
    "maps": Path(f"/proc/{java}/maps").read_text(),
    "rows": spark.range(5).count(),
}))
"""


@dataclass(frozen=True, slots=True)
class Cache:
    """A cache of the tests' own, with the archive that two processes made at once."""

    environment: dict[str, str]
    documents: list[dict[str, Any]]

    @property
    def archive(self) -> Path:
        return Path(self.documents[0]["archive"])


def environment_with(cache: Path) -> dict[str, str]:
    found = java.find()
    if found is None:
        pytest.skip("there is no Java")
    given = {**os.environ, "LAMINAR_CACHE": str(cache), "JAVA_HOME": str(found.home)}
    given.pop(VARIABLE, None)
    return given


def warm_up(environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _CODE, "warm-up", "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    environment = environment_with(tmp_path_factory.mktemp("with space") / "cache")
    makers = [warm_up(environment) for _ in range(2)]
    documents = []
    for maker in makers:
        out, error = maker.communicate(timeout=_SECONDS)
        assert maker.returncode == 0, error
        documents.append(json.loads(out))
    return Cache(environment, documents)


def probe(environment: dict[str, str], folder: Path, **settings: str) -> tuple[dict[str, Any], str]:
    """What a Java that was started for Spark has mapped, and was told; and what it said."""
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, json.dumps(settings)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=_SECONDS,
    )
    # A Java that crashes writes to standard output before.
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_of_two_processes_one_makes_it_and_nothing_else_stays(cache: Cache) -> None:
    first, second = cache.documents
    assert first["archive"] == second["archive"]
    assert sorted([first["is_new"], second["is_new"]]) == [False, True]
    assert first["bytes"] == cache.archive.stat().st_size > 50_000_000
    folder = archive_folder(cache.environment)
    assert {path.name for path in folder.iterdir()} == {".lock", cache.archive.name}


def test_java_uses_it_and_the_options_of_the_user_come_last(cache: Cache, tmp_path: Path) -> None:
    own = "-Dmine=1 -XX:TieredStopAtLevel=2"
    found, _said = probe(cache.environment, tmp_path, **{"spark.driver.extraJavaOptions": own})
    assert str(cache.archive) in found["maps"]
    assert found["rows"] == 5
    options = found["options"]
    assert options.index(f"-XX:SharedArchiveFile={cache.archive}") < options.index("-Dmine=1")
    assert [each for each in options if "Tiered" in each] == ["-XX:TieredStopAtLevel=2"]


def test_an_archive_that_has_java_crash_is_removed_and_spark_starts(
    cache: Cache, tmp_path: Path
) -> None:
    # A file without its end, and with a name that hides it: Java maps what is not there.
    environment = {**cache.environment, "LAMINAR_CACHE": str(tmp_path / "cache")}
    size = 20_000_000
    damaged = archive_folder(environment) / f"{fitting_name(environment)}-{size}.jsa"
    damaged.parent.mkdir(mode=0o700, parents=True)
    with cache.archive.open("rb") as whole:
        damaged.write_bytes(whole.read(size))
    damaged.chmod(0o400)
    assert usable_archive(environment) == damaged
    found, _said = probe(environment, tmp_path)
    assert list(tmp_path.glob("hs_err_pid*.log")), "Java crashed on it"
    assert found["rows"] == 5
    assert str(damaged) not in found["maps"]
    assert not damaged.exists()


def test_an_archive_of_other_jars_is_left_out_without_a_word(cache: Cache, tmp_path: Path) -> None:
    # The path that fits, to a file that fits the same Java and another class path.
    environment = {**cache.environment, "SPARK_DIST_CLASSPATH": str(tmp_path / "more.jar")}
    assert usable_archive(environment) is None
    name = fitting_name(environment)
    size = cache.archive.stat().st_size
    other = cache.archive.with_name(f"{name}-{size}.jsa")
    other.hardlink_to(cache.archive)
    os.utime(cache.archive.parent)
    java_home = Path(environment["JAVA_HOME"])
    shared = tmp_path / "class_path.txt"
    done = subprocess.run(
        [
            str(java_home / "bin" / "java"),
            *shlex.split(java_options(environment, is_brief=True)),
            *("-cp", str(shared), "-version"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "archive" not in (done.stdout + done.stderr).lower()
    other.unlink()


def processes_in(cache: Path) -> list[int]:
    """The processes that were started for a cache."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"LAMINAR_CACHE={cache}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def wait_until(condition: Any) -> None:
    limit = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.1)


def is_java(process: int) -> bool:
    try:
        name = Path(f"/proc/{process}/comm").read_text().strip()
        command = Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
    return name == "java" and b"ArchiveClassesAtExit" in command


@pytest.fixture
def maker(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = warm_up(environment_with(tmp_path / "cache"))
    yield process
    process.kill()
    process.communicate()


def test_a_maker_that_is_killed_leaves_no_archive_no_lock_and_no_process(
    maker: subprocess.Popen[str], tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    wait_until(lambda: any(map(is_java, processes_in(cache))) or maker.poll() is not None)
    assert maker.poll() is None
    os.kill(maker.pid, signal.SIGKILL)
    maker.wait()
    wait_until(lambda: not processes_in(cache))
    environment = {"LAMINAR_CACHE": str(cache)}
    assert not list(archive_folder(environment).glob("*.jsa"))
    assert list(archive_folder(environment).glob(".making-*"))
    # The lock is free, and what is left goes with the next one that takes it.
    assert remove_archives(environment) == (0, 0)
    assert [path.name for path in archive_folder(environment).iterdir()] == [".lock"]
