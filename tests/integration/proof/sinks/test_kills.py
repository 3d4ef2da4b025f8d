"""Killed before or after any step, or inside any sink: every sink holds every record exactly once.

Every system is a sink of the one pipeline. A worker is killed with SIGKILL at one place. Each sink
then holds whole epochs, as many as its ledger says; another process goes on; in the end all of them
equal what plain Python makes of the input, and the store tells the same story.
"""

from __future__ import annotations

import pytest

from tests.integration.proof.kill_points import EVERY_STEP, AtSink, AtStep, AtWrite, KillPoint
from tests.integration.proof.sinks.case import PATIENCE
from tests.integration.proof.sinks.conftest import CaseFactory
from tests.integration.proof.sinks.places import KINDS, TEAMS, team_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service("postgres"),
    pytest.mark.service("mariadb"),
    pytest.mark.service("kafka"),
    pytest.mark.service("s3"),
    pytest.mark.proof("kills with every kind of sink"),
]

POINTS: tuple[KillPoint, ...] = (
    *EVERY_STEP,
    *(AtSink("inside", kind) for kind in KINDS),
    *(AtSink("after", kind) for kind in KINDS),
    AtWrite("after", 1, "staged", "/staged/"),
    AtWrite("after", 1, "offsets", r"\.offsets$"),
)


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_local_store_second_epoch(make_case: CaseFactory, point: KillPoint) -> None:
    case = make_case(_team(point, TEAMS[0]))
    case.start(kill=(2, point)).must_be_killed()
    ledgers = case.check_whole_epochs()
    assert set(ledgers.values()) <= {1, 2}
    case.finish()


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_s3_store_first_epoch(make_case: CaseFactory, point: KillPoint) -> None:
    """Nothing is there yet: no table, no topic, no ledger."""
    case = make_case(_team(point, TEAMS[1]), "s3", epochs=2)
    case.start(kill=(1, point)).must_be_killed()
    ledgers = case.check_whole_epochs()
    assert set(ledgers.values()) <= {0, 1}
    case.finish()


TWICE: tuple[tuple[KillPoint, KillPoint], ...] = (
    (AtStep("after", "compute"), AtStep("after", "prepare")),
    (AtStep("after", "prepare"), AtStep("after", "write_manifest")),
    (AtStep("after", "write_manifest"), AtSink("after", "kafka_moves")),
    (AtSink("after", "postgres_moves"), AtStep("before", "commit_sinks")),
    (AtSink("after", "delta_moves"), AtSink("inside", "mysql_balances")),
    (AtSink("inside", "kafka_moves"), AtSink("inside", "kafka_moves")),
    (AtSink("inside", "sqlite_balances"), AtStep("before", "move_latest")),
    (AtStep("after", "commit_sinks"), AtStep("after", "move_latest")),
)


@pytest.mark.parametrize("points", TWICE, ids=lambda pair: "-then-".join(map(str, pair)))
def test_killed_again_while_recovering(
    make_case: CaseFactory, points: tuple[KillPoint, KillPoint]
) -> None:
    case = make_case()
    for point in points:
        case.start(kill=(2, point), patience=PATIENCE).must_be_killed()
        assert set(case.check_whole_epochs().values()) <= {1, 2}
    case.finish()


def _team(point: KillPoint, usual: tuple[str, ...]) -> tuple[str, ...]:
    return team_of(point.sink) if isinstance(point, AtSink) else usual
