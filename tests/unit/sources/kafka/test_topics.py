"""Topics that a broker has not heard of yet, and topics that are not there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from laminar_dagster.clients.kafka.asker import Asker
from laminar_dagster.clients.kafka.cluster import Cluster, Edges, Lane, Topic
from laminar_dagster.core.errors import InvalidConfig, SourceReplaced
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import KafkaIdentity
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.sources.kafka import topics as topics_module
from laminar_dagster.sources.kafka.topics import Topics
from tests.unit.sources.kafka.batches import options

ORDERS = Topic("orders-id", (0, 1))


@dataclass
class SlowCluster(Cluster):
    """Its broker knows of a topic after it was asked so many times."""

    asker: Asker = field(default_factory=lambda: Asker("source", "orders"))
    settings: dict[str, str] = field(default_factory=dict)
    patience: float = 1.0
    heard_after: int = 0
    asked: int = 0

    def describe(self) -> tuple[str, int]:
        return "cluster", 1

    def matching(self, pattern: str) -> tuple[str, ...]:
        self.asked += 1
        return ("t",) if self.asked > self.heard_after else ()

    def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        self.asked += 1
        return dict.fromkeys(names, ORDERS) if self.asked > self.heard_after else {}

    def edges(self, lanes: Sequence[Lane], *, committed: bool = True) -> dict[Lane, Edges]:
        return dict.fromkeys(lanes, Edges(0, 5))


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_module, "_NEWS_SECONDS", 0.2)
    monkeypatch.setattr(topics_module, "_LOOK_SECONDS", 0.001)


def topics_of(cluster: Cluster, pattern: str = "") -> Topics:
    named = replace(options(), topics=(), topic_pattern=pattern) if pattern else options()
    return Topics("orders", "kafka://b:9092/t", named, cluster)


def pinned(topic_id: str) -> SourcePlan:
    identity = KafkaIdentity(cluster_id="cluster", topic_ids={"t": topic_id})
    return SourcePlan(source_id=SourceId("orders"), identity=identity, ranges=())


@pytest.mark.parametrize("pattern", ["", "t+"])
def test_a_topic_that_the_broker_hears_of_in_a_moment_is_found(pattern: str) -> None:
    cluster = SlowCluster(heard_after=3)
    look = topics_of(cluster, pattern).look(None)
    assert look.topics == {"t": ORDERS}
    assert set(look.edges) == {("t", 0), ("t", 1)}


def test_a_pinned_topic_that_is_not_heard_of_for_a_moment_is_not_taken_for_gone() -> None:
    look = topics_of(SlowCluster(heard_after=3)).look(pinned("orders-id"))
    assert look.identity.topic_ids == {"t": "orders-id"}


def test_a_topic_that_was_made_anew_while_it_was_read_is_refused() -> None:
    topics = topics_of(SlowCluster())
    topics.require_not_replaced(pinned("orders-id"))
    with pytest.raises(SourceReplaced, match="created anew"):
        topics.require_not_replaced(pinned("another-id"))
    # What is gone was read before it went.
    topics_of(SlowCluster(heard_after=10**9)).require_not_replaced(pinned("orders-id"))


def test_a_topic_that_is_there_is_asked_for_once() -> None:
    cluster = SlowCluster()
    topics_of(cluster).look(None)
    assert cluster.asked == 1


@pytest.mark.parametrize(("pattern", "told"), [("", "has no topic t"), ("t+", "matches 't\\+'")])
def test_a_topic_that_never_comes_is_a_mistake(pattern: str, told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        topics_of(SlowCluster(heard_after=10**9), pattern).look(None)


def test_a_pinned_topic_that_stays_away_is_gone() -> None:
    with pytest.raises(SourceReplaced, match="no such topic"):
        topics_of(SlowCluster(heard_after=10**9)).look(pinned("orders-id"))
