"""A wire that cuts, loses or holds back what publishes an epoch: each sink holds it exactly once.

What publishes is COMMIT for a database, EndTxn for Kafka, and a conditional PUT for the store. Of
a fault's two moments, in one the server has done nothing yet, and in the other all of it; the
client cannot tell them apart.
"""

from __future__ import annotations

import re

import pytest

from tests.integration.proof.sinks.case import PATIENCE, Case
from tests.integration.proof.sinks.conftest import CaseFactory
from tests.integration.proof.sinks.ground import Place, Server
from tests.integration.proof.sinks.places import ON_SERVERS
from tests.services.faulty_wire import FaultyWire, RequestFilter

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service("postgres"),
    pytest.mark.service("mariadb"),
    pytest.mark.service("kafka"),
    pytest.mark.service("s3"),
    pytest.mark.proof("wires to sinks and store"),
]

# The first epoch is made before the fault.
_DONE = 1


@pytest.fixture(params=ON_SERVERS)
def kind(request: pytest.FixtureRequest) -> str:
    """A sink on a server. Beside it, in the same epoch, is one that nothing happens to."""
    return str(request.param)


@pytest.fixture
def expiry(request: pytest.FixtureRequest) -> float:
    """Seconds that a transaction of Kafka may last: short, where its writer is killed."""
    return float(getattr(request, "param", 4.0))


@pytest.fixture
def case(make_wired_case: CaseFactory, kind: str, expiry: float) -> Case:
    case = make_wired_case((kind, "sqlite_moves"), expiry=expiry)
    case.start(epochs=_DONE).must_finish()
    return case


@pytest.fixture
def place(case: Case, kind: str) -> Place:
    return case.place(kind)


@pytest.fixture
def wire(wires: dict[Server, FaultyWire], case: Case, kind: str) -> FaultyWire:
    return wires[case.server_of(kind)]


def test_the_commit_is_cut_off(case: Case, place: Place, wire: FaultyWire) -> None:
    """Before the server sees it. The ledger says that nothing happened, and the epoch is redone."""
    cuts = wire.cuts
    wire.cut_next_request(place.is_commit)
    case.start(patience=PATIENCE).must_finish()
    assert wire.cuts > cuts
    case.check_everything()


def test_the_reply_is_lost(case: Case, place: Place, wire: FaultyWire) -> None:
    """After the server did it. The ledger says so, and nothing is done twice."""
    lost = wire.swallowed
    wire.swallow_next_reply(place.is_commit)
    case.start(patience=PATIENCE).must_finish()
    assert wire.swallowed > lost
    case.check_everything()


@pytest.mark.parametrize("expiry", [60.0], indirect=True, ids=[""])
def test_the_commit_is_late(case: Case, place: Place, wire: FaultyWire) -> None:
    held = wire.hold_next_request(place.is_commit)
    # What comes too late for the server is done again.
    worker = case.start(patience=PATIENCE)
    held.wait()
    assert case.check_whole_epochs()[place.kind] == _DONE
    held.release()
    worker.must_finish()
    case.check_everything()


@pytest.mark.parametrize("expiry", [60.0], indirect=True, ids=[""])
def test_the_reply_is_late(case: Case, place: Place, wire: FaultyWire) -> None:
    held = wire.hold_next_reply(place.is_commit)
    worker = case.start(patience=PATIENCE)
    held.wait()
    assert case.check_whole_epochs()[place.kind] == _DONE + 1
    held.release()
    worker.must_finish()
    case.check_everything()


def test_killed_with_everything_but_the_reply(case: Case, place: Place, wire: FaultyWire) -> None:
    held = wire.hold_next_reply(place.is_commit)
    worker = case.start()
    held.wait()
    worker.kill()
    held.release()
    assert case.check_whole_epochs()[place.kind] == _DONE + 1
    case.finish()


def test_the_commit_arrives_after_its_sender_was_killed(
    case: Case, place: Place, wire: FaultyWire
) -> None:
    """While another process already does the same epoch."""
    held = wire.hold_next_request(place.is_commit)
    worker = case.start()
    held.wait()
    worker.kill()
    assert case.check_whole_epochs()[place.kind] == _DONE
    heir = case.start(patience=PATIENCE)
    case.wait_for_step(heir, _DONE + 1, "CommitSinks")
    held.release()
    heir.must_finish()
    case.check_everything()


# --- the store ------------------------------------------------------------------------------------

# In the order in which the protocol writes them.
_OBJECTS = ("plan.json", "prepared.json", "manifest.json", "_latest")


@pytest.fixture(params=_OBJECTS)
def is_put(request: pytest.FixtureRequest) -> RequestFilter:
    """The conditional PUT of one of the objects that decide."""
    line = re.compile(rb"PUT /\S*/" + re.escape(request.param.encode()) + rb"(\?\S*)? HTTP/")
    return lambda data: line.match(data) is not None


@pytest.fixture
def case_on_s3(make_wired_case: CaseFactory) -> Case:
    case = make_wired_case(("postgres_balances", "sqlite_moves"), "s3")
    case.start(epochs=_DONE).must_finish()
    return case


def test_the_put_is_cut_off(case_on_s3: Case, s3_wire: FaultyWire, is_put: RequestFilter) -> None:
    cuts = s3_wire.cuts
    s3_wire.cut_next_request(is_put)
    case_on_s3.start(patience=PATIENCE).must_finish()
    assert s3_wire.cuts > cuts
    case_on_s3.check_everything()


def test_the_reply_to_the_put_is_lost(
    case_on_s3: Case, s3_wire: FaultyWire, is_put: RequestFilter
) -> None:
    """The client tries again, and the conflict is with itself."""
    lost = s3_wire.swallowed
    s3_wire.swallow_next_reply(is_put)
    case_on_s3.start(patience=PATIENCE).must_finish()
    assert s3_wire.swallowed > lost
    case_on_s3.check_everything()


def test_killed_with_the_put_done(
    case_on_s3: Case, s3_wire: FaultyWire, is_put: RequestFilter
) -> None:
    held = s3_wire.hold_next_reply(is_put)
    worker = case_on_s3.start()
    held.wait()
    worker.kill()
    held.release()
    case_on_s3.check_whole_epochs()
    case_on_s3.finish()


def test_the_put_arrives_after_its_sender_was_killed_and_another_went_on(
    case_on_s3: Case, s3_wire: FaultyWire, is_put: RequestFilter
) -> None:
    """It finds the object there, and changes nothing."""
    held = s3_wire.hold_next_request(is_put)
    worker = case_on_s3.start()
    held.wait()
    worker.kill()
    case_on_s3.check_whole_epochs()
    case_on_s3.start(patience=PATIENCE).must_finish()
    held.release()
    s3_wire.wait_until_idle()
    case_on_s3.check_everything()
