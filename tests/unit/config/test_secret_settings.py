"""Settings of Spark that hold secrets: which they are, and where they may not stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.config.variables import secret_names, secret_variables
from tests.unit.config.folders import CONFIG, load, mistakes

JAVA = "spark.driver.extraJavaOptions"


def test_what_may_hold_a_secret_is_known_by_what_was_written() -> None:
    written = {
        "spark.sql.catalog.lake.url": "jdbc:postgresql://ann:pass@db/lake",
        "spark.hadoop.fs.s3a.secret.key": "literal",
        "spark.executor.memory": "${MEMORY}",
        "spark.app.name": "plain",
    }
    assert secret_names(written) == set(written) - {"spark.app.name"}


def test_variables_that_spark_has_no_need_of() -> None:
    options = [
        {"password": "${DB_PASSWORD}", "host": "${DB_HOST}"},
        {"url": "https://ann:${LAKE_KEY}@lake", "path": "${HOME}/in"},
        # Clients of S3 look for them by themselves, on executors too.
        {"secret_access_key": "${AWS_SECRET_ACCESS_KEY}", "sslpassword": "${PGPASSWORD}"},
    ]
    assert secret_variables(options) == {"DB_PASSWORD", "LAKE_KEY"}


def test_those_of_a_pipeline_are_those_of_its_tables_and_of_spark(tmp_path: Path) -> None:
    source = (
        "CREATE SOURCE TABLE t (a INT) WITH (connector = 'kafka', 'bootstrap.servers' = 'k:1',"
        " topic = 't', format = 'json', 'kafka.sasl.password' = '${KAFKA_PASSWORD}');"
    )
    config = f"{CONFIG}spark: {{spark.hadoop.fs.s3a.secret.key: '${{LAKE_KEY:-x}}'}}\n"
    files = {"pipeline.yml": config, "sources.sql": source}
    model = load(tmp_path, files, {"KAFKA_PASSWORD": "x"})
    assert model.secret_variables == {"KAFKA_PASSWORD", "LAKE_KEY"}


@pytest.mark.parametrize(
    "options",
    ["-Dx=1 -Djavax.net.ssl.keyStorePassword=${STORE}", "-Dstore.password=literal"],
)
def test_a_secret_on_a_command_line_is_refused(tmp_path: Path, options: str) -> None:
    files = {"pipeline.yml": f'{CONFIG}spark: {{{JAVA}: "{options}"}}\n'}
    (mistake,) = mistakes(tmp_path, files, {"STORE": "literal"})
    assert f"assword` in `{JAVA}` would be on a command line" in mistake
    assert "literal" not in mistake


def test_options_of_java_without_a_secret_are_taken(tmp_path: Path) -> None:
    options = "-Xss4m -Duser.timezone=UTC @/etc/pipeline/java.options"
    model = load(tmp_path, {"pipeline.yml": f'{CONFIG}spark: {{{JAVA}: "{options}"}}\n'})
    assert model.config.spark == {JAVA: options}
