"""A Delta Lake table as a reference table. Its rows are copied, like those of any other.

A version of a Delta table could be pinned by its number alone, until somebody vacuums the table.
Whether an epoch can be rerun next week must not depend on that. See decision 34.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaProtocolError, TableNotFoundError

from laminar_dagster.clients.concealment import conceal
from laminar_dagster.clients.delta import Meaning, meaning_of, readable
from laminar_dagster.clients.transience import shown
from laminar_dagster.config.model import ReferenceTable
from laminar_dagster.core.errors import (
    AuthFailed,
    LaminarError,
    ReferenceUnavailable,
    ServiceFailed,
)
from laminar_dagster.core.ids import ReferenceId
from laminar_dagster.core.ports import ReferenceFreshness, ReferenceRows
from laminar_dagster.sources.option_values import Mistakes, read_values
from laminar_dagster.sources.references.content import TableShape
from laminar_dagster.sources.references.options import MAX_BYTES, SHARED, freshness_of

_STORAGE = "storage."


class DeltaReference:
    """Implements ``core.ports.Reference``. A version is the table's id with Delta's version."""

    def __init__(
        self,
        shape: TableShape,
        location: str,
        storage: dict[str, str],
        freshness: ReferenceFreshness,
    ) -> None:
        """Describe the table; does no I/O.

        Args:
            shape: The declaration.
            location: A folder, or the URL of one in an object store.
            storage: Options of the object store; their values are never shown.
            freshness: How old a copy may be.
        """
        self._shape = shape
        self._location = location if "://" in location else os.path.abspath(location)
        self._storage = storage
        self._freshness = freshness

    @classmethod
    def from_table(cls, table: ReferenceTable, project: Path) -> DeltaReference:
        """Build the reference of a ``CREATE REFERENCE TABLE … WITH (connector = 'delta', …)``.

        Raises:
            InvalidConfig: Lists every mistake in the options, or names an unsupported column.
        """
        mistakes = Mistakes(str(table.place))
        storage = {
            name.removeprefix(_STORAGE): text
            for name, text in table.options.items()
            if name.startswith(_STORAGE)
        }
        others = {
            name: text for name, text in table.options.items() if not name.startswith(_STORAGE)
        }
        values = read_values(others, SHARED, mistakes, ("path",))
        path = others.get("path", "")
        if not path:
            mistakes.add("`path` is missing", "a folder, or the URL of one in an object store")
        elif "://" in path:
            parts = urlsplit(path)
            if parts.username or parts.password or parts.query:
                mistakes.add("`path` must not carry credentials", "use `storage.` options")
        elif storage:
            mistakes.add("a local path takes no `storage.` options", "remove them")
        mistakes.raise_if_any()
        shape = TableShape.of(table, values.get("max_bytes", MAX_BYTES))
        location = path if "://" in path else str(project / path)
        return cls(shape, location, storage, freshness_of(values, timedelta(0)))

    @property
    def reference_id(self) -> ReferenceId:
        """The reference table's name within the pipeline."""
        return self._shape.reference_id

    @property
    def address(self) -> str:
        """The table's folder."""
        return self._location if "://" in self._location else f"file://{self._location}"

    @property
    def declaration(self) -> str:
        """See ``Reference.declaration``."""
        return self._shape.declaration

    @property
    def freshness(self) -> ReferenceFreshness:
        """See ``Reference.freshness``."""
        return self._freshness

    def version(self) -> str:
        """The table's present version."""
        table = self._open()
        self._require_columns(table)
        return _version_of(table)

    def read(self) -> ReferenceRows:
        """All rows of the newest version."""
        table = self._open()
        self._require_columns(table)
        try:
            rows = table.to_pyarrow_table(columns=self._shape.schema.names)
        except DeltaProtocolError as error:
            raise self._shape.unfit(self._shown(error)) from None
        except Exception as error:
            # The client also raises bare exceptions: for vacuumed files, or an unavailable store.
            raise self._named(error) from None
        self._shape.require_room(rows.nbytes)
        return ReferenceRows(_version_of(table), self._shape.files_of(self._cast(rows)))

    def _open(self) -> DeltaTable:
        try:
            return DeltaTable(self._location, storage_options=self._storage or None)
        except TableNotFoundError:
            raise self._shape.unfit(f"there is no Delta table at {self._location}") from None
        except Exception as error:
            raise self._named(error) from None

    def _named(self, error: Exception) -> LaminarError:
        reason, meaning = self._shown(error), meaning_of(error)
        # A missing file was vacuumed during the read: a retry reads newer files.
        if meaning is Meaning.PASSING or isinstance(error, FileNotFoundError):
            return ReferenceUnavailable(self.reference_id, reason)
        if meaning is Meaning.REFUSED:
            return AuthFailed(f"reference table {self.reference_id}", reason)
        return ServiceFailed(f"reference table {self.reference_id}", reason)

    def _require_columns(self, table: DeltaTable) -> None:
        there = pa.schema(table.schema().to_arrow())
        for each in self._shape.schema:
            if each.name not in there.names:
                raise self._shape.unfit(f"it has no column `{each.name}`")
            kind = there.field(each.name).type
            if not _is_alike(kind, each.type):
                raise self._shape.unfit(f"`{each.name}` is {kind}, declared as {each.type}")

    def _cast(self, rows: pa.Table) -> pa.Table:
        kinds = pa.schema([pa.field(each.name, each.type) for each in self._shape.schema])
        try:
            return rows.select(kinds.names).cast(kinds)
        except pa.ArrowInvalid as error:
            raise self._shape.unfit(f"a value does not fit its column: {error}") from None

    def _shown(self, error: Exception) -> str:
        """An error's text without the values of storage options, which may be secrets."""
        text = conceal(shown(error), tuple(self._storage.values()), "")
        return f"{self._location}: {readable(text)}"


def _version_of(table: DeltaTable) -> str:
    return f"delta {table.metadata().id} version {table.version()}"


def _is_alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type can be cast to another, if they are not too large."""
    kinds = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        _is_text,
        _is_bytes,
        pa.types.is_date,
        pa.types.is_boolean,
    )
    if pa.types.is_timestamp(wanted):
        return pa.types.is_timestamp(found) and (found.tz is None) == (wanted.tz is None)
    return bool(found == wanted or any(kind(found) and kind(wanted) for kind in kinds))


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    )
