"""What Dagster knows of an epoch's runs."""

from __future__ import annotations

import dagster as dg

from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.orchestration.run_history import attempts_at
from tests.unit.orchestration.conditions import Stage


def test_attempts_are_counted_however_many_there_are(stage: Stage) -> None:
    """An epoch whose sink is away for a day: each attempt needs a run key of its own."""
    tags = {"dagster/partition": "000000000001"}
    for _ in range(103):
        run = dg.DagsterRun("clicks_commit", tags=tags, status=dg.DagsterRunStatus.FAILURE)
        stage.instance.add_run(run)
    found = attempts_at(stage.instance, "clicks_commit", EpochNumber(1))
    assert found.count == 103
    assert found.failure == "unknown"
    assert found.under_way is None
