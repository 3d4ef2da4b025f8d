"""The options of a PostgreSQL change source (CDC)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from laminar_dagster.clients.postgres.options import SERVER_OPTIONS, server_of
from laminar_dagster.clients.postgres.server import Server
from laminar_dagster.config.max_ahead import MAX_AHEAD
from laminar_dagster.sources.changes.options import (
    DEFAULT_FILE_BYTES,
    DEFAULT_IDLE,
    DEFAULT_WORKERS,
    SHARED,
    Before,
    OnGap,
    OnSchemaChange,
    OnTruncate,
    SnapshotMode,
    own_defaults,
)
from laminar_dagster.sources.changes.server_options import ServerOptions
from laminar_dagster.sources.option_values import (
    Known,
    Mistakes,
    duration,
    or_never,
    read_values,
    size,
)
from laminar_dagster.sources.postgres.decoding import DecoderSettings

_SLOT: Final = re.compile(r"[a-z0-9_]{1,63}")
_OWN: Final[Known] = {
    "slot": ("slot", str),
    "publication": ("publication", str),
    "retain.wal": ("retain_wal", or_never(size, "none")),
    "heartbeat.wal": ("heartbeat_wal", size),
    "slot.timeout": ("slot_timeout", duration),
    "statement_timeout": ("statement_timeout", duration),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresCdcOptions:
    """How to read tables.

    Attributes:
        tables: The captured tables, with their schemas.
        slot: The replication slot, which only this source may use.
        publication: By default it has the slot's name. It must exist: the source does not create
            it.
        retain_wal: How much log the slot retains behind what the sinks have committed, so that
            epochs can be rerun; None for nothing.
        heartbeat_wal: After this much log without a change to the tables, an epoch without records
            advances the slot.
        slot_timeout: How long to wait for a slot that another session reads.
        key: The PRIMARY KEY that the source declares; empty if none.
    """

    server: Server
    tables: tuple[str, ...]
    slot: str
    publication: str
    include_metadata: bool = False
    snapshot: SnapshotMode = "initial"
    snapshot_workers: int = DEFAULT_WORKERS
    snapshot_file: int = DEFAULT_FILE_BYTES
    on_gap: OnGap = "fail"
    on_truncate: OnTruncate = "fail"
    on_schema_change: OnSchemaChange = "fail"
    before: Before = "optional"
    idle_timeout: timedelta | None = DEFAULT_IDLE
    retain_wal: int | None = 16 * 1024 * 1024
    heartbeat_wal: int = 64 * 1024 * 1024
    slot_timeout: timedelta = timedelta(seconds=60)
    statement_timeout: timedelta = timedelta(minutes=30)
    key: tuple[str, ...] = ()

    @property
    def decoding(self) -> DecoderSettings:
        """The options that concern the decoding of changes."""
        return DecoderSettings(self.tables, self.before, self.on_truncate, self.on_schema_change)


def read_options(
    options: Mapping[str, str], defaults: Mapping[str, str], where: str, project: Path
) -> PostgresCdcOptions:
    """The options of a ``WITH``.

    Args:
        options: All options of the ``WITH`` but ``connector``.
        defaults: Options from the pipeline, for those that the source does not set itself.
        where: The place of the statement, for errors.
        project: The folder that relative paths start from.

    Raises:
        InvalidConfig: Lists every mistake, each with the nearest known spelling. No value of an
            option of the server is shown, since it may be a secret.
    """
    mistakes = Mistakes(where)
    given = {**own_defaults(dict(defaults)), **options}
    values = read_values(given, {**_OWN, **SHARED}, mistakes, (MAX_AHEAD, *SERVER_OPTIONS))
    values["server"] = server_of(ServerOptions(options, mistakes), project)
    values["tables"] = _tables(values, mistakes)
    _check_names(values, mistakes)
    if values.get("snapshot_workers", 1) < 1:
        mistakes.add("`snapshot.workers` must be at least 1")
    if values.get("snapshot_file", 8192) < 8192:
        mistakes.add("`snapshot.file.bytes` must be at least 8192, a page of a table")
    mistakes.raise_if_any()
    return PostgresCdcOptions(**values)


def _tables(values: dict[str, Any], mistakes: Mistakes) -> tuple[str, ...]:
    given: tuple[str, ...] = values.get("tables", ())
    if not given:
        mistakes.add("option `tables` is missing", "for example tables = 'public.orders'")
    found = tuple(each if "." in each else f"public.{each}" for each in given)
    for each in found:
        if each.count(".") != 1 or each.startswith(".") or each.endswith("."):
            mistakes.add(f"`tables` names {each!r}, which is no table", "write schema.table")
    if len(set(found)) != len(found):
        mistakes.add("`tables` names a table twice")
    return found


def _check_names(values: dict[str, Any], mistakes: Mistakes) -> None:
    slot = values.get("slot", "")
    if not slot:
        mistakes.add("option `slot` is missing", "a name of its own, for example slot = 'laminar'")
    elif not _SLOT.fullmatch(slot):
        mistakes.add("`slot` must be of lower-case letters, digits and '_', at most 63")
    publication = values.setdefault("publication", slot)
    if slot and (not publication or '"' in publication or len(publication.encode()) > 63):
        mistakes.add("`publication` is no name of one")
