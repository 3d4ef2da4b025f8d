"""A user's own ``PySparkResource``: used, left as it is, and without a say in the answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from infra.spark_connect import SparkConnectEndpoint
from tests.integration.spark.project import Project, Record

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).parents[3]
PROGRAM: Final = "tests.integration.dagster.foreign_spark"
ZONES: Final = ("America/New_York", "Asia/Kolkata", "Pacific/Auckland")
# Midnight in UTC, on a day on which two of the zones are on summer time.
AT: Final = datetime(2026, 1, 1, tzinfo=UTC)
VIEW: Final = """
SELECT PAGE AS page,
       hour(at) AS hour,
       CAST(date_trunc('DAY', at) AS STRING) AS day,
       CAST(at AS STRING) AS text,
       CAST(to_timestamp('2026-01-01 00:00:00') = at AS INT) AS same,
       CAST(at >= TIMESTAMP '2026-01-01 00:00:00' AS INT) AS since,
       unix_timestamp(to_timestamp('01/07/2026 12', 'dd/MM/yyyy HH')) AS summer,
       CAST(try_cast('2026-02-30' AS DATE) IS NULL AS INT) AS no_day,
       CAST(CAST('0.1234567890123456789' AS DECIMAL(38, 19)) * CAST(price AS DECIMAL(38, 19))
            AS STRING) AS product,
       length('a\\tb') AS letters,
       upper(page) AS shouted
FROM clicks
"""
SINK: Final = """
CREATE SINK times FROM times WITH (connector = 'sqlite', path = 'out.db', table = 'times');
"""
ANSWER: Final = (
    *("p1", 0, "2026-01-01 00:00:00", "2026-01-01 00:00:00", 1, 1, 1782907200, 1),
    *("0.246914", 3, "P1"),
)


def hostile(zone: str) -> dict[str, str]:
    """What a session may have that means something else by the same query."""
    return {
        "spark.sql.session.timeZone": zone,
        "spark.sql.ansi.enabled": "false",
        "spark.sql.caseSensitive": "true",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        "spark.sql.legacy.timeParserPolicy": "LEGACY",
        "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
        "spark.sql.decimalOperations.allowPrecisionLoss": "false",
        "spark.sql.parser.escapedStringLiterals": "true",
        "spark.sql.storeAssignmentPolicy": "LEGACY",
        "spark.sql.datetime.java8API.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
        "spark.sql.execution.arrow.useLargeVarTypes": "true",
    }


def run(project: Path, settings: dict[str, str], environment: dict[str, str]) -> None:
    # Of a server that somebody keeps running between commands.
    inherited = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    done = subprocess.run(
        [sys.executable, "-m", PROGRAM, str(project), json.dumps(settings)],
        env={**inherited, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-8000:]


@pytest.fixture
def times(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.write(times=VIEW)
    (tmp_path / "dbt_like_configs" / "clicks" / "sinks.sql").write_text(SINK)
    for name in ("per_minute", "large"):
        (tmp_path / "dbt_like_configs" / "clicks" / "models" / f"{name}.sql").unlink()
    project.append("a.ndjson", [Record("p1", 0.5, 200, 1, AT)])
    return project


@pytest.mark.parametrize("zone", ZONES)
def test_on_a_user_s_spark_in_any_zone(zone: str, times: Project) -> None:
    settings = {
        **hostile(zone),
        "spark.master": "local[2]",
        "spark.app.name": "a user's own",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": f"-Duser.timezone={zone}",
        "spark.executorEnv.TZ": zone,
    }
    run(times.root, settings, {"TZ": zone})
    assert times.query("SELECT * FROM times") == [ANSWER]


@pytest.mark.service("spark_connect")
@pytest.mark.parametrize("zone", ZONES)
def test_on_a_user_s_session_of_a_server(
    zone: str, times: Project, spark_connect: SparkConnectEndpoint
) -> None:
    settings = {**hostile(zone), "spark.remote": spark_connect.url}
    run(times.root, settings, {"TZ": zone, **spark_connect.environment()})
    assert times.query("SELECT * FROM times") == [ANSWER]
