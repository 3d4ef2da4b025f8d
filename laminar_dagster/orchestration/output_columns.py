"""The columns of an epoch's staged output, with their types, for Dagster's catalogue."""

from __future__ import annotations

from collections.abc import Iterable

import dagster as dg

from laminar_dagster.core.errors import IntegrityError
from laminar_dagster.core.ids import SinkId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.orchestration.metadata import Metadata
from laminar_dagster.runtime.staged_schema import staged_schema


def column_schema(
    store: ObjectStore, manifest: CheckpointManifest, sinks: Iterable[SinkId]
) -> Metadata:
    """The schema of the first file that was staged for one of the sinks; nothing without one."""
    wanted = set(sinks)
    files = [file for entry in manifest.sinks if entry.sink_id in wanted for file in entry.files]
    if not files:
        return {}
    try:
        schema = staged_schema(store, manifest.checkpoint_id, files[0])
    except IntegrityError:
        # The file of an old epoch, which is run again, may have been collected.
        return {}
    columns = [
        dg.TableColumn(
            field.name,
            str(field.type),
            constraints=dg.TableColumnConstraints(nullable=field.nullable),
        )
        for field in schema
    ]
    return {"dagster/column_schema": dg.MetadataValue.table_schema(dg.TableSchema(columns))}
