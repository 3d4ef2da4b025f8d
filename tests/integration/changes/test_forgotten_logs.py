"""Epochs whose changes the server no longer has: what needs them is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from laminar_dagster.config.project import load_project
from laminar_dagster.core import layout
from laminar_dagster.core.errors import CannotRebuild, CannotReplay
from laminar_dagster.core.ids import BranchName, EpochNumber
from laminar_dagster.runtime.assembly import assemble, known_connectors
from laminar_dagster.runtime.branches.assembly import assemble_branch
from laminar_dagster.runtime.branches.forking import fork
from laminar_dagster.runtime.branches.published import branch_sinks
from laminar_dagster.runtime.branches.replaying import Replay
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.recovery import RecoveryManager
from tests.integration.changes.captured import SECRET, CapturedDatabase
from tests.integration.changes.conftest import SERVERS
from tests.integration.changes.sales import NOW, lay_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# MySQL's log is purged as MariaDB's is.
@pytest.mark.parametrize("captured", SERVERS[:2], indirect=True)
def test_neither_mended_nor_replayed(
    captured: CapturedDatabase, tmp_path: Path, spark: SparkSession
) -> None:
    models = lay_out(captured, tmp_path, **captured.forgetful)
    secret = {SECRET: captured.options()["password"]}
    (model,) = load_project(tmp_path, secret, known_connectors())
    pipeline = assemble(model, tmp_path, lambda: spark)
    for _ in range(2):
        EpochRunner(pipeline).run()
    captured.run("UPDATE sales SET amount = amount + 1 WHERE id > 24000")
    EpochRunner(pipeline).run()
    captured.begin_another_log()
    captured.run("UPDATE sales SET amount = amount + 1 WHERE id > 28000")
    EpochRunner(pipeline).run()
    captured.forget_other_logs()

    # It goes on; but of the third epoch, nothing can be made again.
    EpochRunner(pipeline).run()
    third = pipeline.checkpoints.winner(EpochNumber(3)).manifest
    key, *_ = (
        layout.checkpoint_key(third.checkpoint_id, part.path)
        for operator in third.operators
        for part in operator.partitions
        if third.origin_of(part).checkpoint_id == third.checkpoint_id
    )
    damaged = tmp_path / "state" / key
    whole = damaged.read_bytes()
    damaged.write_bytes(b"damaged")
    held = {each: each.read_bytes() for each in (tmp_path / "state").rglob("*") if each.is_file()}
    with pytest.raises(CannotRebuild) as caught:
        RecoveryManager(pipeline).recover()
    assert int(caught.value.epoch) == 3
    assert {each: each.read_bytes() for each in held} == held
    damaged.write_bytes(whole)

    # A branch gets as far as the copy of the table, which is in the store.
    (models / "sales_now.sql").write_text(NOW.replace("10", "20"))
    (model,) = load_project(tmp_path, secret, known_connectors())
    store, name = pipeline.checkpoints.objects, BranchName("late")
    branch = assemble_branch(model, tmp_path, store, name, lambda: spark)
    made = fork(
        pipeline.checkpoints, branch, name, pipeline.name, EpochNumber(1), branch_sinks(model)
    )
    replayed = Replay(pipeline.checkpoints, branch, made.record).run()
    assert next(replayed).report.epoch == 2
    with pytest.raises(CannotReplay) as refused:
        next(replayed)
    assert int(refused.value.epoch) == 3
