"""Queries a server's variables and tables, and checks whether its log can be read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from laminar_dagster.clients.mysql.session import Session
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.sources.changes.planned import no_such_key
from laminar_dagster.sources.mysql.column_types import YEAR, Family, MysqlType
from laminar_dagster.sources.mysql.statements import TableName
from laminar_dagster.sources.mysql.table_map import LoggedColumn, LoggedTable

_VARIABLES: Final = (
    "version",
    "log_bin",
    "binlog_format",
    "binlog_checksum",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_row_value_options",
    "binlog_transaction_compression",
    "log_bin_compress",
    "server_id",
    "server_uuid",
    "lower_case_table_names",
    "gtid_mode",
    "gtid_executed",
    "gtid_binlog_pos",
)
# Variables with their required values, and how to set them.
_REQUIRED: Final = (
    ("log_bin", "ON", "the server keeps no binary log; start it with --log-bin"),
    ("binlog_format", "ROW", "SET GLOBAL binlog_format = 'ROW', then connect the writers anew"),
    ("binlog_row_image", "FULL", "SET GLOBAL binlog_row_image = 'FULL'"),
    ("binlog_row_metadata", "FULL", "SET GLOBAL binlog_row_metadata = 'FULL'"),
    ("binlog_row_value_options", "", "SET GLOBAL binlog_row_value_options = ''"),
    ("binlog_transaction_compression", "OFF", "SET GLOBAL binlog_transaction_compression = OFF"),
    ("log_bin_compress", "OFF", "SET GLOBAL log_bin_compress = OFF"),
)
# Variables that old servers, or the other kind of server, do not have.
_OPTIONAL: Final = frozenset(
    {"binlog_row_value_options", "binlog_transaction_compression", "log_bin_compress"}
)
_ENGINE: Final = """
    SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE FROM information_schema.TABLES
    WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
