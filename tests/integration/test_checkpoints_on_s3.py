"""Checkpoints on a real S3 server, behind a wire that can be cut."""

from __future__ import annotations

import pytest

from infra.s3 import S3Endpoint
from laminar_dagster.core import layout
from laminar_dagster.core.errors import RetryError, UnknownOutcome
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.stores.s3 import S3Store
from tests.services.faulty_wire import WireFactory
from tests.unit.runtime.checkpoint_behaviour import CheckpointBehaviour
from tests.unit.runtime.conditions import World

pytestmark = pytest.mark.service("s3")


def open_s3(
    monkeypatch: pytest.MonkeyPatch, endpoint: S3Endpoint, bucket: str, url: str | None = None
) -> S3Store:
    for name, value in endpoint.environment().items():
        monkeypatch.setenv(name, value)
    return S3Store(bucket, "base", endpoint_url=url or endpoint.url, region=endpoint.region)


class TestOnS3(CheckpointBehaviour):
    @pytest.fixture
    def store(
        self, monkeypatch: pytest.MonkeyPatch, s3_service: S3Endpoint, s3_bucket: str
    ) -> ObjectStore:
        return open_s3(monkeypatch, s3_service, s3_bucket)


# Every document whose creation decides something, and the pointer.
DECISIONS = [
    b"plan.json",
    b"attempt.json",
    b"prepared.json",
    b"manifest.json",
    b"_latest",
]


@pytest.mark.parametrize("document", DECISIONS)
@pytest.mark.parametrize("fault", ["cut_next_request", "swallow_next_reply"])
def test_a_lost_request_or_reply_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
    s3_service: S3Endpoint,
    s3_bucket: str,
    faulty_wire: WireFactory,
    document: bytes,
    fault: str,
) -> None:
    """The wire fails at the moment a document is written; the epoch ends right all the same."""
    wire = faulty_wire(s3_service.host, s3_service.port)
    store = open_s3(monkeypatch, s3_service, s3_bucket, wire.url)
    world = World()
    world.log.partitions = [[1, 2, 3], [4]]
    runner = EpochRunner(world.pipeline(store))
    getattr(wire, fault)(when=lambda data: data.startswith(b"PUT") and document in data)
    for _ in range(3):
        try:
            runner.run()
        except (RetryError, UnknownOutcome):
            continue
    assert sorted(world.table.rows) == world.log.expected()
    # Dropping a reply cuts its connection too.
    assert (wire.cuts, wire.swallowed) == ((1, 0) if fault == "cut_next_request" else (1, 1))
    plans = [info.key for info in store.list(layout.EPOCHS) if info.key.endswith("plan.json")]
    assert len(plans) == len(set(plans)) >= 1
    assert world.table.epochs == sorted(set(world.table.epochs))
