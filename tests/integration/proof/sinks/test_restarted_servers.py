"""A server dies around the commit, and comes back: whole epochs, each once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from infra.errors import ServiceFailed
from infra.kafka import Kafka, Listener
from infra.mariadb import Mariadb
from infra.postgres import Postgres
from infra.service import Service
from tests.integration.proof.sinks.case import PATIENCE
from tests.integration.proof.sinks.conftest import Surroundings
from tests.integration.proof.sinks.ground import Server
from tests.integration.proof.sinks.places import KINDS
from tests.services.faulty_wire import FaultyWire
from tests.services.kafka import IMPATIENT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service("postgres"),
    pytest.mark.service("mariadb"),
    pytest.mark.service("kafka"),
    pytest.mark.proof("servers killed around the commit"),
]

# As they are used: a server that confirms has it on its disk. A broker has to know its wire.
_SERVERS: Final[Mapping[Server, Callable[[Listener], Service[Any]]]] = {
    "postgres": lambda _: Postgres(),
    "mariadb": lambda _: Mariadb(),
    "kafka": lambda listener: Kafka(IMPATIENT, listeners=[listener]),
}


@dataclass
class Victim:
    """A server of one's own, and the wire to it."""

    name: Server
    server: Service[Any]
    folder: Path
    wire: FaultyWire

    def kill_and_restart(self) -> None:
        """SIGKILL; everything that is connected is cut off."""
        os.kill(self.server.identity.pid, signal.SIGKILL)
        self.server.stop()
        self.wire.cut()
        for _ in range(20):
            try:
                endpoint = self.server.start(self.folder)
            except ServiceFailed:
                # What the killed one left behind has not gone yet.
                time.sleep(0.5)
                continue
            if self.name != "kafka":
                # A broker keeps its ports.
                self.wire.forward_to(endpoint.host, endpoint.port)
            return
        raise AssertionError("the server does not start again")


@pytest.fixture(scope="module", params=_SERVERS)
def victim(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Victim]:
    folder = tmp_path_factory.mktemp(request.param)
    with ExitStack() as stack:
        wires: list[FaultyWire] = []

        def put_wire_in_front(port: int) -> tuple[str, int]:
            wires.append(stack.enter_context(FaultyWire("127.0.0.1", port)))
            return wires[-1].host, wires[-1].port

        listener = Listener("PROXIED", advertise=put_wire_in_front)
        server = stack.enter_context(_SERVERS[request.param](listener))
        endpoint = server.start(folder)
        if request.param != "kafka":
            put_wire_in_front(endpoint.port)
        yield Victim(request.param, server, folder, wires[-1])


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_around_the_commit(
    surroundings: Surroundings, victim: Victim, moment: Literal["before", "after"]
) -> None:
    """The writer lives on: it asks the ledger, and goes on from what that says."""
    kinds = tuple(kind for kind, (_, _, server) in KINDS.items() if server == victim.name)
    servers = {victim.name: victim.server.endpoint}
    case = replace(surroundings, servers=servers, doors={victim.name: victim.wire}).make(
        (*kinds, "sqlite_balances")
    )
    case.start(epochs=1).must_finish()
    hold = victim.wire.hold_next_request if moment == "before" else victim.wire.hold_next_reply
    held = hold(case.place(kinds[0]).is_commit)
    writer = case.start(patience=PATIENCE)
    held.wait()
    victim.kill_and_restart()
    servers[victim.name] = victim.server.endpoint
    victim.wire.restore()
    writer.must_finish()
    case.check_everything()
