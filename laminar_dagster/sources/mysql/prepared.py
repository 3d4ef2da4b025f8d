"""Transactions that were prepared (XA) when a source begins, and are committed later or never.

Their rows stand in the log where they were prepared, before the place at which the source begins,
and are not in its copy. Once committed, they would be missing.
"""

from __future__ import annotations

from typing import Final

import pymysql

from laminar_dagster.clients.mysql.errors import code_of
from laminar_dagster.clients.mysql.session import Session
from laminar_dagster.core.errors import AuthFailed, DecodeFailed, SourceUnavailable
from laminar_dagster.sources.mysql.events import BROKEN, why_broken
from laminar_dagster.sources.mysql.frames import statement_of
from laminar_dagster.sources.mysql.server_log import ServerLog
from laminar_dagster.sources.mysql.statements import Effect, effect_of

# MySQL's answer to somebody who may not ask; the reason is in a warning.
_MAY_NOT_ASK: Final = 1401


def require_nothing_prepared(server: ServerLog, file: str, position: int) -> None:
    """Refuse to begin at a place of the log while a transaction is only prepared there.

    Nobody knows which tables it changed, so it may be any. To be called when the place and the
    views are there: what was prepared before is listed, or was committed since, which the log
    tells.

    Raises:
        SourceUnavailable: One is, or was: once it is committed or rolled back, all is well.
        AuthFailed: The account may not ask.
    """
    with server.session() as session:
        count = _prepared(server, session)
    if count:
        text = f"it has {count} prepared transaction(s), whose changes could be lost"
        hint = "commit them or roll them back; XA RECOVER lists them"
        raise SourceUnavailable(server.source_id, f"{text}; {hint}")
    try:
        with server.events(file, position) as found:
            for event in found:
                statement = statement_of(event)
                if statement and effect_of(statement, ())[0] is Effect.COMPLETES:
                    text = "a prepared transaction (XA) was committed while the copy was begun"
                    raise SourceUnavailable(server.source_id, text)
    except BROKEN as error:
        place = f"{file}:{position}, or behind it"
        raise DecodeFailed(server.source_id, place, why_broken(error)) from error


def _prepared(server: ServerLog, session: Session) -> int:
    try:
        return len(session.run("XA RECOVER").rows)
    except pymysql.Error as error:
        if code_of(error) != _MAY_NOT_ASK:
            raise
        text = "the account may not ask which transactions are prepared (XA)"
        hint = "GRANT XA_RECOVER_ADMIN ON *.* to it"
        place = f"the MySQL server of source {server.source_id}"
        raise AuthFailed(place, f"{server.server.shown}: {text}; {hint}") from None
