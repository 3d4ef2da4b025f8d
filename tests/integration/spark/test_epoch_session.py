"""The session that epochs are computed in, derived from one that somebody has made his own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from laminar_dagster.config.fingerprint import changes_results
from laminar_dagster.core.errors import InvalidConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

# What a session keeps. Catalogs are its own too, and there are none to flip.
KEPT = ("spark.sql.adaptive.", "spark.sql.artifact.", "spark.sql.codegen.", "spark.sql.ui.")


def settings_of(spark: SparkSession) -> Iterator[tuple[str, str]]:
    """Every setting of Spark SQL that can be changed, also those that Spark keeps to itself."""
    module: Any = getattr(spark._jvm.org.apache.spark.sql.internal, "SQLConf$")  # type: ignore[union-attr]
    entries = module.__getattr__("MODULE$").getConfigEntries().iterator()
    while entries.hasNext():
        key = entries.next().key()
        if key.startswith("spark.sql.") and spark.conf.isModifiable(key):
            with suppress(Exception):
                yield key, str(spark.conf.get(key))


def test_of_what_decides_answers_nothing_is_left(spark: SparkSession) -> None:
    """Every switch of the session is turned; it computes as one that nobody has touched."""
    from laminar_dagster.spark.session import epoch_session

    usual = dict(settings_of(epoch_session(spark.newSession(), {})))
    foreign = spark.newSession()
    turned: dict[str, str] = {}
    for key, value in settings_of(foreign):
        if value in {"true", "false"}:
            turned[key] = "false" if value == "true" else "true"
            # Some may only be what they are.
            with suppress(Exception):
                foreign.conf.set(key, turned[key])
    foreign.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    assert len(turned) > 300
    found = dict(settings_of(epoch_session(foreign, {})))
    different = {key for key in usual if found[key] != usual[key]}
    assert [key for key in different if not key.startswith(KEPT)] == []
    assert different, "a session keeps what is its own"
    assert foreign.conf.get("spark.sql.session.timeZone") == "Asia/Kolkata"


def test_a_function_of_the_session_is_not_one_of_queries(spark: SparkSession) -> None:
    from laminar_dagster.spark.session import epoch_session

    foreign = spark.newSession()
    foreign.sql("CREATE TEMPORARY FUNCTION shouted(x STRING) RETURNS STRING RETURN upper(x)")
    foreign.range(1).createOrReplaceTempView("mine")
    with pytest.raises(Exception, match="UNRESOLVED_ROUTINE"):
        epoch_session(foreign, {}).sql("SELECT shouted('a')")
    assert foreign.sql("SELECT shouted('a') FROM mine").collect() == [("A",)]


def test_one_session_for_one_pipeline(spark: SparkSession) -> None:
    from laminar_dagster.spark.session import epoch_session

    foreign = spark.newSession()
    first = epoch_session(foreign, {"spark.sql.ansi.enabled": "false"})
    assert epoch_session(foreign, {"spark.sql.ansi.enabled": "false"}) is first
    assert epoch_session(foreign, {}) is not first
    assert first.conf.get("spark.sql.ansi.enabled") == "false"
    assert epoch_session(foreign, {}).conf.get("spark.sql.ansi.enabled") == "true"
    assert epoch_session(first, {}).conf.get("spark.sql.ansi.enabled") == "true"


def test_what_cannot_be_changed_is_refused(spark: SparkSession) -> None:
    from laminar_dagster.spark.session import epoch_session

    with pytest.raises(InvalidConfig, match=r"spark\.sql\.extensions"):
        epoch_session(spark.newSession(), {"spark.sql.extensions": "io.delta.sql.Extension"})


def test_a_type_is_that_of_the_pipeline(spark: SparkSession) -> None:
    """``fromDDL`` asks whatever session is active."""
    from pyspark.sql.types import DataType

    from laminar_dagster.spark.session import active, epoch_session

    foreign = spark.newSession()
    foreign.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    with active(foreign):
        assert DataType.fromDDL("TIMESTAMP").typeName() == "timestamp_ntz"
        with active(epoch_session(foreign, {})):
            assert DataType.fromDDL("TIMESTAMP").typeName() == "timestamp"
        assert DataType.fromDDL("TIMESTAMP").typeName() == "timestamp_ntz"


def test_what_decides_is_in_the_fingerprint() -> None:
    """The settings of the hostile sessions, as a pipeline may choose them."""
    from tests.integration.dagster.test_foreign_spark import hostile

    tuning = [key for key in hostile("Asia/Kolkata") if not changes_results(key)]
    # Not of these: how many rows come to a worker at once, and how wide their offsets are.
    assert all(key.startswith("spark.sql.execution.arrow.") for key in tuning)
