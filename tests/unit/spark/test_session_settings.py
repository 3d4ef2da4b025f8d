"""What a session is made with, before there is one, and what it computes epochs with."""

from __future__ import annotations

import importlib.util
import re

import pytest

from laminar_dagster.config.fingerprint import changes_results
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.spark.session_settings import (
    WORKER_DAEMON,
    epoch_settings,
    local_settings,
    to_forget,
)

DAEMON = "spark.python.daemon.module"
REDACTION = "spark.redaction.regex"
ZONE = "spark.sql.session.timeZone"
ANSI = "spark.sql.ansi.enabled"
PARTITIONS = "spark.sql.shuffle.partitions"
EXTENSIONS = "spark.sql.extensions"


@pytest.mark.parametrize("master", [{}, {"spark.master": "local"}, {"spark.master": "local[2]"}])
def test_workers_beside_the_package_are_forked_from_a_process_that_has_it(
    master: dict[str, str],
) -> None:
    assert local_settings(master)[DAEMON] == WORKER_DAEMON
    assert importlib.util.find_spec(WORKER_DAEMON)


def test_on_other_machines_workers_are_spark_s_own() -> None:
    assert DAEMON not in local_settings({"spark.master": "spark://head:7077"})


def test_who_names_a_daemon_has_it() -> None:
    assert local_settings({DAEMON: "pyspark.daemon"})[DAEMON] == "pyspark.daemon"


def test_what_is_given_goes_over_the_defaults() -> None:
    settings = local_settings({"spark.master": "local[7]"})
    assert settings["spark.master"] == "local[7]"
    assert settings[ZONE] == "UTC"


def test_ports_of_a_spark_on_this_machine_ask_for_a_secret() -> None:
    assert local_settings({})["spark.authenticate"] == "true"
    assert local_settings({"spark.authenticate": "false"})["spark.authenticate"] == "false"
    # Executors elsewhere would have to be told it first.
    assert "spark.authenticate" not in local_settings({"spark.master": "spark://head:7077"})


@pytest.mark.parametrize(
    ("wanted", "also"), [({}, "a.password"), ({REDACTION: "(?i)colour"}, "my.Colour")]
)
def test_secrets_are_hidden_by_spark_too(wanted: dict[str, str], also: str) -> None:
    names = ["spark.sql.catalog.lake.url", "spark.hadoop.fs.azure.account.key.x"]
    regex = re.compile(local_settings(wanted, names)[REDACTION])
    # Hadoop knows a setting by a shorter name.
    for name in (*names, "fs.azure.account.key.x", also):
        assert regex.search(name)
    for name in ("spark.sql.catalog.lake.url2", "spark-sql-catalog-lake-url", "spark.app.name"):
        assert not regex.search(name)
    assert REDACTION not in local_settings({})


def test_a_session_decides_nothing() -> None:
    found = {ZONE: "Asia/Kolkata", ANSI: "false", "spark.app.name": "x", PARTITIONS: "7"}
    wanted = epoch_settings(found, {})
    assert wanted[ZONE] == "UTC"
    assert to_forget(found, wanted) == [ANSI]
    assert wanted[PARTITIONS] == "7", "how fast it is, is a session's own"


def test_a_pipeline_decides_all() -> None:
    found = {ZONE: "Asia/Kolkata", PARTITIONS: "7"}
    settings = {ZONE: "Europe/Paris", ANSI: "false", PARTITIONS: "3", "spark.executor.cores": "2"}
    wanted = epoch_settings(found, settings)
    assert settings.items() - wanted.items() == {("spark.executor.cores", "2")}
    assert to_forget(found, wanted) == []


def test_what_a_session_may_have_of_its_own_is_in_no_fingerprint() -> None:
    """But for catalogs: which there are is part of a pipeline's text, and moves no answer."""
    mine = {f"spark.sql.{name}": "x" for name in ("adaptive.enabled", "ui.x", "warehouse.dir")}
    kept = epoch_settings({**mine, "spark.sql.ansi.enforceReservedKeywords": "x"}, {})
    assert [key for key in mine if key not in kept or changes_results(key)] == []
    assert "spark.sql.ansi.enforceReservedKeywords" not in kept


@pytest.mark.parametrize(
    ("found", "settings"),
    [
        ({EXTENSIONS: "a.B"}, {}),
        ({EXTENSIONS: "a.B"}, {EXTENSIONS: "a.C"}),
        ({}, {EXTENSIONS: "a.B"}),
    ],
)
def test_what_cannot_be_set_any_more_is_refused_by_name(
    found: dict[str, str], settings: dict[str, str]
) -> None:
    with pytest.raises(InvalidConfig, match=r"spark\.sql\.extensions.*pipeline\.yml"):
        epoch_settings(found, settings)
    assert epoch_settings({EXTENSIONS: "a.B"}, {EXTENSIONS: "a.B"})[EXTENSIONS] == "a.B"
