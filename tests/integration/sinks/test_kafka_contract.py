"""The Kafka sink keeps the contract, on a real broker."""

from __future__ import annotations

import pytest

from infra.kafka import KafkaEndpoint
from laminar_dagster.testing.sink_contract import SinkContract, SinkPlace
from tests.integration.sinks.kafka_place import KafkaPlace

pytestmark = [pytest.mark.slow, pytest.mark.service("kafka")]


class TestKafkaSink(SinkContract):
    racers = 4
    kills = 5
    rows = 1000

    @pytest.fixture
    def place(self, kafka_service: KafkaEndpoint) -> SinkPlace:
        return KafkaPlace.new(kafka_service.bootstrap)
