"""The wheel without extras runs a pipeline from files to SQLite, and names what it lacks."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from infra.core_install import Installed, build_wheel, install
from tests.unit.plugins.loaded_modules import CLIENTS

# Four hundred megabytes are unpacked, and Spark starts.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# What Dagster itself depends on.
_OF_DAGSTER = {"grpc", "urllib3"}


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("core")
    return install(build_wheel(folder), folder / "environment")


def laminar(core: Installed, folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [str(core.folder / "bin" / "laminar"), *args]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True, timeout=600)


def document(core: Installed, folder: Path, *args: str) -> Any:
    done = laminar(core, folder, *args, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_it_brings_no_client_and_few_packages(core: Installed) -> None:
    names = {each.lower() for each in core.packages}
    assert not (CLIENTS - _OF_DAGSTER) & names
    assert "dagster_webserver" not in names
    # 64 when this was written, where all extras were 111. Raised only for what everybody needs.
    assert len(names) <= 70, core.describe()


def test_it_runs_from_files_to_sqlite_and_names_what_is_missing(
    core: Installed, tmp_path: Path
) -> None:
    document(core, tmp_path, "init", "shop")
    root = tmp_path / "shop"
    (checked,) = document(core, root, "validate")["pipelines"]
    assert checked["sinks"] == ["minutes", "purchases"]
    document(core, root, "run", "--epochs", "1")
    with closing(sqlite3.connect(root / "output" / "clicks.db")) as connection:
        assert connection.execute("SELECT count(*) > 0 FROM purchases").fetchone() == (1,)

    sources = root / "dbt_like_configs" / "clickstream" / "sources.sql"
    sources.write_text(sources.read_text().replace("connector = 'file'", "connector = 'kafka'"))
    refused = json.loads(laminar(core, root, "validate", "--json").stdout)["error"]
    (told,) = refused["mistakes"]
    line = sources.read_text().splitlines().index("    connector = 'kafka',") + 1
    assert told["suggestion"] == 'pip install "laminar-dagster[kafka]"'
    assert f"sources.sql:{line}" in told["where"]
    assert "Traceback" not in json.dumps(refused)
