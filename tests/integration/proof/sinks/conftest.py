"""The servers that the sinks of the proof write to, the wires to them, and cases on top of both."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import pytest

from infra.kafka import KafkaEndpoint
from infra.mysql_endpoint import MysqlEndpoint
from infra.postgres import PostgresEndpoint
from infra.s3 import S3Endpoint
from infra.service import Endpoint
from tests.integration.proof.sinks.case import Case
from tests.integration.proof.sinks.ground import Ground, Server
from tests.integration.proof.sinks.places import TEAMS, place_of
from tests.services.faulty_wire import FaultyWire
from tests.services.kafka import KafkaWire

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

StoreKind = Literal["local", "s3"]


@pytest.fixture(scope="session")
def proof_bucket(s3_client: S3Client) -> str:
    """A bucket for all cases of this process; it goes with the server."""
    name = f"proof-{uuid.uuid4().hex}"
    s3_client.create_bucket(Bucket=name)
    return name


@pytest.fixture(scope="session")
def servers(
    postgres_service: PostgresEndpoint,
    mariadb_service: MysqlEndpoint,
    kafka_service: KafkaEndpoint,
) -> dict[Server, Endpoint]:
    """Where the sinks' servers are."""
    return {"postgres": postgres_service, "mariadb": mariadb_service, "kafka": kafka_service}


@pytest.fixture(scope="session")
def wires(
    servers: dict[Server, Endpoint], kafka_proxy: KafkaWire
) -> Iterator[dict[Server, FaultyWire]]:
    """A way to each of them that fails on command. A broker has to know its own."""
    with ExitStack() as stack:
        yield {
            name: kafka_proxy.wire
            if name == "kafka"
            else stack.enter_context(FaultyWire(endpoint.host, endpoint.port))
            for name, endpoint in servers.items()
        }


@pytest.fixture(scope="session")
def s3_wire(s3_service: S3Endpoint) -> Iterator[FaultyWire]:
    """A way to the store's server that fails on command."""
    with FaultyWire(s3_service.host, s3_service.port) as wire:
        yield wire


class CaseFactory(Protocol):
    """Makes a case with sinks of these kinds."""

    def __call__(
        self,
        kinds: tuple[str, ...] = TEAMS[0],
        store: StoreKind = "local",
        *,
        seed: int = 7,
        epochs: int = 3,
        expiry: float = 4.0,
    ) -> Case: ...


@dataclass(frozen=True)
class Surroundings:
    """What cases are made of.

    Attributes:
        root: A folder for one case.
        bucket: Where cases have their stores, on the server `s3`.
        doors: The wires to the servers, if cases are to take them.
    """

    root: Path
    servers: dict[Server, Endpoint]
    s3: S3Endpoint
    bucket: str
    doors: dict[Server, FaultyWire] = field(default_factory=dict)
    s3_door: FaultyWire | None = None

    def make(
        self,
        kinds: tuple[str, ...] = TEAMS[0],
        store: StoreKind = "local",
        *,
        seed: int = 7,
        epochs: int = 3,
        expiry: float = 4.0,
    ) -> Case:
        """A case, with everything in its place for the first epoch."""
        ground = Ground(
            self.root,
            f"case_{uuid.uuid4().hex}",
            servers=self.servers,
            doors={name: (wire.host, wire.port) for name, wire in self.doors.items()},
            expiry=expiry,
        )
        address = "state"
        if store == "s3":
            way = f"?endpoint={self.s3_door.url}" if self.s3_door else ""
            address = f"s3://{self.bucket}/{ground.name}{way}"
        case = Case(
            ground,
            tuple(place_of(kind, ground) for kind in kinds),
            store=address,
            environment=self.s3.environment() if store == "s3" else {},
            seed=seed,
            epochs=epochs,
        )
        case.make()
        return case


@pytest.fixture
def surroundings(
    tmp_path: Path,
    servers: dict[Server, Endpoint],
    s3_service: S3Endpoint,
    proof_bucket: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Surroundings:
    """Servers that are reached directly."""
    for name, value in s3_service.environment().items():
        monkeypatch.setenv(name, value)
    return Surroundings(tmp_path, servers, s3_service, proof_bucket)


@pytest.fixture
def make_case(surroundings: Surroundings) -> CaseFactory:
    """Cases that reach their servers directly."""
    return surroundings.make


@pytest.fixture
def make_wired_case(
    surroundings: Surroundings, wires: dict[Server, FaultyWire], s3_wire: FaultyWire
) -> Iterator[CaseFactory]:
    """Cases whose every word to a server goes through a wire."""
    yield replace(surroundings, doors=wires, s3_door=s3_wire).make
    for wire in (*wires.values(), s3_wire):
        wire.restore()
