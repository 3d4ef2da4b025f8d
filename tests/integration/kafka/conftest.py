"""Fixtures for everything that is fetched from a broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from infra.kafka import KafkaEndpoint
from laminar_dagster.sources.kafka.fetching import Fetcher, choose_fetcher
from laminar_dagster.sources.kafka.messages import Wanted
from tests.integration.kafka.reading import VALUES_ALONE, Kind, MakeFetcher, number
from tests.integration.kafka.streams import fresh_name
from tests.services.compiled import require_compiled, without_compiled
from tests.services.kafka import Outgoing, create_topic, delete_topic, produce


@pytest.fixture(params=["portable", "fast", "compiled"])
def kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    """Every way to fetch; the fast one without the compiled library, and with it."""
    if request.param == "compiled":
        require_compiled()
        yield "fast"
    elif request.param == "fast":
        with without_compiled():
            yield "fast"
    else:
        yield "portable"


@pytest.fixture
def make_fetcher(kind: Kind, kafka_service: KafkaEndpoint) -> MakeFetcher:
    """Makes a fetcher for the broker: ``(settings={}, wanted=Wanted())``."""

    def make(settings: Mapping[str, str] = {}, wanted: Wanted = VALUES_ALONE) -> Fetcher:
        return choose_fetcher(
            kind, {"bootstrap.servers": kafka_service.bootstrap, **settings}, wanted, "clicks"
        )

    return make


@pytest.fixture(scope="module")
def varied_topic(kafka_service: KafkaEndpoint) -> Iterator[tuple[str, int]]:
    """Many messages of many sizes, tombstones among them, and their number."""
    random = np.random.default_rng(7)
    sizes = random.choice(
        [0, 5, 12, 13, 100, 2_000, 60_000], 20_000, p=[0.1] * 3 + [0.3, 0.37, 0.02, 0.01]
    )
    sent = [
        Outgoing(None if place % 17 == 0 else number(place, int(size))[: int(size)], b"k%d" % place)
        for place, size in enumerate(sizes.tolist())
    ]
    topic = fresh_name()
    create_topic(kafka_service, topic)
    produce(kafka_service, topic, sent, settings={"linger.ms": 20})
    yield topic, len(sent)
    delete_topic(kafka_service, topic)
