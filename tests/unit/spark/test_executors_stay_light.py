"""What runs on executors does not load the configuration: every Python worker would pay for it."""

from __future__ import annotations

import subprocess
import sys

EXECUTOR_MODULES = (
    "laminar_dagster.spark.scan",
    "laminar_dagster.spark.bucket_step",
    "laminar_dagster.spark.join_step",
    "laminar_dagster.spark.join_records",
    "laminar_dagster.spark.explode_step",
    "laminar_dagster.spark.reference_step",
    "laminar_dagster.spark.staging",
    "laminar_dagster.spark.model_step",
    "laminar_dagster.spark.operator_step",
    "laminar_dagster.sources.file.reader",
    "laminar_dagster.sources.kafka.reader",
    "laminar_dagster.sources.kafka.decoding",
)
HEAVY = (
    "pandas",
    "sqlglot",
    "yaml",
    "pandera",
    "laminar_dagster.config.model",
    "laminar_dagster.config.sql",
    "urllib3",
    "fastavro",
)


def test_nothing_heavy_is_loaded() -> None:
    code = f"import sys, {', '.join(EXECUTOR_MODULES)}; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(EXECUTOR_MODULES) <= set(loaded)
    assert not [name for name in HEAVY if name in loaded]
