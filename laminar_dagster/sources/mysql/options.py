"""The options of a MySQL or MariaDB change source (CDC)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from laminar_dagster.clients.mysql.options import SERVER_OPTIONS, server_of
from laminar_dagster.clients.mysql.server import Server
from laminar_dagster.config.max_ahead import MAX_AHEAD
from laminar_dagster.sources.changes.options import (
    DEFAULT_FILE_BYTES,
    DEFAULT_IDLE,
    DEFAULT_WORKERS,
    SHARED,
    OnGap,
    OnTruncate,
    SnapshotMode,
    own_defaults,
)
from laminar_dagster.sources.changes.server_options import ServerOptions
from laminar_dagster.sources.mysql.statements import TableName
from laminar_dagster.sources.option_values import Known, Mistakes, read_values, size

# The log must have whole rows, so an update always has its old row; and after a column is dropped,
# earlier rows could not be retracted with the values they were emitted with.
_UNNEEDED: Final = frozenset({"before", "on_schema_change"})
_KNOWN: Final[Known] = {
    **{name: each for name, each in SHARED.items() if name not in _UNNEEDED},
    "scan.bytes": ("scan_bytes", size),
    "quiet.bytes": ("quiet_bytes", size),
}
_LEAST_FILE: Final = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class MysqlCdcOptions:
    """How to read tables.

    Attributes:
        tables: The captured tables, each with its database.
        scan_bytes: How much of the log a plan scans, and so an epoch reads, at most; a transaction
            that goes beyond is read to its end.
        quiet_bytes: Less log than this, without a change to the tables, is worth no epoch.
        key: The PRIMARY KEY that the source declares; empty if none.
    """

    server: Server
    tables: tuple[TableName, ...]
    include_metadata: bool = False
    snapshot: SnapshotMode = "initial"
    snapshot_workers: int = DEFAULT_WORKERS
    snapshot_file: int = DEFAULT_FILE_BYTES
    on_gap: OnGap = "fail"
    on_truncate: OnTruncate = "fail"
    idle_timeout: timedelta | None = DEFAULT_IDLE
    scan_bytes: int = 128 * 1024 * 1024
    quiet_bytes: int = 16 * 1024 * 1024
    key: tuple[str, ...] = ()


def read_options(
    options: Mapping[str, str], defaults: Mapping[str, str], where: str, project: Path
) -> MysqlCdcOptions:
    """The options of a ``WITH``.

    Args:
        options: All options of the ``WITH``.
        defaults: Options from the pipeline, for those that the source does not set itself.
        where: The place of the statement, for errors.
        project: The folder that relative paths start from.

    Raises:
        InvalidConfig: Lists every mistake, each with the nearest known spelling. No value of an
            option of the server is shown, since it may be a secret.
    """
    mistakes = Mistakes(where)
    given = {**own_defaults(dict(defaults)), **options}
    values = read_values(given, _KNOWN, mistakes, ("connector", MAX_AHEAD, *SERVER_OPTIONS))
    server = server_of(ServerOptions(options, mistakes), project)
    values["server"] = server
    values["tables"] = _tables(values, server.database, mistakes)
    if values.get("snapshot_workers", 1) < 1:
        mistakes.add("`snapshot.workers` must be at least 1")
    if values.get("snapshot_file", _LEAST_FILE) < _LEAST_FILE:
        mistakes.add(f"`snapshot.file.bytes` must be at least {_LEAST_FILE}")
    mistakes.raise_if_any()
    return MysqlCdcOptions(**values)


def _tables(values: dict[str, Any], database: str, mistakes: Mistakes) -> tuple[TableName, ...]:
    given: tuple[str, ...] = values.get("tables", ())
    if not given:
        mistakes.add("option `tables` is missing", "for example tables = 'orders'")
    found: list[TableName] = []
    for each in given:
        schema, dot, name = each.rpartition(".")
        if not name or "." in schema or bool(dot) != bool(schema):
            mistakes.add(f"`tables` names {each!r}, which is no table", "write database.table")
        found.append((schema or database, name))
    if len(set(found)) != len(found):
        mistakes.add("`tables` names a table twice")
    return tuple(found)
