"""Whether every sink holds the answer, and every record is accounted for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table

from examples.kafka_orders.answer import Answer, Comparison, Counts
from examples.kafka_orders.producer import Sent
from laminar_dagster.core.manifest import CheckpointManifest


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found.

    Attributes:
        problems: Empty if everything is right.
    """

    epochs: int
    sinks: list[Comparison]
    problems: list[str]


def judge(
    topic: Path,
    sent: Sent,
    manifests: Sequence[CheckpointManifest],
    sinks: Mapping[str, pa.Table],
) -> Verdict:
    """Compute the answer from a copy of the topic, and compare.

    Args:
        topic: The copy.
        sent: What the producer knows of it.
        manifests: Of all epochs.
        sinks: What plain clients read in each of them.
    """
    answer = Answer(topic)
    counts = answer.counts()
    compared = [answer.compare_rows(name, rows) for name, rows in sinks.items()]
    problems = [f"{each.sink} differs from the answer" for each in compared if not each.is_equal]
    if not compared[0].windows:
        problems.append("no window was over, so that nothing was compared")
    if counts.read != sent.records:
        problems.append(f"{sent.records:,} records were sent, and the topic has {counts.read:,}")
    if (counted := _counted(manifests)) != counts:
        problems.append(f"the epochs counted {counted}, and DuckDB {counts}")
    return Verdict(len(manifests), compared, problems)


def show(console: Console, verdict: Verdict) -> None:
    """A table, what differs, and a sentence."""
    columns = ("windows", "orders", "rows missing", "rows surplus", "orders lost", "doubled")
    table = Table("sink", *columns, "", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for each in verdict.sinks:
        figures = (each.windows, each.orders, each.missing, each.surplus, each.lost, each.doubled)
        told = "[green]equal[/]" if each.is_equal else "[bold red]differs[/]"
        table.add_row(each.sink, *(f"{value:,}" for value in figures), told)
    console.print(table)
    for sink in verdict.sinks:
        for line in sink.examples:
            console.print(f"  {sink.sink}: {line}", markup=False)
    for problem in verdict.problems:
        console.print(f"[bold red]WRONG:[/] {problem}")


def _counted(manifests: Sequence[CheckpointManifest]) -> Counts:
    counts = [each.counts for each in manifests]
    return Counts(
        read=sum(each.read for each in counts),
        on_time=sum(each.processed for each in counts),
        late=sum(each.late for each in counts),
        broken=sum(each.dead_lettered for each in counts),
    )
