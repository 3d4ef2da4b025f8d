"""Translates PostgreSQL's errors to a source's errors."""

from __future__ import annotations

import psycopg

from laminar_dagster.clients.postgres.failures import (
    describe,
    hide_secrets,
    is_passing,
    is_refusal,
    may_connect_later,
    one_line,
)
from laminar_dagster.clients.postgres.server import Server
from laminar_dagster.core.errors import (
    AuthFailed,
    InvalidConfig,
    LaminarError,
    RetentionExpired,
    ServiceFailed,
    SlotNotFound,
    SourceUnavailable,
)

# Another session reads the slot.
OBJECT_IN_USE = "55006"


def while_connecting(error: psycopg.Error, source_id: str, server: Server) -> LaminarError:
    """The error for a connection that failed."""
    text = f"{server.shown}: {hide_secrets(one_line(str(error)), server)}"
    if is_refusal(text):
        if "replication role" in text or "WAL sender" in text:
            text += "; ALTER ROLE … REPLICATION"
        return AuthFailed(_server_of(source_id), text)
    if may_connect_later(text):
        return SourceUnavailable(source_id, text)
    return ServiceFailed(_server_of(source_id), text)


def while_asking(error: psycopg.Error, source_id: str, server: Server, slot: str) -> LaminarError:
    """The error for a statement that failed."""
    reason = describe(error, server)
    match error.sqlstate:
        case "42501":
            hint = "the role needs REPLICATION, and SELECT on the tables"
            return AuthFailed(_server_of(source_id), f"{reason}; {hint}")
        case "55P03":
            who = "a table is locked by somebody else for longer than `slot.timeout`"
            return SourceUnavailable(source_id, f"{reason}; {who}: see pg_locks")
        case "42704" if slot in str(error) and "slot" in str(error):
            return SlotNotFound(source_id, slot)
        case "55000" if "slot" in str(error):
            return RetentionExpired(source_id, f"the log from slot {slot} on", reason)
        case "42704" | "42P01" | "42703" | "55000":
            return InvalidConfig(f"source `{source_id}`", reason, "see docs/postgres-cdc.md")
        case _ if is_passing(error):
            return SourceUnavailable(source_id, reason)
        case _:
            return ServiceFailed(_server_of(source_id), reason)


def _server_of(source_id: str) -> str:
    return f"the PostgreSQL server of source {source_id}"
