"""The options that every source of changes has, under the same names."""

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

# For a source's own table of options. The attributes are those of its record of options:
#   tables            which, with their schema or database before a dot
#   include_metadata  whether ``_op``, ``_table``, ``_position`` and ``_timestamp`` are columns
#   snapshot          whether to begin with what the tables hold
#   snapshot_workers  how many connections copy at once
#   snapshot_file     about how large a file of the copy may get
#   on_gap            whether a lost log stops the pipeline, or a new snapshot follows
#   on_truncate       what becomes of a table that is emptied at one stroke
#   on_schema_change  whether a declared column that is gone stops the pipeline, or is null
#   before            whether an update without the row before it is a bad record
#   idle_timeout      how long nothing may have come before the watermark is not held back
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
    """What a pipeline sets for its sources, as far as it means anything to a source of changes.

    ``on_gap: earliest`` does not: a log that lost its beginning cannot be gone on with. A new
    snapshot has to be asked for at the source itself.
    """
    return {name: text for name, text in defaults.items() if name != "on_gap"}
