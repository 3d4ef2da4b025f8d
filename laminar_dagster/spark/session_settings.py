"""The settings that a session of Spark computes epochs with, whoever opened it.

A setting of Spark SQL decides answers unless it is known not to. One that decides is the
pipeline's, ours, or Spark's own default, never what a session happens to have: what a pipeline
computes is told by its fingerprint, and a fingerprint knows ``pipeline.yml`` alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from typing import Final

from laminar_dagster.core.errors import InvalidConfig

# By name: it is a program of its own.
WORKER_DAEMON: Final = "laminar_dagster.spark.worker_daemon"

_SQL: Final = "spark.sql."

# What every session computes with, unless `pipeline.yml` says otherwise.
_DECIDED: Final[Mapping[str, str]] = {
    # One moment, one spelling, whatever the machine's zone.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
}
# What changes speed alone, where a session has nothing of its own.
_TUNED: Final[Mapping[str, str]] = {
    # An epoch is small: re-planning it between stages takes longer than it saves.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
}
# Of these a session keeps its own: they change no answer. All others decide.
_TUNING: Final = (
    "spark.sql.adaptive.",
    "spark.sql.artifact.",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.broadcastTimeout",
    "spark.sql.catalog.",
    "spark.sql.codegen.",
    "spark.sql.redaction.",
    "spark.sql.shuffle.partitions",
    "spark.sql.ui.",
    "spark.sql.warehouse.",
)
# Decide, and are fixed when Spark starts: a session has them as the pipeline wants, or is refused.
_FIXED: Final = ("spark.sql.cache.serializer", "spark.sql.extensions")

_LOCAL: Final[Mapping[str, str]] = {
    "spark.master": "local[*]",
    "spark.app.name": "laminar",
    # A resident process has no use for a web server on a port of its own.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_REDACTION: Final = "spark.redaction.regex"
_SPARKS_REDACTION: Final = "(?i)secret|password|token|access[.]?key"
_HADOOP: Final = "spark.hadoop."


def local_settings(settings: Mapping[str, str], secret: Collection[str] = ()) -> Mapping[str, str]:
    """All that a Spark which this process starts is started with.

    Args:
        settings: The pipeline's, over the defaults.
        secret: The names of those that nobody may see.
    """
    chosen = {**_LOCAL, **_DECIDED, **_TUNED, **settings}
    if chosen["spark.master"].startswith("local"):
        # Elsewhere the package may come to an executor with its first task, after its daemon began.
        chosen.setdefault("spark.python.daemon.module", WORKER_DAEMON)
        # Spark's ports answer whoever knows a secret, which Spark makes by itself here. Elsewhere
        # everybody who takes part has to be told it.
        chosen.setdefault("spark.authenticate", "true")
    if secret:
        chosen[_REDACTION] = _redaction(chosen.get(_REDACTION), secret)
    return chosen


def _redaction(wanted: str | None, secret: Collection[str]) -> str:
    """What Spark hides in its event log and pages: by default it looks for a few words in names."""
    names = {name for each in secret for name in (each, each.removeprefix(_HADOOP))}
    hidden = "|".join(re.escape(name) for name in sorted(names))
    return f"{wanted or _SPARKS_REDACTION}|^(?:{hidden})$"


def epoch_settings(found: Mapping[str, str], settings: Mapping[str, str]) -> Mapping[str, str]:
    """The settings of Spark SQL with which a session computes epochs; all others are Spark's.

    Args:
        found: What the session has set.
        settings: The pipeline's.

    Raises:
        InvalidConfig: One that decides answers was fixed when the session's Spark started.
    """
    for key in _FIXED:
        has, wants = found.get(key), settings.get(key)
        if has != wants:
            problem = (
                f"its Spark was started with `{key}` {_told(has)}, which decides what queries mean,"
                f" cannot be changed later, and is {_told(wants)} in pipeline.yml"
            )
            hint = f"give `{key}` the same value under `spark` in pipeline.yml and in the session"
            raise InvalidConfig("the Spark session", problem, hint)
    kept = {key: value for key, value in found.items() if key.startswith(_TUNING)}
    own = {key: value for key, value in settings.items() if key.startswith(_SQL)}
    return {**_TUNED, **kept, **_DECIDED, **own}


def to_forget(found: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """What a session has set and shall not have."""
    return sorted(key for key in found if key.startswith(_SQL) and key not in wanted)


def _told(value: str | None) -> str:
    return "not set" if value is None else repr(value)
