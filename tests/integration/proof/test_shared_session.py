"""Processes that come one after the other may share a session of Spark Connect.

A session remembers what a query was resolved to. A second process asks the very same, and means
other records.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.dagster.pipelines_project import SECRET_VARIABLE, Shop

pytestmark = [pytest.mark.slow, pytest.mark.service("spark_connect")]

_PROGRAM = "from laminar_dagster.cli.main import main; main()"


def test_each_process_reads_what_its_own_epoch_planned(
    tmp_path: Path, warm_spark: dict[str, str]
) -> None:
    shop = Shop(tmp_path)
    shop.lay_out()
    shop.click(1_800)
    for _ in range(2):
        done = subprocess.run(
            [*(sys.executable, "-c", _PROGRAM, "run", "clickstream"), "--epochs", "1"],
            env={**os.environ, **warm_spark, SECRET_VARIABLE: "unused"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
    shop.check()
