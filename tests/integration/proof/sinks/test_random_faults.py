"""Sinks, store, epochs and faults as a seed has them, one fault after the other.

After each fault every sink holds whole epochs; in the end, every record exactly once. A seed is
replayed with ``LAMINAR_PROOF_SEED=17``, a hunt through many with ``LAMINAR_PROOF_SEED=100-999``.
"""

from __future__ import annotations

import os
import shutil

import pytest

from laminar_dagster.runtime.survey import survey
from tests.integration.proof.processes import KILLED
from tests.integration.proof.sinks.case import PATIENCE, Case
from tests.integration.proof.sinks.conftest import CaseFactory
from tests.integration.proof.sinks.ground import Server
from tests.integration.proof.sinks.random_faults import (
    VARIABLE,
    Away,
    Fault,
    Killed,
    OnTheWire,
    draw,
    seeds,
)
from tests.services.faulty_wire import FaultyWire

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service("postgres"),
    pytest.mark.service("mariadb"),
    pytest.mark.service("kafka"),
    pytest.mark.service("s3"),
    pytest.mark.proof("random faults on sinks", seed_in=VARIABLE),
]

_USUAL = 30


@pytest.mark.parametrize("seed", seeds(os.environ.get(VARIABLE), _USUAL))
def test_seed(make_wired_case: CaseFactory, wires: dict[Server, FaultyWire], seed: int) -> None:
    drawn = draw(seed)
    case = make_wired_case(drawn.kinds, drawn.store, seed=seed, epochs=drawn.epochs)
    for fault in drawn.faults:
        _suffer(case, wires, fault)
        for wire in wires.values():
            wire.restore()
        case.check_whole_epochs()
    case.finish()


def _suffer(case: Case, wires: dict[Server, FaultyWire], fault: Fault) -> None:
    """One life of a worker, in which a fault may strike."""
    match fault:
        case Killed(later, point):
            # Of one that strikes at a write and was counted before.
            shutil.rmtree(case.ground.root / "hits", ignore_errors=True)
            standing = survey(case.checkpoints)
            epoch = standing.unfinished[0] if standing.unfinished else standing.newest_epoch.next()
            # The point may be behind already, or beyond the end.
            code = case.start(kill=(epoch + later, point), patience=PATIENCE).wait()
            assert code in (0, *KILLED)
        case OnTheWire(kind, what):
            _suffer_on_the_wire(case, wires, kind, what)
        case Away(kind):
            wires[case.server_of(kind)].refuse()
            case.start().must_finish_or_fail("sink_unavailable", "connection_lost", "epoch_waits")


def _suffer_on_the_wire(case: Case, wires: dict[Server, FaultyWire], kind: str, what: str) -> None:
    place = case.place(kind)
    wire = wires[case.server_of(kind)]
    if what in ("cut", "lose reply"):
        arm = wire.cut_next_request if what == "cut" else wire.swallow_next_reply
        arm(place.is_commit)
        case.start(patience=PATIENCE).must_finish()
        return
    hold = wire.hold_next_reply if what == "hold reply and kill" else wire.hold_next_request
    held = hold(place.is_commit)
    worker = case.start(patience=PATIENCE)
    if not held.is_taken_before(lambda: not worker.process.is_alive()):
        worker.must_finish()
    elif what == "hold and stop":
        case.wait_for_the_others(survey(case.checkpoints).newest_epoch, kind)
        worker.stop()
        try:
            case.start(patience=PATIENCE, epochs=1).must_finish()
        finally:
            held.release()
            worker.wake()
        worker.must_finish()
    else:
        worker.kill()
        held.release()
