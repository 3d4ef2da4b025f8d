"""The settings that a Spark session computes epochs with, whoever opened it.

Any setting of Spark SQL is taken to affect results unless known not to. Such a setting comes from
the pipeline, from here, or is Spark's default, never what a given session happens to have: the
fingerprint identifies what a pipeline computes, and it covers ``pipeline.yml`` only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from typing import Final

from laminar_dagster.core.errors import InvalidConfig

# By name: Spark starts this module as a program; it is never imported here.
WORKER_DAEMON: Final = "laminar_dagster.spark.worker_daemon"

_SQL: Final = "spark.sql."

# What every session computes with, unless `pipeline.yml` says otherwise.
_DECIDED: Final[Mapping[str, str]] = {
    # Timestamps must be spelled the same whatever the machine's time zone.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
}
# Defaults that affect only speed; a session's own value takes precedence.
_TUNED: Final[Mapping[str, str]] = {
    # An epoch is small: re-planning it between stages takes longer than it saves.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
}
# Settings that a session keeps, because they affect no results. All others may.
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
# Affect results, and cannot change once Spark runs: a session with other values is refused.
_FIXED: Final = ("spark.sql.cache.serializer", "spark.sql.extensions")

_LOCAL: Final[Mapping[str, str]] = {
    "spark.master": "local[*]",
    "spark.app.name": "laminar",
    # A resident process needs no web UI: do not open a port for it.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_REDACTION: Final = "spark.redaction.regex"
_SPARKS_REDACTION: Final = "(?i)secret|password|token|access[.]?key"
_HADOOP: Final = "spark.hadoop."


def local_settings(settings: Mapping[str, str], secret: Collection[str] = ()) -> Mapping[str, str]:
    """All settings for a Spark that this process starts.

    Args:
        settings: The pipeline's settings; they override the defaults.
        secret: The names of the settings to redact.
    """
    chosen = {**_LOCAL, **_DECIDED, **_TUNED, **settings}
    if chosen["spark.master"].startswith("local"):
        # On a cluster the package may reach an executor with its first task: too late for a daemon.
        chosen.setdefault("spark.python.daemon.module", WORKER_DAEMON)
        # Protects Spark's ports with a secret. Locally Spark generates it; on a cluster it would
        # have to be given to every participant.
        chosen.setdefault("spark.authenticate", "true")
    if secret:
        chosen[_REDACTION] = _redaction(chosen.get(_REDACTION), secret)
    return chosen


def _redaction(wanted: str | None, secret: Collection[str]) -> str:
    """The regex of setting names that Spark redacts in event log and UI, with ours added."""
    names = {name for each in secret for name in (each, each.removeprefix(_HADOOP))}
    hidden = "|".join(re.escape(name) for name in sorted(names))
    return f"{wanted or _SPARKS_REDACTION}|^(?:{hidden})$"


def epoch_settings(found: Mapping[str, str], settings: Mapping[str, str]) -> Mapping[str, str]:
    """The Spark SQL settings with which a session computes epochs; all others keep the default.

    Args:
        found: The session's settings.
        settings: The pipeline's settings.

    Raises:
        InvalidConfig: A setting that affects results differs, and was fixed when Spark started.
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
    """The SQL settings that a session has and that must be unset."""
    return sorted(key for key in found if key.startswith(_SQL) and key not in wanted)


def _told(value: str | None) -> str:
    return "not set" if value is None else repr(value)
