"""Rows of Arrow tables as text for people, and as JSON for programs."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from laminar_dagster.cli import wording
from laminar_dagster.cli.tables import Column, Table


def rows_table(table: pa.Table, title: str = "") -> Table:
    """The rows as a table to show."""
    columns = [
        Column(each.name, right=_is_number(each.type), folds=0 if _is_number(each.type) else 12)
        for each in table.schema
    ]
    rows = [[_text(value) for value in row.values()] for row in table.to_pylist()]
    return Table(columns, rows, title)


def rows_document(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as JSON values."""
    return [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]


def _is_number(kind: pa.DataType) -> bool:
    is_exact = pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    return bool(is_exact or pa.types.is_floating(kind))


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case datetime():
            return wording.moment(value)
        case bytes():
            return value.decode(errors="backslashreplace")
        case dict() | list():
            return str(_plain(value))
        case _:
            return str(value)


def _plain(value: Any) -> Any:
    match value:
        case datetime() | date():
            return value.isoformat().replace("+00:00", "Z")
        case Decimal():
            return str(value)
        case bytes():
            return value.decode(errors="backslashreplace")
        case dict():
            return {str(name): _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case float() if value != value or value in (float("inf"), float("-inf")):
            # JSON has no such numbers.
            return str(value)
        case _:
            return value
