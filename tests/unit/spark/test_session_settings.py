"""What a session is made with, before there is one."""

from __future__ import annotations

import importlib.util

import pytest

from laminar_dagster.spark.session import WORKER_DAEMON, local_settings

DAEMON = "spark.python.daemon.module"


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
    assert settings["spark.sql.session.timeZone"] == "UTC"
