"""The options that every change source (CDC) has, under the same names."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Literal

from laminar_dagster.sources.option_values import (
    Known,
    count,
    duration,
    flag,
    names,
    one_of,
    or_never,
    size,
)

SnapshotMode = Literal["initial", "never"]
OnGap = Literal["fail", "snapshot"]
OnTruncate = Literal["fail", "dead_letter", "skip"]
OnSchemaChange = Literal["fail", "ignore"]
Before = Literal["optional", "required"]

# Merged into each change source's own table of options. The attributes:
#   tables            the captured tables, each with its schema or database before a dot
#   include_metadata  whether ``_op``, ``_table``, ``_position`` and ``_timestamp`` are columns
#   snapshot          whether to begin with a snapshot of the tables
#   snapshot_workers  how many connections copy the snapshot at once
#   snapshot_file     about how large a file of the snapshot may get
#   on_gap            when log was lost: stop the pipeline, or take a new snapshot
#   on_truncate       what to do when a table is truncated
#   on_schema_change  when a declared column is dropped: stop the pipeline, or read null
#   before            whether an update without the row's old values is a bad record
#   idle_timeout      how long without changes until the source no longer holds back the watermark
SHARED: Final[Known] = {
    "tables": ("tables", names),
    "include.metadata": ("include_metadata", flag),
    "snapshot": ("snapshot", one_of(SnapshotMode)),
    "snapshot.workers": ("snapshot_workers", count),
    "snapshot.file.bytes": ("snapshot_file", size),
    "on_gap": ("on_gap", one_of(OnGap)),
    "on_truncate": ("on_truncate", one_of(OnTruncate)),
    "on_schema_change": ("on_schema_change", one_of(OnSchemaChange)),
    "before": ("before", one_of(Before)),
    "idle.timeout": ("idle_timeout", or_never(duration, "never")),
}
DEFAULT_IDLE: Final = timedelta(seconds=30)
DEFAULT_WORKERS: Final = 2
DEFAULT_FILE_BYTES: Final = 32 * 1024 * 1024


def own_defaults(defaults: dict[str, str]) -> dict[str, str]:
    """The pipeline's default options, without those that mean nothing to a change source.

    ``on_gap: earliest`` is dropped: reading cannot resume in a log that lost its beginning. A new
    snapshot has to be requested at the source itself.
    """
    return {name: text for name, text in defaults.items() if name != "on_gap"}
