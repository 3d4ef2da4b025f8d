"""The Spark session as a resource: what Dagster may know of its settings."""

from __future__ import annotations

import os
import signal
import threading
from types import SimpleNamespace

import dagster as dg
import pytest

from laminar_dagster.orchestration.spark_resource import interruptibly, spark_resource

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.hadoop.fs.s3a.secret.key": "literal-s3cret",
    "spark.remote": "sc://host/;token=t0ken",
}
WRITTEN = {
    "spark.sql.shuffle.partitions": "2",
    "spark.hadoop.fs.s3a.secret.key": "literal-s3cret",
    "spark.remote": "${REMOTE}",
}


def test_dagster_gets_to_know_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[dict[str, str]] = []

    def remember(settings: dict[str, str], **others: object) -> SimpleNamespace:
        opened.append(dict(settings))
        assert others == {"written": WRITTEN, "withheld": {"REMOTE"}, "is_brief": True}
        return SimpleNamespace(sparkContext="a context")

    monkeypatch.setattr("laminar_dagster.spark.session.open_session", remember)
    resource = spark_resource(SETTINGS, WRITTEN, {"REMOTE"})
    assert resource.spark_config == {
        "spark.sql.shuffle.partitions": "2",
        "spark.hadoop.fs.s3a.secret.key": "***",
        "spark.remote": "***",
    }
    assert opened == [], "nothing starts before it is needed"
    assert resource.spark_session.sparkContext == "a context"
    # dagster-pyspark's own way to the context would start Spark with what Dagster is shown.
    assert resource.spark_context == "a context"
    assert opened == [SETTINGS, SETTINGS]


def test_a_run_configured_otherwise_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[dict[str, str]] = []

    def remember(settings: dict[str, str], **_others: object) -> str:
        opened.append(settings)
        return "a session"

    monkeypatch.setattr("laminar_dagster.spark.session.open_session", remember)

    @dg.op(required_resource_keys={"spark"})
    def ask(context) -> None:  # type: ignore[no-untyped-def]
        _ = context.resources.spark.spark_session

    @dg.job(resource_defs={"spark": spark_resource(SETTINGS, WRITTEN)})
    def job() -> None:
        ask()

    assert job.execute_in_process().success
    assert opened == [SETTINGS]


def test_work_gives_its_result_or_its_error() -> None:
    assert interruptibly(lambda: threading.current_thread().name) == "spark-work"
    with pytest.raises(ZeroDivisionError):
        interruptibly(lambda: 1 // 0)


def test_what_a_terminated_run_has_spark_compute_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cancelled, waits = threading.Event(), threading.Event()
    monkeypatch.setattr("laminar_dagster.spark.session.stop_computing", cancelled.set)

    def compute() -> None:
        waits.set()
        assert cancelled.wait(30)

    def terminate() -> None:
        waits.wait(30)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    threading.Thread(target=terminate, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            interruptibly(compute)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert cancelled.is_set()
