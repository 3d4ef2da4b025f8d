"""A pipeline from a table to a table, in Spark: it equals the live query, also after damage.

It is run again alike, mended, branched, compared and promoted, on every server.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laminar_dagster.config.project import load_project
from laminar_dagster.core import layout
from laminar_dagster.core.ids import BranchName, EpochNumber
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.runtime.assembly import assemble, known_connectors
from laminar_dagster.runtime.branches.assembly import assemble_branch
from laminar_dagster.runtime.branches.comparing import compare_outputs
from laminar_dagster.runtime.branches.dropping import drop
from laminar_dagster.runtime.branches.forking import fork
from laminar_dagster.runtime.branches.promoting import Promoter
from laminar_dagster.runtime.branches.published import branch_sinks
from laminar_dagster.runtime.branches.replaying import Replay
from laminar_dagster.runtime.collector import Retention, collect
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.recovery import RecoveryManager
from laminar_dagster.runtime.rerun import rerun
from laminar_dagster.runtime.verification import verify_checkpoint
from tests.integration.changes.captured import SECRET, CapturedDatabase
from tests.integration.changes.sales import BEGIN, NOW, lay_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_views_equal_the_live_queries(
    captured: CapturedDatabase, tmp_path: Path, spark: SparkSession
) -> None:
    models = lay_out(captured, tmp_path)
    password = captured.options()["password"]
    secret = {SECRET: password}
    (model,) = load_project(tmp_path, secret, known_connectors())
    pipeline = assemble(model, tmp_path, lambda: spark)
    runner = EpochRunner(pipeline)
    for _ in range(2):
        runner.run()
    captured.run(
        "UPDATE sales SET amount = amount + 1 WHERE id % 500 = 0 AND id > 24000",
        "DELETE FROM sales WHERE id BETWEEN 25000 AND 26000",
    )
    # Closes every window before it.
    captured.insert("sales", [(100_000, "p0", 11, BEGIN + timedelta(seconds=661))])
    runner.run()
    assert _now(tmp_path) == _live_now(captured, lambda _, product: product)
    found = _rows(
        tmp_path,
        "SELECT product, unixepoch(minute) / 60, revenue, sales FROM minutes",
    )
    assert {(a, b, round(c, 2), d) for a, b, c, d in found} == _live_minutes(captured)
    # Of the snapshot, and of the stream.
    assert all(rerun(pipeline, EpochNumber(epoch)).is_identical for epoch in (1, 3))
    store = pipeline.checkpoints.objects
    manifest = pipeline.checkpoints.winner(EpochNumber(1)).manifest
    assert all(each.problem is None for each in verify_checkpoint(pipeline.checkpoints, manifest))
    assert not any(password.encode() in store.read(info.key) for info in store.list(""))
    _recover(pipeline, tmp_path / "state")
    # A branch that begins within the snapshot goes on with the pipeline's copy of it.
    (models / "sales_now.sql").write_text(
        NOW.replace("id, product", "id, upper(product) AS product")
    )
    (model,) = load_project(tmp_path, secret, known_connectors())
    fixed = assemble(model, tmp_path, lambda: spark)
    branch = assemble_branch(model, tmp_path, store, BranchName("fix"), lambda: spark)
    made = fork(
        pipeline.checkpoints, branch, BranchName("fix"), fixed.name, EpochNumber(1),
        branch_sinks(model),
    )  # fmt: skip
    copied = branch.checkpoints.latest()
    assert copied is not None
    begun = branch.checkpoints.manifest(copied.checkpoint_id)
    assert begun is not None
    looked_at = verify_checkpoint(branch.checkpoints, begun)
    to_come = [each.problem for each in looked_at if each.key.startswith(layout.SNAPSHOTS)]
    assert to_come == [None] * len(to_come)
    assert to_come
    replay = Replay(pipeline.checkpoints, branch, made.record)
    assert [done.report.epoch for done in replay.run()] == [2, 3]
    compared = [*compare_outputs(pipeline.checkpoints, made.record)]
    assert {(each.sink_id, int(each.epoch)): each.is_same for each in compared} == {
        (sink, epoch): sink == "minutes" for sink in ("now", "minutes") for epoch in (2, 3)
    }
    # While the branch may be needed, so is the copy.
    collect(pipeline.checkpoints, Retention(1), pipeline.clock.now())
    assert _copied(store)
    Promoter(fixed, replay).promote()
    captured.run("UPDATE sales SET amount = 99 WHERE id = 100000")
    EpochRunner(fixed).run()
    # What the first epoch has published stays.
    assert _now(tmp_path) == _live_now(
        captured, lambda key, product: product.upper() if key >= 20000 else product
    )
    drop(fixed.checkpoints, tmp_path, BranchName("fix"), fixed.clock)
    pipeline = fixed
    # When no checkpoint is left that stands before its end, the files of the snapshot go.
    assert len(_copied(store)) > 1
    collect(pipeline.checkpoints, Retention(1), pipeline.clock.now())
    left = [info.key for info in store.list(layout.SNAPSHOTS)]
    assert left == [layout.snapshot_key(model.sources[0].source_id, 1)]


def _recover(pipeline: Pipeline, state: Path) -> None:
    """State that was computed from the snapshot and from the stream, damaged and mended."""
    files = [
        layout.checkpoint_key(each.checkpoint_id, part.path)
        for epoch in (1, 3)
        for each in [pipeline.checkpoints.winner(EpochNumber(epoch)).manifest]
        for operator in each.operators
        for part in operator.partitions
        if each.origin_of(part).checkpoint_id == each.checkpoint_id
    ]
    whole = {key: (state / key).read_bytes() for key in files}
    assert len(whole) > 1
    for key in files:
        (state / key).write_bytes(b"damaged")
    result = RecoveryManager(pipeline).recover()
    assert {each.damage.key for each in result.repairs} >= set(files)
    assert {key: (state / key).read_bytes() for key in files} == whole


def _copied(store: ObjectStore) -> list[str]:
    """The files of the copy."""
    return [info.key for info in store.list(layout.SNAPSHOTS) if info.key.endswith(".arrow")]


def _now(root: Path) -> set[tuple[Any, ...]]:
    return _rows(root, "SELECT id, product, amount FROM now")


def _live_now(captured: CapturedDatabase, shown: Callable[[int, str], str]) -> set[tuple[Any, ...]]:
    live = captured.fetch("SELECT id, product, amount FROM sales WHERE amount > 10")
    return {(key, shown(key, product), float(amount)) for key, product, amount in live}


def _live_minutes(captured: CapturedDatabase) -> set[tuple[Any, ...]]:
    """Of the windows that are closed."""
    groups: dict[tuple[str, int], list[Decimal]] = {}
    for product, amount, at in captured.fetch("SELECT product, amount, at FROM sales"):
        moment = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
        if moment < BEGIN + timedelta(minutes=10):
            group = (product, int(moment.timestamp()) // 60)
            groups.setdefault(group, []).append(amount)
    return {(*group, float(sum(amounts)), len(amounts)) for group, amounts in groups.items()}


def _rows(root: Path, query: str) -> set[tuple[Any, ...]]:
    with closing(sqlite3.connect(root / "out.db")) as connection:
        return set(connection.execute(query).fetchall())
