"""Whoever reads a sink, at whatever moment, sees whole epochs; and never fewer than before."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.stores.local import LocalStore
from tests.integration.proof.kill_points import AtSink, AtStep, KillPoint
from tests.integration.proof.processes import start
from tests.integration.proof.published import answer_after, check_everything
from tests.integration.proof.reader import digest, watching
from tests.integration.proof.stream import Layout, write_input, write_pipeline
from tests.integration.proof.worker import Job

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service("spark_connect"),
    pytest.mark.proof("a reader beside the writers"),
]

_KILLS: tuple[tuple[int, KillPoint], ...] = (
    (1, AtSink("inside", "minutes")),
    (2, AtSink("after", "lake")),
    (3, AtSink("inside", "lake")),
    (4, AtSink("after", "minutes")),
    (4, AtStep("before", "move_latest")),
)


def test_a_reader_sees_whole_epochs(tmp_path: Path, warm_spark: dict[str, str]) -> None:
    write_pipeline(tmp_path, Layout(max_records=60))
    write_input(tmp_path, 300)
    with watching(tmp_path) as seen:
        for kill in _KILLS:
            start(Job(tmp_path, warm_spark, kill=kill)).must_be_killed()
        start(Job(tmp_path, warm_spark)).must_finish()
    checkpoints = CheckpointStore(LocalStore(tmp_path / "state"))
    newest = len(check_everything(tmp_path, checkpoints))
    assert newest >= 5
    right = [
        answer_after(tmp_path, checkpoints, epoch, tmp_path / "cut") for epoch in range(newest + 1)
    ]
    for sink in ("minutes", "lake"):
        ledgers = [each.ledger for each in seen if each.sink == sink]
        assert ledgers == sorted(ledgers), f"{sink} went back"
        assert len(set(ledgers)) > 3, f"{sink} was seen at {set(ledgers)} only"
    for each in seen:
        assert each.rows == digest(right[each.ledger][each.sink]), f"part of an epoch in {each}"
