"""The store goes away before any step: the epoch ends in an error by name, and nothing is lost."""

from __future__ import annotations

import shutil
from typing import Final

import pytest

from laminar_dagster.core.errors import LaminarError, RetryError, UnknownOutcome
from laminar_dagster.runtime.epoch import EpochRunner
from tests.integration.proof.in_process import before_step
from tests.integration.proof.kill_points import STEPS
from tests.integration.proof.sinks.conftest import CaseFactory
from tests.services.faulty_wire import FaultyWire

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service("postgres"),
    pytest.mark.service("mariadb"),
    pytest.mark.service("kafka"),
    pytest.mark.service("s3"),
    pytest.mark.proof("lost stores"),
]

KINDS: Final = ("postgres_moves", "sqlite_balances", "delta_moves")
# After them the epoch is committed everywhere, and what is left is told later.
WHILE_IT_MATTERS: Final = [step for step in STEPS if step not in ("acknowledge", "collect_garbage")]


@pytest.mark.parametrize("step", WHILE_IT_MATTERS)
def test_the_stores_folder_is_renamed_away(make_case: CaseFactory, step: str) -> None:
    case = make_case(KINDS)
    pipeline = case.job().open()
    EpochRunner(pipeline).run()
    state, away = case.ground.root / "state", case.ground.root / "away"
    with before_step(step, lambda: state.rename(away)), pytest.raises(LaminarError):
        EpochRunner(pipeline).run()
    shutil.rmtree(state, ignore_errors=True)
    away.rename(state)
    assert set(case.check_whole_epochs().values()) <= {1, 2}
    case.finish()


@pytest.mark.parametrize("step", WHILE_IT_MATTERS)
def test_the_s3_server_is_away(
    make_wired_case: CaseFactory, s3_wire: FaultyWire, step: str
) -> None:
    case = make_wired_case(KINDS, "s3", epochs=2)
    pipeline = case.job().open()
    with before_step(step, s3_wire.refuse), pytest.raises((RetryError, UnknownOutcome)):
        EpochRunner(pipeline).run()
    s3_wire.restore()
    assert set(case.check_whole_epochs().values()) <= {0, 1}
    case.finish()
