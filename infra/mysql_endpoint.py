"""Where a server of MySQL's protocol listens, and whether it is the one that we started."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pymysql

from infra.database import DatabaseEndpoint


@dataclass(frozen=True, slots=True)
class MysqlEndpoint(DatabaseEndpoint):
    """The server's address, in the ways its clients want it."""

    def connect(self, database: str | None = None) -> pymysql.Connection[pymysql.cursors.Cursor]:
        """Open a connection that commits every statement."""
        return pymysql.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            database=database or self.database,
            autocommit=True,
            connect_timeout=5,
            # To look for authorities takes longer than all the rest.
            ssl_disabled=True,
        )

    def environment(self) -> dict[str, str]:
        """Return the variables that MySQL's own client reads, and those it does not have."""
        return {
            "MYSQL_HOST": self.host,
            "MYSQL_TCP_PORT": str(self.port),
            "MYSQL_USER": self.user,
            "MYSQL_PWD": self.password,
            "MYSQL_DATABASE": self.database,
        }

    def is_ready(self) -> bool:
        """Ask the server, with the password, whose files it serves."""
        try:
            with closing(self.connect()) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT @@datadir")
                found = cursor.fetchone()
        except pymysql.Error:
            return False
        return found is not None and Path(found[0]) == self.data
