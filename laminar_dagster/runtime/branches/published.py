"""The sinks of a pipeline as its author wrote them: what is published, and how."""

from __future__ import annotations

from laminar_dagster.config.emission import keyed_by_window
from laminar_dagster.config.model import PipelineModel, SinkTable
from laminar_dagster.core.branch import BranchSink, BranchWindow
from laminar_dagster.sinks.options import write_mode


def branch_sinks(model: PipelineModel) -> tuple[BranchSink, ...]:
    """The sinks of a pipeline, as the record of a branch keeps them."""
    return tuple(_branch_sink(model, table) for table in model.sinks)


def _branch_sink(model: PipelineModel, table: SinkTable) -> BranchSink:
    mode, key = write_mode(table)
    view = next(each for each in model.views if each.name == table.view)
    keyed = keyed_by_window(view, key) if key else None
    window = None
    if keyed:
        window = BranchWindow(
            operator_id=keyed.operator_id,
            column=keyed.column,
            size_micros=keyed.size_micros,
            is_end=keyed.is_end,
        )
    return BranchSink(sink_id=table.sink_id, view=table.view, mode=mode, key=key, window=window)
