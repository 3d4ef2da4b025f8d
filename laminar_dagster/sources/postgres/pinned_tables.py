"""Checks that tables and their publication still match the pins of the last plan.

The stream does not show that a table was renamed, dropped and created anew, or removed from the
publication: its changes just stop, and a dropped column is null. So a plan pins the state of the
tables at its end: their ids, and which of the declared columns they had. The next plan compares
the server's present state, and the table descriptions in the range.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from msgspec import structs
from psycopg import sql

from laminar_dagster.clients.postgres.server import Connection
from laminar_dagster.core.errors import DecodeFailed, SchemaChanged, TableChanged
from laminar_dagster.core.offsets import PostgresTable
from laminar_dagster.sources.postgres.database import Transaction
from laminar_dagster.sources.postgres.decoding import lsn_text, shape_of
from laminar_dagster.sources.postgres.messages import MalformedStream, Relation, relation_of
from laminar_dagster.sources.postgres.options import PostgresCdcOptions
from laminar_dagster.sources.postgres.publication import (
    Publication,
    PublishedTable,
    find_publication,
)
from laminar_dagster.sources.postgres.server_state import ServerState
from laminar_dagster.sources.postgres.tables import check_setup

Pins = Mapping[str, PostgresTable]

_NAMED: Final = sql.SQL("""
    SELECT class.oid::int8, space.nspname || '.' || class.relname
    FROM pg_catalog.pg_class AS class
    JOIN pg_catalog.pg_namespace AS space ON space.oid = class.relnamespace
    WHERE class.oid::int8 = %s OR space.nspname || '.' || class.relname = %s
