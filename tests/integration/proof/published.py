"""What the sinks and the store hold, read without the code that wrote it where that is possible."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.verification import verify_checkpoint
from tests.integration.proof.answer import MOVES, PER_MINUTE, Rows, answer_of, counted, moment
from tests.integration.proof.stream import NAME

_MINUTES = "SELECT page, minute, clicks, total, money, mean, least, most FROM per_minute"
_LEDGER = "SELECT epoch FROM _laminar_ledger WHERE pipeline = ? AND sink = ?"


def read_minutes(root: Path) -> tuple[int, Rows]:
    """The SQLite sink: its ledger and its rows, of one moment."""
    path = root / "out.db"
    if not path.exists():
        return 0, counted(())
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=30)) as database:
        database.execute("BEGIN")
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        ledgers: list[tuple[int]] = []
        if "_laminar_ledger" in tables:
            ledgers = database.execute(_LEDGER, (NAME, "minutes")).fetchall()
        rows = database.execute(_MINUTES).fetchall() if "per_minute" in tables else []
    return max((ledger for (ledger,) in ledgers), default=0), counted(map(_typed, rows))


def _typed(row: tuple[Any, ...]) -> tuple[Any, ...]:
    page, minute, clicks, total, money, *rest = row
    return (page, moment(minute), clicks, total, Decimal(str(money)), *rest)


def read_lake(root: Path) -> tuple[int, Rows]:
    """The Delta sink: its ledger and its rows, of one version."""
    if not (root / "lake" / "_delta_log").exists():
        return 0, counted(())
    table = DeltaTable(root / "lake")
    ledger = table.transaction_version(f"laminar:{NAME}:lake") or 0
    rows = table.to_pyarrow_table()
    if "page" not in rows.column_names:
        return ledger, counted(())
    columns = [rows.column(name).to_pylist() for name in ("page", "amount", "at")]
    return ledger, counted(zip(*columns, strict=True))


def lake_ledger_entries(root: Path) -> list[int]:
    """The epoch of each commit in the table's log, in order."""
    found = []
    for entry in sorted((root / "lake" / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in entry.read_text().split("\n") if line]
        found += [action["txn"]["version"] for action in actions if "txn" in action]
    return found


def manifests_of(checkpoints: CheckpointStore) -> list[CheckpointManifest]:
    """Of every committed epoch, from the first on."""
    found: list[CheckpointManifest] = []
    while prepared := checkpoints.prepared(EpochNumber(len(found) + 1)):
        manifest = checkpoints.manifest(prepared.checkpoint_id)
        if not manifest:
            break
        found.append(manifest)
    return found


def check_everything(
    root: Path, checkpoints: CheckpointStore, sinks: Path | None = None
) -> list[CheckpointManifest]:
    """Both sinks, both ledgers, every manifest and the accounting, for input read to its end.

    Args:
        root: The project.
        checkpoints: Its store.
        sinks: Where its sinks are, if not in the project's folder.
    """
    sinks = sinks or root
    answer = answer_of(root)
    manifests = manifests_of(checkpoints)
    newest = len(manifests)
    minutes_ledger, minutes = read_minutes(sinks)
    lake_ledger, lake = read_lake(sinks)
    _same("SQLite", minutes, answer.rows(PER_MINUTE))
    _same("Delta", lake, answer.rows(MOVES))
    assert (minutes_ledger, lake_ledger) == (newest, newest)
    assert lake_ledger_entries(sinks) == list(range(1, newest + 1))
    latest = checkpoints.latest()
    assert latest and latest.epoch == newest
    for manifest in manifests:
        problems = [file for file in verify_checkpoint(checkpoints, manifest) if file.problem]
        assert problems == [], f"epoch {manifest.epoch}: {problems}"
    _check_accounting(root, checkpoints, manifests)
    return manifests


def answer_after(
    root: Path, checkpoints: CheckpointStore, epoch: int, scratch: Path
) -> dict[str, Rows]:
    """What each sink must hold after an epoch: DuckDB's answer over files cut off where it ends."""
    cut = scratch / str(epoch)
    plan = checkpoints.plan(EpochNumber(epoch)) if epoch else None
    ends = {
        (str(source.source_id), part.end.path): part.end.byte_offset  # type: ignore[union-attr]
        for source in (plan.sources if plan else ())
        for part in source.ranges
    }
    for file in (root / "input").glob("*/*"):
        copy = cut / "input" / file.parent.name / file.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes()[: ends.get((file.parent.name, file.name), 0)])
    answer = answer_of(cut)
    return {"minutes": answer.rows(PER_MINUTE), "lake": answer.rows(MOVES)}


def check_whole_epochs(
    root: Path, checkpoints: CheckpointStore, scratch: Path, sinks: Path | None = None
) -> tuple[int, int]:
    """Each sink holds the answer after as many epochs as its ledger says; returns the ledgers."""
    ledgers = []
    for sink, read in (("minutes", read_minutes), ("lake", read_lake)):
        ledger, rows = read(sinks or root)
        right = answer_after(root, checkpoints, ledger, scratch)[sink]
        assert rows == right, f"{sink} does not hold {ledger} whole epochs"
        ledgers.append(ledger)
    return ledgers[0], ledgers[1]


def _check_accounting(
    root: Path, checkpoints: CheckpointStore, manifests: list[CheckpointManifest]
) -> None:
    counts = [manifest.counts for manifest in manifests]
    expected = answer_of(root).accounting()
    assert sum(each.read for each in counts) == expected.read
    assert sum(each.dead_lettered for each in counts) == expected.dead
    assert sum(each.late for each in counts) == expected.late
    assert all(each.is_balanced for each in counts)
    stood: dict[tuple[str, str], int] = {}
    for manifest in manifests:
        plan = checkpoints.plan(manifest.epoch)
        assert plan
        for source in plan.sources:
            for part in source.ranges:
                start, end = part.start, part.end
                key = (str(source.source_id), start.path)  # type: ignore[union-attr]
                assert start.byte_offset == stood.get(key, 0)  # type: ignore[union-attr]
                stood[key] = end.byte_offset  # type: ignore[union-attr]
    sizes = [file.stat().st_size for file in (root / "input").glob("*/*")]
    assert sorted(stood.values()) == sorted(sizes)


def _same(sink: str, found: Rows, expected: Rows) -> None:
    assert expected, "an empty answer proves nothing"
    missing, surplus = expected - found, found - expected
    assert not missing and not surplus, (
        f"{sink}: {missing.total()} rows are missing, such as {_some(missing)};"
        f" {surplus.total()} are too many, such as {_some(surplus)}"
    )


def _some(rows: Rows) -> list[tuple[Any, ...]]:
    return list(rows.elements())[:3]
