"""``laminar branch diff``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import click
import pyarrow as pa

from laminar_dagster.cli import wording
from laminar_dagster.cli.arrow_rows import rows_document, rows_table
from laminar_dagster.cli.branches.listing import standing_of
from laminar_dagster.cli.branches.opening import Named, branch_argument
from laminar_dagster.cli.options import json_option, limit_option
from laminar_dagster.cli.output import output_of
from laminar_dagster.cli.pipelines import open_history_of
from laminar_dagster.cli.tables import Block, Column, Line, Table
from laminar_dagster.core.branch import BranchRecord
from laminar_dagster.runtime.branches.comparing import OutputDifference, compare_outputs
from laminar_dagster.runtime.branches.records import read_branch


@dataclass(slots=True)
class _Sample:
    """The first rows of one side, over all epochs."""

    tables: list[pa.Table] = field(default_factory=list)
    rows: int = 0

    def take(self, more: pa.Table | None, limit: int | None) -> None:
        if more is None or not more.num_rows:
            return
        left = more.num_rows if limit is None else limit - self.rows
        if left > 0:
            self.tables.append(more.slice(0, left))
            self.rows += self.tables[-1].num_rows

    @property
    def table(self) -> pa.Table | None:
        if not self.tables:
            return None
        return pa.concat_tables(self.tables, promote_options="permissive")


@dataclass(slots=True)
class _Sink:
    """The differences of one sink; of rows, no more than are shown."""

    epochs: list[OutputDifference] = field(default_factory=list)
    main: _Sample = field(default_factory=_Sample)
    branch: _Sample = field(default_factory=_Sample)

    def add(self, each: OutputDifference, limit: int | None) -> None:
        self.main.take(each.only_main, limit)
        self.branch.take(each.only_branch, limit)
        self.epochs.append(each)


@click.command("diff")
@branch_argument
@limit_option(5, "rows of each side to show for a sink")
@json_option
@click.pass_context
def command(ctx: click.Context, named: Named, limit: int | None) -> None:
    """Compare what a branch has put out with what its pipeline has, by sink and epoch.

    Rows count as often as they occur; their order does not matter. Nothing is changed.
    """
    pipeline, name = named
    main = open_history_of(ctx, pipeline)
    record = read_branch(main.objects, name)
    behind = standing_of(main, record).behind
    if behind:
        epochs = wording.count(behind, "epoch")
        output_of(ctx).warn(f"the branch is {epochs} behind; `laminar branch run` replays them")
    sinks: dict[str, _Sink] = {str(each.sink_id): _Sink() for each in record.sinks}
    for found in compare_outputs(main, record):
        sinks[str(found.sink_id)].add(found, limit)
    output_of(ctx).result(
        lambda: _document(record, behind, sinks), lambda: _blocks(record, sinks, limit)
    )


def _document(record: BranchRecord, behind: int, sinks: dict[str, _Sink]) -> dict[str, Any]:
    return {
        "pipeline": record.pipeline,
        "branch": record.name,
        "behind": behind,
        "is_same": all(each.is_same for sink in sinks.values() for each in sink.epochs),
        "sinks": [
            {
                "sink": name,
                "only_main": sum(each.removed for each in sink.epochs),
                "only_branch": sum(each.added for each in sink.epochs),
                "epochs": [
                    {
                        "epoch": each.epoch,
                        "is_same": each.is_same,
                        "rows_main": each.rows_main,
                        "rows_branch": each.rows_branch,
                        "only_main": each.removed,
                        "only_branch": each.added,
                    }
                    for each in sink.epochs
                ],
                "sample_main": _rows(sink.main),
                "sample_branch": _rows(sink.branch),
            }
            for name, sink in sinks.items()
        ],
    }


def _rows(sample: _Sample) -> list[dict[str, Any]]:
    return rows_document(sample.table) if sample.table is not None else []


def _blocks(record: BranchRecord, sinks: dict[str, _Sink], limit: int | None) -> Iterator[Block]:
    differing = [each for sink in sinks.values() for each in sink.epochs if not each.is_same]
    compared = max((len(sink.epochs) for sink in sinks.values()), default=0)
    epochs = wording.count(compared, "epoch")
    if not differing:
        yield Line(f"Branch {record.name} and {record.pipeline}: the same rows, {epochs} compared.")
        return
    columns = (
        Column("sink"),
        Column("epoch", right=True),
        Column("rows, pipeline", right=True, optional=1),
        Column("rows, branch", right=True, optional=1),
        Column("only pipeline", right=True),
        Column("only branch", right=True),
    )
    rows = [
        (
            str(each.sink_id),
            str(each.epoch),
            f"{each.rows_main:,}",
            f"{each.rows_branch:,}",
            f"{each.removed:,}",
            f"{each.added:,}",
        )
        for each in differing
    ]
    yield Table(columns, rows, f"Where they differ, {epochs} compared")
    for name, sink in sinks.items():
        for side, sample in (("pipeline", sink.main), ("branch", sink.branch)):
            if sample.table is not None:
                yield rows_table(sample.table, f"{name}: only in the {side}{_cut(limit)}")


def _cut(limit: int | None) -> str:
    return "" if limit is None else f", the first {limit}"