"""
_COLUMNS: Final = """
    SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_SET_NAME, CHARACTER_OCTET_LENGTH,
           NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION
    FROM information_schema.COLUMNS
    WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_KEY: Final = """
    SELECT COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE
    WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND CONSTRAINT_NAME = 'PRIMARY'
    ORDER BY ORDINAL_POSITION
"""
_UNIQUE: Final = """
    SELECT INDEX_NAME, COLUMN_NAME, NULLABLE FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0
"""
_CHARSETS: Final = "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS"
# MariaDB has collations of several character sets, with a number of their own for each.
_MARIADB_CHARSETS: Final = """
    SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY
"""
_BITS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_TEXTS: Final = frozenset(
    {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "nchar", "nvarchar"}
)
_BLOBS: Final = frozenset({"varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_PLAIN: Final[dict[str, Family]] = {
    "float": "float",
    "double": "double",
    "date": "date",
    "json": "json",
}
_TIMED: Final[dict[str, Family]] = {
    "time": "time",
    "datetime": "datetime",
    "timestamp": "timestamp",
}
_LABEL: Final = re.compile(r"'((?:[^']|'')*)'")


@dataclass(frozen=True, slots=True)
class Facts:
    """The variables of a server that say what it is, and how it writes its log."""

    variables: dict[str, str]

    @property
    def is_mariadb(self) -> bool:
        """Whether it is MariaDB rather than MySQL."""
        return "mariadb" in self.variables.get("version", "").lower()

    @property
    def identity(self) -> str:
        """What identifies the server: MySQL's UUID. MariaDB has only a configured number."""
        uuid = self.variables.get("server_uuid", "")
        return uuid or f"server_id {self.variables.get('server_id', '')}"

    @property
    def ignores_case(self) -> bool:
        """Whether table names are case-insensitive. The log then has them in lower case."""
        return self.variables.get("lower_case_table_names", "0") != "0"

    @property
    def gtids(self) -> str | None:
        """The GTIDs up to the end of the log; None where the server writes none."""
        if self.is_mariadb:
            return self.variables.get("gtid_binlog_pos")
        is_on = self.variables.get("gtid_mode", "OFF").upper().startswith("ON")
        text = self.variables.get("gtid_executed", "")
        return "".join(text.split()) if is_on else None

    def problems(self) -> list[tuple[str, str]]:
        """The settings that prevent its log from being read, each with the remedy."""
        found: list[tuple[str, str]] = []
        for name, wanted, remedy in _REQUIRED:
            value = self.variables.get(name)
            if value is None and name in _OPTIONAL:
                continue
            if (value or "").upper() != wanted:
                shown = value if value is not None else "unknown to it: it is too old"
                found.append((f"the server's `{name}` is {shown or 'empty'}", remedy))
        return found


def look_up(session: Session) -> Facts:
    """Query the variables of a server."""
    marks = ", ".join(["%s"] * len(_VARIABLES))
    rows = session.run(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({marks})", _VARIABLES).rows
    return Facts({str(name).lower(): str(value) for name, value in rows})


def require_ready(facts: Facts, where: str) -> None:
    """Refuse a server whose log cannot be read.

    Raises:
        InvalidConfig: Lists the settings to change.
    """
    problems = facts.problems()
    if problems:
        texts = [problem for problem, _ in problems]
        raise InvalidConfig(where, "; ".join(texts), "; ".join(hint for _, hint in problems))


def charsets_of(session: Session, facts: Facts) -> dict[int, str]:
    """The character set of each collation, by the collation's number."""
    rows = session.run(_MARIADB_CHARSETS if facts.is_mariadb else _CHARSETS).rows
    return {int(number): str(charset) for number, charset in rows if number is not None}


def describe_tables(
    session: Session, tables: Iterable[TableName], where: str
) -> dict[TableName, LoggedTable]:
    """Describe tables as they are now.

    Raises:
        InvalidConfig: A table is missing, or not of InnoDB; or two names are the same table.
    """
    found: dict[TableName, LoggedTable] = {}
    declared: dict[tuple[str, str], str] = {}
    for schema, name in tables:
        kind = session.run(_ENGINE, [schema, name]).rows
        if not kind:
            hint = "or the account may not see it: GRANT SELECT on it"
            raise InvalidConfig(where, f"there is no table {schema}.{name}", hint)
        (own_schema, own_name, engine), shown = map(str, kind[0]), f"{schema}.{name}"
        # The server may treat names as equal that differ in case only.
        first = declared.setdefault((own_schema, own_name), shown)
        if first != shown:
            hint = "declare it once: its changes would be read twice"
            raise InvalidConfig(where, f"{first} and {shown} are the same table", hint)
        if engine.lower() != "innodb":
            hint = "its copy would not fit to the log; ALTER TABLE … ENGINE = InnoDB"
            raise InvalidConfig(where, f"table {shown} is kept by {engine}", hint)
        columns = tuple(_column(row) for row in session.run(_COLUMNS, [schema, name]).rows)
        found[schema, name] = LoggedTable(schema, name, columns)
    return found


def require_key(
    session: Session, tables: Iterable[TableName], key: tuple[str, ...], where: str
) -> None:
    """Refuse a declared PRIMARY KEY that is not unique in a table, or no longer.

    Sinks rely on the key: two rows with the same key would overwrite each other.

    Raises:
        InvalidConfig: Names the table.
    """
    declared = {each.lower() for each in key}
    for schema, name in tables if key else ():
        unique: dict[str, set[str]] = {}
        for index, column, nullable in session.run(_UNIQUE, [schema, name]).rows:
            # Nulls do not conflict with each other, and an expression is no column.
            is_sure = column is not None and nullable != "YES"
            unique.setdefault(str(index), set()).add(str(column).lower() if is_sure else "")
        if not any(each <= declared for each in unique.values()):
            raise InvalidConfig(where, *no_such_key(f"{schema}.{name}", key))


def integer_key(session: Session, table: LoggedTable) -> str | None:
    """The column that is the whole primary key, if there is one and it is an integer."""
    rows = session.run(_KEY, [table.schema, table.name]).rows
    if len(rows) != 1:
        return None
    at = table.column(str(rows[0][0]))
    column = table.columns[at] if at is not None else None
    if column is None or column.type is None or column.type.family != "integer":
        return None
    return column.name


def _column(row: Sequence[object]) -> LoggedColumn:
    name, kind, shown, charset, octets, precision, scale, fraction = row
    found = _type(
        str(kind).lower(),
        str(shown),
        str(charset or ""),
        *(
            int(str(each)) if each is not None else 0
            for each in (octets, precision, scale, fraction)
        ),
    )
    problem = "" if found else f"of type {kind}"
    return LoggedColumn(str(name), found, problem, 0, 0)


def _type(
    kind: str, shown: str, charset: str, octets: int, precision: int, scale: int, fraction: int
) -> MysqlType | None:
    if kind in _BITS:
        return MysqlType("integer", bits=_BITS[kind], is_unsigned="unsigned" in shown.lower())
    if kind in _PLAIN:
        return MysqlType(_PLAIN[kind])
    if kind in _TIMED:
        return MysqlType(_TIMED[kind], fraction=fraction)
    if kind in _TEXTS:
        return MysqlType("text", charset=charset)
    if kind in _BLOBS:
        return MysqlType("bytes")
    match kind:
        case "year":
            return MysqlType("integer", bits=YEAR, is_unsigned=True)
        case "decimal":
            return MysqlType("decimal", precision=precision, scale=scale)
        case "bit":
            return MysqlType("bit", bits=precision)
        case "binary":
            return MysqlType("bytes", fixed=octets)
        case "enum" | "set":
            labels = tuple(each.replace("''", "'") for each in _LABEL.findall(shown))
            return MysqlType("enum" if kind == "enum" else "set", labels=labels)
    return None
