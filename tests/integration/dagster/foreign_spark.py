"""A program: one epoch of a pipeline in Dagster, on a session of Spark that a user brings.

Arguments: the project's folder, and the settings of the user's ``PySparkResource`` as JSON. Exits
with an error when the user finds the session otherwise than left.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import dagster as dg
from dagster_pyspark import PySparkResource

from laminar_dagster.orchestration.pipeline_defs import build_pipeline_defs
from laminar_dagster.runtime.loading import load_pipelines


def main(project: Path, settings: dict[str, str]) -> None:
    """Run it, as the page on Dagster says."""
    (loaded,) = load_pipelines([project / "dbt_like_configs" / "clicks"], project)
    defs = build_pipeline_defs(loaded.model, project, spark=PySparkResource(spark_config=settings))
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("laminar_clicks_epochs", ["000000000001"])
        job = defs.resolve_job_def("clicks_epoch_and_commit")
        assert job.execute_in_process(partition_key="000000000001", instance=instance).success
    require_unchanged(settings)


def require_unchanged(settings: dict[str, str]) -> None:
    """The session is as its owner wants it, and it was the one that computed."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.getOrCreate()
    found = {key: session.conf.get(key) for key in settings if key.startswith("spark.sql.")}
    wanted = {key: settings[key] for key in found}
    assert found == wanted, (found, wanted)
    if "spark.remote" not in settings:
        tracker = session.sparkContext.statusTracker()
        assert session.sparkContext.appName == settings["spark.app.name"]
        assert tracker.getJobIdsForGroup(), "nothing was computed in the user's Spark"


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
