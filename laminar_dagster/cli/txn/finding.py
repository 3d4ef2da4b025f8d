"""Asks the sinks of a pipeline for their transactions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import click

from laminar_dagster.cli import wording
from laminar_dagster.cli.pipelines import find_model, project_of
from laminar_dagster.cli.tables import Column, Table
from laminar_dagster.core.ids import SinkId
from laminar_dagster.core.ports import PendingTransaction, Transactional
from laminar_dagster.runtime.assembly import build_adapters


@dataclass(frozen=True, slots=True)
class Found:
    """A transaction, and the sink that can end it."""

    sink_id: SinkId
    sink: Transactional
    transaction: PendingTransaction

    def document(self) -> dict[str, Any]:
        """What ``--json`` prints of it."""
        each = self.transaction
        return {
            "sink": self.sink_id,
            "transactional_id": each.identity,
            "state": each.state,
            "age_seconds": round(each.age, 3),
            "timeout_seconds": each.timeout,
            "producer": each.writer,
            "coordinator": each.coordinator,
            "partitions": list(each.places),
        }


def find_transactions(ctx: click.Context, pipeline: str | None) -> tuple[int, list[Found]]:
    """How many sinks can have any, and what they have.

    Raises:
        SinkUnavailable, AuthFailed: One cannot be asked.
    """
    model = find_model(ctx, pipeline)
    adapters = build_adapters(model, project_of(ctx))
    found: list[Found] = []
    asked = 0
    for sink in adapters.sinks:
        if isinstance(sink, Transactional):
            asked += 1
            found += [Found(sink.sink_id, sink, each) for each in sink.pending_transactions()]
    return asked, found


def table_of(found: Sequence[Found]) -> Table:
    """Transactions for people."""
    columns = (
        Column("sink"),
        Column("transactional id"),
        Column("state"),
        Column("open for", right=True),
        Column("ends after", right=True, optional=2),
        Column("producer", optional=3),
        Column("coordinator", optional=2),
        Column("partitions", optional=1),
    )
    rows = [
        (
            str(each.sink_id),
            each.transaction.identity,
            each.transaction.state,
            wording.duration(timedelta(seconds=each.transaction.age)),
            wording.duration(timedelta(seconds=each.transaction.timeout)),
            each.transaction.writer,
            each.transaction.coordinator,
            ", ".join(each.transaction.places),
        )
        for each in found
    ]
    return Table(columns, rows)
