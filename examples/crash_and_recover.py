"""`make demo`: a pipeline is killed again and again, and the answer is right all the same.

A worker process runs epochs. This program kills it with SIGKILL at random moments, says what the
store shows of the epoch that was cut, and starts the next worker, until every record is through.
Then it compares the sink with an answer computed without the pipeline, damages a file on purpose
to show that it is found, and leaves the store for you to look at.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from examples.totals import RECORDS_PER_EPOCH, TotalsSink, build, numbers
from laminar_dagster.core.protocol import Finished, next_step
from laminar_dagster.core.recovery import Standing, facts_of
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.survey import newest_manifest, survey
from laminar_dagster.runtime.verification import verify_checkpoint
from laminar_dagster.stores.local import LocalStore

HOME = Path(".laminar") / "demo"
RECORDS = 40_000
EPOCHS = RECORDS // RECORDS_PER_EPOCH
KILLS = 15


def work() -> None:
    """The worker: epoch after epoch, until it is killed or caught up."""
    runner = EpochRunner(
        build(LocalStore(HOME / "store"), numbers(RECORDS), TotalsSink(HOME / "totals.db"))
    )
    while (epoch := runner.next_epoch()) <= EPOCHS:
        runner.run(epoch)


def next_of(standing: Standing, sink: TotalsSink) -> str:
    """The step that the next worker will take first, from what the last one left."""
    epoch = standing.unfinished[0] if standing.unfinished else standing.newest_epoch.next()
    step = next_step(facts_of(standing, epoch, {sink.sink_id: sink.ledger()}))
    return "a new epoch" if isinstance(step, Finished) else type(step).__name__


def main() -> int:
    """Kill, recover, compare."""
    console = Console(highlight=False)
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    store = LocalStore(HOME / "store")
    store.probe()
    sink = TotalsSink(HOME / "totals.db")
    checkpoints = CheckpointStore(store)
    console.print(
        f"[bold]{4 * RECORDS:,} records in {EPOCHS} epochs; "
        f"the worker will be killed up to {KILLS} times.[/]"
    )
    begun = time.monotonic()
    found: Counter[str] = Counter()
    with Progress(
        TextColumn("epoch {task.completed} of {task.total}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
    ) as progress:
        bar = progress.add_task("", total=EPOCHS, note="")
        kills = 0
        while True:
            worker = subprocess.Popen([sys.executable, "-m", __spec__.name, "worker"])
            try:
                worker.wait(None if kills == KILLS else random.uniform(0.4, 0.8))
            except subprocess.TimeoutExpired:
                worker.send_signal(signal.SIGKILL)
                worker.wait()
                kills += 1
            standing = survey(checkpoints)
            progress.update(bar, completed=standing.newest_epoch)
            if worker.returncode == 0:
                break
            if worker.returncode != -signal.SIGKILL:
                return worker.returncode
            step = next_of(standing, sink)
            found[step] += 1
            progress.update(bar, note=f"killed {kills} times; goes on with {step}")
    return report(console, checkpoints, sink, found, time.monotonic() - begun)


def report(
    console: Console,
    checkpoints: CheckpointStore,
    sink: TotalsSink,
    found: Counter[str],
    seconds: float,
) -> int:
    """What was survived, and whether the answer is right."""
    table = Table("after a kill, the next worker went on with", "times")
    for step, times in found.most_common():
        table.add_row(step, str(times))
    console.print(table)

    expected = [tuple(row) for row in numbers(RECORDS).expected()]
    if sink.rows() != expected:
        console.print("[bold red]the sink differs from the answer[/]")
        return 1
    console.print(
        f"[bold green]{len(expected):,} rows, each exactly once,[/] "
        f"after {sum(found.values())} kills, in {seconds:.0f} s"
    )

    manifest = newest_manifest(checkpoints, survey(checkpoints))
    assert manifest is not None
    key, _, _ = next(iter(manifest.files()))
    data = checkpoints.objects.read(key)
    checkpoints.objects.put(key, bytes([data[0] ^ 1]) + data[1:])
    problems = [each for each in verify_checkpoint(checkpoints, manifest) if each.problem]
    checkpoints.objects.put(key, data)
    if [each.key for each in problems] != [key]:
        console.print("[bold red]a damaged file was not found[/]")
        return 1
    console.print("One flipped bit in a state file: [bold green]found[/] (and put back).")
    console.print("\nLook around:")
    for line in (
        f".venv/bin/laminar checkpoints list --store {HOME}/store",
        f".venv/bin/laminar checkpoints show latest --store {HOME}/store",
        f".venv/bin/laminar checkpoints verify --store {HOME}/store",
        f".venv/bin/laminar checkpoints gc --dry-run --store {HOME}/store",
    ):
        console.print(f"  {line}")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        work()
    else:
        sys.exit(main())
