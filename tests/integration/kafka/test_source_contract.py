"""The published contract of sources, on a real broker, by both ways of fetching."""

from __future__ import annotations

import pytest

from infra.kafka import KafkaEndpoint
from laminar_dagster.testing.source_contract import SourceContract
from tests.integration.kafka.streams import TopicStream
from tests.services.kafka import TopicFactory

pytestmark = pytest.mark.service("kafka")


class TestPortable(SourceContract):
    @pytest.fixture
    def stream(self, kafka_service: KafkaEndpoint, kafka_topic: TopicFactory) -> TopicStream:
        return TopicStream(kafka_service, kafka_topic(), options={"reader": "portable"})


class TestFast(SourceContract):
    @pytest.fixture
    def stream(self, kafka_service: KafkaEndpoint, kafka_topic: TopicFactory) -> TopicStream:
        return TopicStream(kafka_service, kafka_topic(), options={"reader": "fast"})


class TestInSplits(SourceContract):
    @pytest.fixture
    def stream(self, kafka_service: KafkaEndpoint, kafka_topic: TopicFactory) -> TopicStream:
        return TopicStream(kafka_service, kafka_topic(), options={"split_records": 7})
