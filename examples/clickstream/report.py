"""What the demo prints: what was survived, how fast it was, and whether the answer is right."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from examples.clickstream.answer import Comparison
from examples.clickstream.generator import Written
from examples.clickstream.story import Kill, Story, found
from laminar_dagster.core.manifest import CheckpointManifest, RecordCounts


def survived(story: Story, written: Written) -> Table:
    """Kills and bad input, and what became of each."""
    table = _table("What it survived", "what happened", "what was found", "what came of it")
    for kill in story.kills:
        table.add_row(
            f"kill -9, {kill.processes} processes, in epoch {kill.look.epoch}, {kill.moment}",
            "; ".join(found(kill)),
            _outcome(kill, story),
        )
    table.add_row(
        f"{written.late:,} stragglers",
        "more than 10 s behind their server",
        "set aside as late",
    )
    table.add_row(
        f"{written.broken:,} broken lines",
        "cut, no JSON, wrong types, no time",
        "set aside as bad, with the reason",
    )
    table.add_row(
        f"{written.repeated:,} lines sent twice",
        "equal to the last byte",
        "events like any other: they count",
    )
    return table


def _outcome(kill: Kill, story: Story) -> str:
    if kill.moment == "computing":
        return f"worker {kill.worker + 1} computed it anew, from the same plan"
    lack = len(kill.look.ledgers) - len(kill.look.having(kill.look.epoch))
    return (
        f"worker {kill.worker + 1} gave the rows of the checkpoint to the {lack} sinks that lacked"
        f" them, {story.recovery_seconds or 0:.1f} s after its start and without Spark"
    )


def epochs(story: Story, manifests: Sequence[CheckpointManifest]) -> Table:
    """What each epoch did, and how fast."""
    table = _table(
        "Epochs",
        "epoch",
        "worker",
        "events",
        "late",
        "broken",
        "rows out",
        "seconds",
        "events/s",
        "",
    )
    for column in table.columns[:-1]:
        column.justify = "right"
    cut = story.kill_in("committing")
    for manifest in manifests:
        epoch, seconds = int(manifest.epoch), _seconds(manifest)
        notes = []
        if epoch in story.cold:
            notes.append("with the start of Spark")
        if cut and cut.look.epoch == epoch:
            notes.append(f"computed by {cut.worker}, committed by {story.finished_by[epoch]}")
        table.add_row(
            str(epoch),
            str(story.finished_by[epoch]),
            f"{manifest.counts.read:,}",
            f"{manifest.counts.late:,}",
            f"{manifest.counts.dead_lettered:,}",
            f"{sum(file.rows for sink in manifest.sinks for file in sink.files):,}",
            f"{seconds:.1f}",
            f"{manifest.counts.read / seconds:,.0f}",
            "; ".join(notes),
        )
    return table


def throughput(story: Story, manifests: Sequence[CheckpointManifest]) -> str:
    """All epochs together, and the cold one by itself."""
    warm = [each for each in manifests if int(each.epoch) not in story.cold]
    events = sum(each.counts.read for each in manifests)
    count = len(story.kills)
    kills = "a kill" if count == 1 else f"{count} kills"
    starts = f"{story.workers} starts of Spark and {kills}"
    line = f"{events:,} events in {story.seconds:.0f} s, {starts} included"
    if warm:
        speed = sum(each.counts.read for each in warm) / sum(map(_seconds, warm))
        line += f"; {speed:,.0f} events/s once Spark is warm"
    first = f"the first epoch took {_seconds(manifests[0]):.1f} s, with the start of Spark"
    return f"{line}\n{first}"


def accounting(engine: RecordCounts, answer: RecordCounts, written: Written) -> tuple[Table, bool]:
    """The three counts of what became of the events, and whether they agree."""
    rows = {
        "written by the generator": (
            written.events, written.processed, written.filtered, written.late, written.broken,
        ),
        "found in the files by DuckDB": _counts(answer),
        "counted by the epochs": _counts(engine),
    }  # fmt: skip
    table = _table(
        "Every event once", "", "events", "= counted", "+ crawlers", "+ late", "+ broken"
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for name, row in rows.items():
        table.add_row(name, *(f"{value:,}" for value in row))
    return table, len(set(rows.values())) == 1 and engine.is_balanced


def comparison(found_rows: Sequence[Comparison], cut: int | None) -> Table:
    """The sinks beside the answer."""
    title = "Sinks beside the answer, row for row"
    names = ("sink", "rows", "missing", "surplus")
    more = (f"rows of epoch {cut}", "of them not exactly once") if cut else ()
    table = _table(title, *names, *more, "")
    for column in table.columns[1:-1]:
        column.justify = "right"
    for each in found_rows:
        figures = [each.rows, each.missing, each.surplus]
        if cut:
            figures += [each.of_epoch, each.of_epoch_wrong]
        verdict = "[green]equal[/]" if each.is_equal else "[bold red]differs[/]"
        table.add_row(each.sink, *(f"{value:,}" for value in figures), verdict)
    return table


def differences(console: Console, compared: Sequence[Comparison]) -> None:
    """A few of the rows that differ."""
    for each in compared:
        for line in each.examples:
            console.print(f"  {each.sink}: {line}", markup=False)


def total(manifests: Sequence[CheckpointManifest]) -> RecordCounts:
    """The counts of all epochs together."""
    names = RecordCounts.__struct_fields__
    return RecordCounts(
        **{name: sum(getattr(each.counts, name) for each in manifests) for name in names}
    )


def _counts(counts: RecordCounts) -> tuple[int, ...]:
    return (counts.read, counts.processed, counts.filtered, counts.late, counts.dead_lettered)


def _seconds(manifest: CheckpointManifest) -> float:
    return max((manifest.completed_at - manifest.started_at).total_seconds(), 0.001)


def _table(title: str, *columns: str) -> Table:
    return Table(
        *columns,
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
