"""The assets of a pipeline as Dagster's catalogue shows them: columns, lineage, owners, files."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import dagster as dg

from laminar_dagster.config.model import (
    Place,
    ReferenceTable,
    SinkTable,
    SourceTable,
    View,
)
from laminar_dagster.config.redaction import redact
from laminar_dagster.config.variables import shown
from laminar_dagster.orchestration.stream import Stream
from laminar_dagster.orchestration.translator import StreamAsset

PLAN: Final = "epoch_plan"
STATE: Final = "state_snapshot"
MANIFEST: Final = "checkpoint_manifest"

_STORE_KINDS: Final = {"s3": "s3", "file": "file"}
_SINK_KINDS: Final = {"delta": "deltalake", "sqlite": "sqlite"}


def source_spec(stream: Stream, table: SourceTable) -> dg.AssetSpec:
    """The spec of a source: an external asset, which no run materialises."""
    said = f"Read by {stream.names.pipeline} as `{table.source_id}`."
    asset = stream.asset("source", table.source_id)
    return _read_spec(stream, table, asset, stream.source_key(table), said)


def reference_spec(stream: Stream, table: ReferenceTable) -> dg.AssetSpec:
    """The spec of a reference table, of which every epoch pins a version."""
    said = f"Joined with streams of {stream.names.pipeline} as `{table.reference_id}`."
    asset = stream.asset("reference", table.reference_id)
    return _read_spec(stream, table, asset, stream.reference_key(table), said)


def _read_spec(
    stream: Stream,
    table: SourceTable | ReferenceTable,
    asset: StreamAsset,
    key: dg.AssetKey,
    description: str,
) -> dg.AssetSpec:
    columns = [
        dg.TableColumn(
            each.name, each.type, constraints=dg.TableColumnConstraints(nullable=each.nullable)
        )
        for each in table.columns
    ]
    spec = dg.AssetSpec(
        key,
        description=description,
        kinds={table.connector, *([table.options["format"]] if "format" in table.options else [])},
        metadata={
            "dagster/column_schema": dg.TableSchema(columns),
            **_place(asset.address),
            **_options(table.written),
            **_written_at(table.place),
        },
    )
    return stream.translator.translate(asset, spec)


def plan_spec(stream: Stream) -> dg.AssetSpec:
    """The spec of ``epoch_plan``: what each epoch reads."""
    return _spec(
        stream,
        stream.asset("epoch", PLAN),
        stream.names.asset(PLAN),
        "What an epoch reads: the range of every partition, and the only clock it may use.",
        deps=[*stream.read_keys()],
        kinds={"laminar"},
    )


def view_spec(stream: Stream, view: View) -> dg.AssetSpec:
    """The spec of a view: the rows that an epoch stages for it, not yet published."""
    lineage = dg.TableColumnLineage(
        {
            column: [
                dg.TableColumnDep(stream.table_key(each.relation), each.column) for each in inputs
            ]
            for column, inputs in stream.lineage[view.name].items()
        }
    )
    contract = any(each.view == view.name for each in stream.model.contracts)
    return _spec(
        stream,
        stream.asset("view", view.name),
        stream.view_key(view.name),
        f"```{view.language}\n{view.sql.strip()}\n```",
        deps=[
            stream.names.asset(PLAN),
            *(stream.table_key(name) for name in view.reads),
        ],
        kinds={"pyspark", view.language, *(["pandera"] if contract else [])},
        metadata={"dagster/column_lineage": lineage, **_written_at(view.place)},
    )


def state_spec(stream: Stream) -> dg.AssetSpec:
    """The spec of ``state_snapshot``: the state of every operator after an epoch."""
    return _spec(
        stream,
        stream.asset("epoch", STATE),
        stream.names.asset(STATE),
        "The open windows of every view, as immutable files with their hashes.",
        deps=[stream.view_key(view.name) for view in stream.model.views]
        or [stream.names.asset(PLAN)],
        kinds={"pyspark", "arrow"},
        metadata={"store": _store(stream)},
    )


def manifest_spec(stream: Stream) -> dg.AssetSpec:
    """The spec of ``checkpoint_manifest``: the commit point of an epoch."""
    window = stream.model.config.checks.freshness_window
    spec = _spec(
        stream,
        stream.asset("epoch", MANIFEST),
        stream.names.asset(MANIFEST),
        "The commit point of an epoch: from here on its state and offsets are what counts, "
        "and its sinks will hold its rows.",
        deps=[stream.names.asset(PLAN), stream.names.asset(STATE)],
        kinds={"laminar", _STORE_KINDS.get(_scheme(stream), "file")},
        metadata={"store": _store(stream)},
    )
    if window is None:
        return spec
    return spec.replace_attributes(freshness_policy=dg.FreshnessPolicy.time_window(window))


def sink_spec(stream: Stream, table: SinkTable) -> dg.AssetSpec:
    """The spec of a table that a sink publishes to."""
    view = stream.view(table.view)
    lineage = dg.TableColumnLineage(
        {column: [dg.TableColumnDep(stream.view_key(view.name), column)] for column in view.columns}
    )
    asset = stream.asset("sink", table.sink_id)
    return _spec(
        stream,
        asset,
        stream.sink_key(table),
        f"The rows of `{table.view}`, published by the sink `{table.sink_id}` exactly once.",
        deps=[stream.names.asset(MANIFEST), stream.view_key(view.name)],
        kinds={_SINK_KINDS.get(table.connector, table.connector)},
        metadata={
            "dagster/column_lineage": lineage,
            **_place(asset.address),
            **_options(table.written),
            **_written_at(table.place),
        },
    )


def _spec(
    stream: Stream,
    asset: StreamAsset,
    key: dg.AssetKey,
    description: str,
    *,
    deps: Iterable[dg.AssetKey],
    kinds: set[str],
    metadata: Mapping[str, Any] | None = None,
) -> dg.AssetSpec:
    spec = dg.AssetSpec(
        key,
        deps=[_dep(stream, each) for each in dict.fromkeys(deps)],
        description=description,
        metadata={"fingerprint": stream.model.fingerprint, **(metadata or {})},
        code_version=stream.model.fingerprint,
        kinds=kinds,
        partitions_def=stream.partitions,
    )
    return stream.translator.translate(asset, spec)


def _dep(stream: Stream, key: dg.AssetKey) -> dg.AssetDep:
    """A dependency: on the same epoch within a pipeline, on the newest partition of a source."""
    if key in stream.read_keys():
        return dg.AssetDep(key, partition_mapping=dg.LastPartitionMapping())
    return dg.AssetDep(key)


def _place(address: str) -> dict[str, str]:
    """Where a table is: by the name that Dagster's catalogue knows, and by its whole address."""
    table = address.rstrip("/").rpartition("/")[2]
    return {"dagster/table_name": table, "address": redact(address)} if table else {}


def _options(written: Mapping[str, str]) -> dict[str, str]:
    return {f"option/{name}": shown(name, text) for name, text in written.items()}


def _written_at(place: Place) -> dict[str, Any]:
    """A link from the catalogue to the line that defines an asset."""
    with warnings.catch_warnings(category=dg.BetaWarning, action="ignore"):
        reference = dg.LocalFileCodeReference(
            file_path=str(Path(place.file).absolute()), line_number=place.line
        )
        link = dg.CodeReferencesMetadataValue(code_references=[reference])
    return {"dagster/code_references": link}


def _store(stream: Stream) -> str:
    return redact(stream.model.config.store)


def _scheme(stream: Stream) -> str:
    return stream.model.config.store.partition("://")[0]
