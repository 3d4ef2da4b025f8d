"""Find, check and create the output and ledger topics of a Kafka sink."""

from __future__ import annotations

import time
from typing import Final

from laminar_dagster.clients.kafka.cluster import Cluster, Topic
from laminar_dagster.core.errors import SinkUnavailable
from laminar_dagster.core.ids import SinkId
from laminar_dagster.sinks.changes import Unwritable
from laminar_dagster.sinks.kafka.ledger import LEDGER_CONFIG, Place
from laminar_dagster.sinks.kafka.options import KafkaSinkOptions

_LOOK_SECONDS: Final = 0.05


class SinkTopics:
    """The output and the ledger topic of a sink."""

    def __init__(self, sink_id: SinkId, options: KafkaSinkOptions, cluster: Cluster) -> None:
        """Describe the topics. No request is sent yet."""
        self._sink_id = sink_id
        self._options = options
        self._cluster = cluster

    def find(self) -> tuple[Topic | None, Topic | None]:
        """The output and the ledger topic; None for one that does not exist.

        Raises:
            SinkUnavailable, AuthFailed: The cluster cannot be asked.
        """
        names = (self._options.topic, self._options.ledger_topic)
        found = self._cluster.topics(names)
        return found.get(names[0]), found.get(names[1])

    def place(self) -> Place:
        """The topics to write to; creates missing ones, if that is allowed.

        Raises:
            Unwritable: A topic is missing, or cannot be created.
            SinkUnavailable, AuthFailed: The cluster cannot be asked.
        """
        output, ledger = self.find()
        if output is None or ledger is None:
            self._make(output, ledger, only_ask=False)
            output, ledger = self._wait_for_both()
        largest = self._cluster.config_of(self._options.topic).get("max.message.bytes")
        return Place(
            topic=self._options.topic,
            topic_id=output.topic_id,
            partitions=len(output.partitions),
            ledger=self._options.ledger_topic,
            ledger_id=ledger.topic_id,
            largest=int(largest) if largest else None,
        )

    def check(self) -> Place | None:
        """Check that the topics exist, or could be created. Creates nothing.

        Returns:
            The place; None if a topic is yet to be created.

        Raises:
            Unwritable: A topic is missing and cannot be created, or the ledger is not compacted.
            SinkUnavailable, AuthFailed: The cluster cannot be asked.
        """
        output, ledger = self.find()
        if ledger is not None:
            self._check_ledger()
        if output is not None and ledger is not None:
            return self.place()
        self._make(output, ledger, only_ask=True)
        return None

    def _check_ledger(self) -> None:
        """Refuse a ledger topic that deletes old records: the sink would look like a new one.

        Raises:
            Unwritable: The topic's cleanup policy is not ``compact``.
        """
        policy = self._cluster.config_of(self._options.ledger_topic).get("cleanup.policy")
        if policy is not None and policy != "compact":
            raise Unwritable(
                f"topic `{self._options.ledger_topic}` has the cleanup.policy `{policy}`, with"
                " which the ledger would be lost one day; set it to `compact`"
            )

    def _make(self, output: Topic | None, ledger: Topic | None, *, only_ask: bool) -> None:
        new, options = self._options.new_topics, self._options
        missing = [
            name
            for name, found in ((options.topic, output), (options.ledger_topic, ledger))
            if found is None
        ]
        for name in missing:
            if not new.allowed:
                raise Unwritable(f"there is no topic `{name}`; make it, or set create = 'true'")
            is_ledger = name == options.ledger_topic
            problem = self._cluster.make_topic(
                name,
                partitions=1 if is_ledger else new.partitions,
                replication=new.replication,
                config=LEDGER_CONFIG if is_ledger else {},
                only_ask=only_ask,
            )
            if problem:
                raise Unwritable(f"topic `{name}` cannot be made: {problem}")

    def _wait_for_both(self) -> tuple[Topic, Topic]:
        """Wait until both topics are visible: a new one is not known to every broker at once."""
        deadline = time.monotonic() + self._options.limits.connect
        while True:
            output, ledger = self.find()
            if output is not None and ledger is not None:
                return output, ledger
            if time.monotonic() > deadline:
                raise SinkUnavailable(self._sink_id, "topics that were made are not there yet")
            time.sleep(_LOOK_SECONDS)
