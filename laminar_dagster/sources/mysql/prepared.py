"""Checks for XA transactions that are prepared when a source begins.

Their rows are in the log where they were prepared, before the place at which the source begins,
but not in its snapshot. If they are committed later, their rows would be missing.
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

# MySQL's error code when XA RECOVER is not allowed; the reason is in a warning.
_MAY_NOT_ASK: Final = 1401


def require_nothing_prepared(server: ServerLog, file: str, position: int) -> None:
    """Refuse to begin at a place of the log while a transaction is only prepared there.

    Which tables it changed is not known, so it may be any. Call this after the place and the views
    are fixed: a transaction prepared before is then still listed, or was committed since, which
    the log shows.

    Raises:
        SourceUnavailable: A transaction is prepared, or was until now: retry once it has ended.
        AuthFailed: The account may not run XA RECOVER.
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
