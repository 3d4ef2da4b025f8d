"""Whether everything is right: the sinks, the counts and the group, beside what was sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from examples.kafka_orders.answer import SINKS, Answer, Comparison, Counts
from examples.kafka_orders.producer import Sent
from examples.kafka_orders.story import Kill
from examples.kafka_orders.watch import Watch, positions
from laminar_dagster.core.manifest import CheckpointManifest


class Record(msgspec.Struct, frozen=True):
    """What a run leaves for its verdict.

    Attributes:
        group: Where the pipeline's group stood at the end, by partition.
        most_waiting: The largest lag that was seen.
    """

    rate: int
    sent: Sent
    group: dict[int, int]
    kills: list[Kill]
    most_waiting: int
    seconds: float


class Verdict(msgspec.Struct, frozen=True):
    """What was found.

    Attributes:
        positions: Where the last epoch ended, by partition.
        problems: Empty if everything is right.
    """

    record: Record
    epochs: int
    positions: dict[int, int]
    counts: dict[str, Counts]
    sinks: list[Comparison]
    problems: list[str]

    @property
    def is_right(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        found: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        record = found.pop("record")
        return {"is_right": self.is_right, **record, **found}


def judge(project: Path, record: Record) -> Verdict:
    """Compute the answer from the copy of the topic, and compare."""
    answer = Answer(project / "topic.parquet")
    manifests = Watch(project).manifests()
    stands = positions(manifests[-1]) if manifests else {}
    counts = {
        "sent by the producer": _sent(record.sent),
        "found in the topic by DuckDB": answer.counts(),
        "counted by the epochs": _counted(manifests),
    }
    compared = [answer.compare(project / "output", sink) for sink in SINKS]
    problems = [
        *_problems_with_orders(record.sent, answer, counts),
        *(f"{each.sink} differs from the answer" for each in compared if not each.is_equal),
    ]
    if stands != record.sent.ends:
        problems.append(f"the last epoch ends at {stands}, and the topic at {record.sent.ends}")
    if record.group != stands:
        problems.append(f"the group stands at {record.group}, and the last epoch at {stands}")
    return Verdict(record, len(manifests), stands, counts, compared, problems)


def show(console: Console, verdict: Verdict) -> None:
    """Tables, what differs, and a sentence."""
    for table in (_accounting(verdict), _comparison(verdict)):
        console.print(table)
        console.print()
    for sink in verdict.sinks:
        for line in sink.examples:
            console.print(f"  {sink.sink}: {line}", markup=False)
    for problem in verdict.problems:
        console.print(f"[bold red]WRONG:[/] {problem}")
    if not verdict.is_right:
        return
    first = verdict.sinks[0]
    kills = len(verdict.record.kills)
    offsets = ", ".join(f"{verdict.record.group[each]:,}" for each in sorted(verdict.record.group))
    console.print(
        f"Group offsets ({offsets}) are those of epoch {verdict.epochs}: your lag tools work."
    )
    console.print(
        f"[bold green]Both sinks equal the answer:[/] {first.windows:,} windows,"
        f" {first.orders:,} orders, {first.lost} lost, {first.doubled} doubled, in"
        f" {verdict.epochs} epochs and {kills} kill{'' if kills == 1 else 's'}."
    )


def _problems_with_orders(sent: Sent, answer: Answer, counts: dict[str, Counts]) -> Iterator[str]:
    if sent.acknowledged != sent.records:
        yield f"{sent.records:,} records were sent, and {sent.acknowledged:,} confirmed"
    if len(set(counts.values())) != 1:
        yield "the counts differ"
    if answer.cents() != sent.cents - sent.last_cents:
        yield "the orders in the topic do not cost what the producer's cost"


def _sent(sent: Sent) -> Counts:
    on_time = sent.records - sent.late - sent.broken
    return Counts(sent.records, on_time, sent.late, sent.broken)


def _counted(manifests: Sequence[CheckpointManifest]) -> Counts:
    counts = [each.counts for each in manifests]
    return Counts(
        read=sum(each.read for each in counts),
        on_time=sum(each.processed for each in counts),
        late=sum(each.late for each in counts),
        broken=sum(each.dead_lettered for each in counts),
    )


def _accounting(verdict: Verdict) -> Table:
    table = _table("Every record once", "", "records", "= on time", "+ late", "+ broken")
    for name, each in verdict.counts.items():
        figures = (each.read, each.on_time, each.late, each.broken)
        table.add_row(name, *(f"{value:,}" for value in figures))
    return table


def _comparison(verdict: Verdict) -> Table:
    title = "Sinks beside the answer, row for row"
    columns = ("windows", "orders", "rows missing", "rows surplus", "orders lost", "doubled")
    table = _table(title, "sink", *columns, "")
    for each in verdict.sinks:
        figures = (each.windows, each.orders, each.missing, each.surplus, each.lost, each.doubled)
        told = "[green]equal[/]" if each.is_equal else "[bold red]differs[/]"
        table.add_row(each.sink, *(f"{value:,}" for value in figures), told)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(
        *columns,
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    for column in table.columns[1:]:
        column.justify = "right"
    return table