""")


@dataclass(frozen=True, slots=True)
class Known:
    """The state of the tables where an epoch begins.

    Attributes:
        pins: The pinned states; a table without one is new to the source.
        published: How the server publishes the tables now.
    """

    pins: Pins
    published: Mapping[str, PublishedTable]


@dataclass(frozen=True, slots=True)
class PinnedTables:
    """Compares the tables of a source with their pins."""

    source_id: str
    options: PostgresCdcOptions = field(repr=False)
    declared: Sequence[pa.Field]
    where: str

    def as_they_are(self, connection: Connection) -> dict[str, PostgresTable]:
        """The pins for a snapshot, whose connections hold locks on the tables."""
        found = find_publication(connection, self.options.publication, self.options.tables)
        assert found is not None, "the set-up was checked"
        return {name: self._pin_of(each) for name, each in found.tables.items()}

    def require_same(self, connection: Connection, state: ServerState, pinned: Pins) -> Known:
        """Refuse tables, or a publication, that do not match their pins; takes no locks.

        Args:
            connection: A session.
            state: The state of the server.
            pinned: The pins of the last plan. Tables may lack one: plans of earlier versions pin
                none, and a table may have been added since; it is then pinned from the stream.

        Raises:
            TableChanged: A table was renamed, dropped, created anew, or not published all the time.
            InvalidConfig: A table without a pin cannot be read; says what to do.
        """
        found = find_publication(connection, self.options.publication, self.options.tables)
        published = {} if found is None else found.tables
        pins: dict[str, PostgresTable] = {}
        for name in self.options.tables:
            pin = pinned.get(name) or self._renamed(pinned, published.get(name))
            if pin is not None:
                what = self._what_happened(connection, found, name, pin)
                if what:
                    place = f"{lsn_text(state.flushed)} or before"
                    raise TableChanged(self.source_id, name, place, what)
                pins[name] = pin
            elif not _is_sent(found, name):
                check_setup(connection, state, self.options, self.declared, self.where)
        return Known(pins, published)

    def _renamed(self, pinned: Pins, found: PublishedTable | None) -> PostgresTable | None:
        """The pin of a table that was listed in the options under another name, now removed."""
        for name, pin in pinned.items():
            if found and pin.oid == found.oid and name not in self.options.tables:
                return pin
        return None

    def _what_happened(
        self, connection: Connection, found: Publication | None, name: str, pin: PostgresTable
    ) -> str:
        publication = f"publication {self.options.publication}"
        lost = "what changed since then is not in the log"
        table = None if found is None else found.tables.get(name)
        if table is None or table.oid != pin.oid:
            names: dict[int, str] = dict(connection.execute(_NAMED, (pin.oid, name)).fetchall())
            if names.get(pin.oid, name) != name:
                return f"it is called {names[pin.oid]} now"
            if pin.oid not in names:
                return "it was dropped" + (" and made anew" if names else "")
            return f"{publication} does not send it any more, and {lost}"
        if found is None or not found.sends_all_kinds:
            return f"{publication} leaves changes out, and {lost}"
        if table.row_filter is not None:
            return f"{publication} sends only rows with {table.row_filter}"
        if pin.members and not set(pin.members) & set(table.members):
            return f"it was not in {publication} all the time, or otherwise, and {lost}"
        return ""

    # --- in the stream ----------------------------------------------------------------------------

    def after(self, pins: Pins, transaction: Transaction) -> Pins:
        """The pins after a transaction, by the table descriptions in it.

        Raises:
            TableChanged: A table was renamed, or its name is now that of another table.
            SchemaChanged: A declared column was dropped, added, or has a type that cannot be read
                as declared.
            DecodeFailed: A description is malformed.
        """
        if not transaction.relations:
            return pins
        place = lsn_text(transaction.lsn)
        known = dict(pins)
        for message in transaction.relations:
            try:
                relation = relation_of(message)
            except MalformedStream as error:
                raise DecodeFailed(self.source_id, place, str(error)) from error
            for name, pin in known.items():
                if pin.oid == relation.oid and name != relation.table:
                    what = f"it is called {relation.table} from there on"
                    raise TableChanged(self.source_id, name, place, what)
            if relation.table in self.options.tables:
                known[relation.table] = self._followed(known.get(relation.table), relation, place)
        return known

    def _followed(self, pin: PostgresTable | None, relation: Relation, place: str) -> PostgresTable:
        if pin is not None and pin.oid != relation.oid:
            what = "it was dropped and made anew"
            raise TableChanged(self.source_id, relation.table, place, what)
        shape_of(self.source_id, relation, self.declared, self.options.decoding)
        names = {each.name for each in relation.columns}
        if pin is not None:
            self._require_columns(pin, relation.table, names)
        members = () if pin is None else pin.members
        return self._pinned(relation.oid, names, members)

    def _require_columns(self, pin: PostgresTable, table: str, names: set[str]) -> None:
        may_change = self.options.on_schema_change == "ignore"
        for each in self.declared:
            is_gone = each.name in pin.columns and each.name not in names
            if is_gone and not (may_change and each.nullable):
                raise SchemaChanged(self.source_id, table, f"it has no column `{each.name}`")
            # Earlier rows were emitted with null there, and could not be retracted.
            if each.name in pin.lacks and each.name in names and not may_change:
                what = f"it has a column `{each.name}` now, which it did not have"
                raise SchemaChanged(self.source_id, table, what)

    def at_end(self, pins: Pins, known: Known, *, is_all: bool) -> dict[str, PostgresTable]:
        """The pins for a plan.

        Args:
            pins: The pins at the end of what the plan reads.
            known: The state of the tables where it begins.
            is_all: Whether no log is left after it, so that the tables' present state is their
                state at the end.
        """
        found: dict[str, PostgresTable] = {}
        for name in self.options.tables:
            published = known.published.get(name)
            if name in pins:
                members = published.members if published else pins[name].members
                found[name] = structs.replace(pins[name], members=members)
            elif is_all and published is not None:
                found[name] = self._pin_of(published)
        return found

    def _pin_of(self, table: PublishedTable) -> PostgresTable:
        return self._pinned(table.oid, table.columns, table.members)

    def _pinned(self, oid: int, names: Collection[str], members: tuple[int, ...]) -> PostgresTable:
        declared = [each.name for each in self.declared]
        return PostgresTable(
            oid=oid,
            columns=tuple(each for each in declared if each in names),
            lacks=tuple(each for each in declared if each not in names),
            members=members,
        )


def _is_sent(found: Publication | None, name: str) -> bool:
    """Whether the publication sends every change of a table."""
    table = None if found is None else found.tables.get(name)
    is_whole = table is not None and table.row_filter is None
    return is_whole and found is not None and found.sends_all_kinds
