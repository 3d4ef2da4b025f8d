"""Writes to a Delta table: create, append, merge. Each makes at most one commit.

Every commit is for the version at which the table was loaded; if another writer has taken the
next one, the client raises ``CommitFailedError`` and the table is unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, write_deltalake

from laminar_dagster.sinks.delta.bounds import bounds_of, expression_of

# Delta has no table without columns. A sink whose first epochs have no rows, and so no known
# columns, creates one with this column only; the first epoch that has columns replaces it.
PENDING: Final = "_laminar_pending"
_ROWS_SEARCHED: Final = 1_000_000


def columns_of(table: DeltaTable) -> pa.Schema | None:
    """The table's columns; None while it has only the placeholder column."""
    schema = pa.schema(table.schema().to_arrow())
    return None if schema.names == [PENDING] else schema


def partitioned_by(table: DeltaTable | None) -> list[str]:
    """The table's partition columns."""
    return [*table.metadata().partition_columns] if table else []


def create(
    location: str,
    rows: pa.Table | pa.RecordBatchReader,
    options: dict[str, str] | None,
    properties: CommitProperties,
) -> None:
    """Create a table with rows; an error if it exists."""
    write_deltalake(
        location, rows, mode="error", storage_options=options, commit_properties=properties
    )


def create_pending(
    location: str, options: dict[str, str] | None, properties: CommitProperties
) -> None:
    """Create a table whose columns are not known yet; an error if it exists."""
    DeltaTable.create(
        location,
        pa.schema([pa.field(PENDING, pa.bool_())]),
        mode="error",
        storage_options=options,
        commit_properties=properties,
    )


def append(
    table: DeltaTable, rows: pa.Table | pa.RecordBatchReader, properties: CommitProperties
) -> None:
    """Add rows; columns that the table does not have are added to it."""
    there = columns_of(table)
    if there is None:
        # The table has no rows yet, so overwriting replaces the placeholder column only.
        write_deltalake(
            table,
            rows,
            mode="overwrite",
            schema_mode="overwrite",
            commit_properties=properties,
        )
        return
    is_same = {*there.names} == {*rows.schema.names}
    write_deltalake(
        table,
        rows,
        mode="append",
        schema_mode=None if is_same else "merge",
        commit_properties=properties,
    )


def move_ledger_only(table: DeltaTable, properties: CommitProperties) -> None:
    """Commit the ledger without rows."""
    table.create_write_transaction([], "append", table.schema(), commit_properties=properties)


def merge(
    table: DeltaTable,
    rows: pa.Table,
    deleted: pa.Table,
    key: tuple[str, ...],
    properties: CommitProperties,
) -> None:
    """Upsert rows and delete keys. Each key may occur only once in the two together.

    Columns that the view does not have keep their values.
    """
    if not rows.num_rows and not deleted.num_rows:
        move_ledger_only(table, properties)
        return
    source, is_put, is_deleted = rows, None, None
    if deleted.num_rows:
        flag = next(name for name in _flag_names() if name not in rows.column_names)
        is_deleted = f"source.{_quote(flag)}"
        is_put = f"NOT {is_deleted}"
        source = pa.concat_tables(
            [
                rows.append_column(flag, pa.repeat(pa.scalar(False), rows.num_rows)),
                deleted.append_column(flag, pa.repeat(pa.scalar(True), deleted.num_rows)),
            ],
            promote_options="default",
        )
    there = columns_of(table)
    values = {_quote(name): f"source.{_quote(name)}" for name in rows.column_names}
    changed = {name: value for name, value in values.items() if name not in map(_quote, key)}
    matches = [f"target.{_quote(name)} = source.{_quote(name)}" for name in key]
    # Our own file pruning: the client's skips the file of a decimal key, and duplicates its row.
    within = [each.sql(f"target.{_quote(each.column)}") for each in bounds_of(source.select(key))]
    merger = table.merge(
        source,
        " AND ".join([*matches, *within]),
        source_alias="source",
        target_alias="target",
        merge_schema=there is not None and not {*there.names}.issuperset(rows.column_names),
        # With False, the client prunes files by rounded statistics (see ``bounds``).
        streamed_exec=True,
        commit_properties=properties,
    )
    if is_deleted:
        merger = merger.when_matched_delete(is_deleted)
    if changed:
        merger = merger.when_matched_update(changed, is_put)
    version = table.version()
    merger.when_not_matched_insert(values, is_put).execute()
    if table.version() == version:
        # The client commits nothing if no row changed, such as deletes of keys that do not exist.
        move_ledger_only(table, properties)


def matching(table: DeltaTable, keys: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """The keys that exist in the table. Reads only the key columns, in batches."""
    found = [keys.schema.empty_table()]
    scanner = table.to_pyarrow_dataset().scanner(
        columns=[*key], filter=expression_of(keys), batch_size=_ROWS_SEARCHED
    )
    for batch in scanner.to_batches():
        if batch.num_rows:
            rows = pa.table(batch).cast(keys.schema)
            found.append(rows.join(keys, [*key], join_type="left semi"))
    # Distinct keys: other writers may have inserted several rows of one key.
    return pa.concat_tables(found).group_by([*key], use_threads=False).aggregate([])


def repeated(table: DeltaTable, key: tuple[str, ...]) -> pa.Table:
    """The keys with more than one row. Reads only the key columns, file by file."""
    # Imported here: it imports pandas, which takes longer than most commands.
    from pyarrow import acero

    count = next(name for name in _flag_names() if name not in key)
    columns = [pc.field(name) for name in key]
    counted = acero.Declaration.from_sequence(
        [
            acero.Declaration("scan", acero.ScanNodeOptions(table.to_pyarrow_dataset())),
            acero.Declaration("project", acero.ProjectNodeOptions(columns, [*key])),
            acero.Declaration(
                "aggregate",
                acero.AggregateNodeOptions([([], "hash_count_all", None, count)], keys=columns),
            ),
            acero.Declaration("filter", acero.FilterNodeOptions(pc.field(count) > 1)),
        ]
    )
    return counted.to_table().select([*key])


def _flag_names() -> Iterator[str]:
    name = "_deleted"
    while True:
        yield name
        name += "_"


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
