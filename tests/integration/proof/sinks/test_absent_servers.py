"""A server that is away holds back nobody but its own sinks, and the epoch ends when it is back."""

from __future__ import annotations

import pytest

from tests.integration.proof.sinks.conftest import CaseFactory, StoreKind
from tests.integration.proof.sinks.ground import Server
from tests.integration.proof.sinks.places import TEAMS
from tests.services.faulty_wire import FaultyWire

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service("postgres"),
    pytest.mark.service("mariadb"),
    pytest.mark.service("kafka"),
    pytest.mark.service("s3"),
    pytest.mark.proof("absent servers"),
]


@pytest.mark.parametrize(
    ("server", "store"), [("postgres", "s3"), ("mariadb", "local"), ("kafka", "s3")]
)
def test_the_others_commit_meanwhile(
    make_wired_case: CaseFactory, wires: dict[Server, FaultyWire], server: Server, store: StoreKind
) -> None:
    case = make_wired_case(TEAMS[0], store)
    case.start(epochs=1).must_finish()
    wires[server].refuse()
    case.start().must_fail("sink_unavailable", "connection_lost")
    ledgers = case.check_whole_epochs()
    for place in case.places:
        assert ledgers[place.kind] == (1 if place.server == server else 2), place.kind
    wires[server].restore()
    case.finish()
