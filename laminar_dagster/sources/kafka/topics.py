"""A snapshot of a source's topics and their offsets, checked against what a plan pinned."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from laminar_dagster.clients.kafka.cluster import Cluster, Edges, Lane, Topic
from laminar_dagster.core.errors import InvalidConfig, RetentionExpired, SourceReplaced
from laminar_dagster.core.offsets import KafkaIdentity
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.sources.kafka.options import KafkaOptions

# How long a missing topic is looked for, and how often.
_NEWS_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Look:
    """The topics and their offsets at one moment.

    Attributes:
        edges: The earliest offset and the end of every partition of every topic.
    """

    source_id: str
    cluster_id: str
    topics: Mapping[str, Topic]
    edges: Mapping[Lane, Edges]

    @property
    def identity(self) -> KafkaIdentity:
        """The identity that a plan pins."""
        ids = {name: topic.topic_id for name, topic in self.topics.items()}
        return KafkaIdentity(cluster_id=self.cluster_id, topic_ids=ids)

    def require_held(self, lane: Lane, offset: int) -> None:
        """Refuse an offset that was deleted.

        Raises:
            RetentionExpired: The offset was deleted.
        """
        edges = self.edges[lane]
        if offset < edges.earliest:
            topic, partition = lane
            wanted = f"offset {offset} of {topic}/{partition}"
            raise RetentionExpired(self.source_id, wanted, f"offset {edges.earliest}")

    def require_reached(self, lane: Lane, offset: int) -> None:
        """Refuse an offset that the partition does not reach.

        Raises:
            SourceReplaced: The partition is gone, or shorter.
        """
        topic, partition = lane
        edges = self.edges.get(lane)
        if edges is None:
            expected = f"partition {partition} of topic {topic}"
            raise SourceReplaced(self.source_id, expected, "no such partition")
        if offset > edges.end:
            expected = f"{topic}/{partition} up to offset {offset}"
            raise SourceReplaced(self.source_id, expected, f"{edges.end}: it was cut off")


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics that a source's options name.

    Attributes:
        address: The source's address, for errors.
    """

    source_id: str
    address: str
    options: KafkaOptions
    cluster: Cluster

    def look(self, pinned: SourcePlan | None) -> Look:
        """Query the cluster, and refuse one other than the pinned.

        Raises:
            SourceReplaced: The cluster is another, or a topic was created anew, or is gone.
            InvalidConfig: A topic does not exist, and is not pinned.
            SourceUnavailable, AuthFailed: The cluster cannot be queried.
        """
        cluster_id, pinned_ids = self._same_cluster(pinned)
        names, topics = self._find(pinned_ids)
        self._require_pinned(topics, pinned_ids)
        self._require_present(names, topics)
        lanes = [(name, number) for name, topic in topics.items() for number in topic.partitions]
        return Look(self.source_id, cluster_id, topics, self.cluster.edges(lanes))

    def require_not_replaced(self, pinned: SourcePlan) -> None:
        """Refuse topics that were created anew; deleted ones are allowed.

        Raises:
            SourceReplaced: The cluster is another, or a topic was created anew.
            SourceUnavailable, AuthFailed: The cluster cannot be queried.
        """
        _, ids = self._same_cluster(pinned)
        found = self.cluster.topics(sorted(ids)) if ids else {}
        self._require_pinned(found, {name: ids[name] for name in found})

    def _same_cluster(self, pinned: SourcePlan | None) -> tuple[str, Mapping[str, str]]:
        """The cluster's id, and the pinned ids of its topics."""
        cluster_id, _ = self.cluster.describe()
        before = pinned.identity if pinned else None
        if before is None:
            return cluster_id, {}
        if not isinstance(before, KafkaIdentity):
            raise SourceReplaced(self.source_id, f"a {type(before).__name__}", "a Kafka cluster")
        if before.cluster_id != cluster_id:
            expected = f"cluster {before.cluster_id}"
            raise SourceReplaced(self.source_id, expected, f"cluster {cluster_id}")
        return cluster_id, before.topic_ids

    def _find(self, pinned: Mapping[str, str]) -> tuple[set[str], dict[str, Topic]]:
        """The names of the wanted topics, and those topics that exist.

        A broker learns of a new topic a moment after the controller has created it, and a client
        may query any broker: a missing topic is queried again for a while.
        """
        deadline = time.monotonic() + _NEWS_SECONDS
        while True:
            names = {*self.options.topics, *pinned}
            if self.options.topic_pattern:
                names |= set(self.cluster.matching(self.options.topic_pattern))
            topics = self.cluster.topics(sorted(names)) if names else {}
            if (names and names <= topics.keys()) or time.monotonic() > deadline:
                return names, topics
            time.sleep(_LOOK_SECONDS)

    def _require_pinned(self, topics: Mapping[str, Topic], ids: Mapping[str, str]) -> None:
        for name, topic_id in ids.items():
            expected = f"topic {name} with id {topic_id}"
            found = topics.get(name)
            if found is None:
                raise SourceReplaced(self.source_id, expected, "no such topic")
            if found.topic_id != topic_id:
                now = f"a topic that was created anew, with id {found.topic_id}"
                raise SourceReplaced(self.source_id, expected, now)

    def _require_present(self, names: set[str], topics: Mapping[str, Topic]) -> None:
        missing = sorted(names - topics.keys())
        if missing or not topics:
            wanted = ", ".join(missing) or f"that matches {self.options.topic_pattern!r}"
            problem = f"source {self.source_id}: the cluster has no topic {wanted}"
            raise InvalidConfig(self.address, problem, "create it, or mend the name")
