"""Queries a Kafka cluster: its topics, their offsets, and the offsets of groups.

A request that gets no answer is retried, after 100 ms at first and up to 30 s, until ``patience``
is used up. Refused credentials are not retried.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import ListOffsetsResultInfo, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from laminar_dagster.clients.kafka.asker import Asker
from laminar_dagster.clients.kafka.consumer_settings import consumer_settings
from laminar_dagster.clients.kafka.failures import failure_of
from laminar_dagster.clients.kafka.properties import refused_settings
from laminar_dagster.core.errors import LaminarError

log = logging.getLogger(__name__)

Lane = tuple[str, int]
_KeyT = TypeVar("_KeyT")

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 30.0

# The longest and shortest timeout of a request, and how often to look for a refusal meanwhile.
_REQUEST_SECONDS: Final = 10.0
_LEAST_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: a new one of the same name has another id."""

    topic_id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Edges:
    """The offsets that a partition holds: [earliest, end)."""

    earliest: int
    end: int


@dataclass
class Cluster:
    """An admin connection to a cluster, opened with the first query.

    Attributes:
        asker: The source or sink, for errors.
        settings: librdkafka's settings.
        patience: How long to retry, in seconds.
    """

    asker: Asker
    settings: Mapping[str, str] = field(repr=False)
    patience: float
    _admin: AdminClient | None = field(init=False, default=None, repr=False)
    _refusal: LaminarError | None = field(init=False, default=None, repr=False)
    _trouble: str = field(init=False, default="")

    def __getstate__(self) -> dict[str, Any]:
        """Leave the connection out of a pickle."""
        return {**self.__dict__, "_admin": None, "_refusal": None, "_trouble": ""}

    def describe(self) -> tuple[str, int]:
        """The cluster's id, and how many brokers it has."""
        found = self._ask(
            "describe the cluster", lambda admin, limit: {"": admin.describe_cluster(**limit)}
        )[""]
        return str(found.cluster_id), len(found.nodes)

    def matching(self, pattern: str) -> tuple[str, ...]:
        """The names of the topics that a regular expression matches whole, sorted."""
        wanted = re.compile(pattern)
        deadline = time.monotonic() + self.patience
        for pause in _pauses(deadline):
            try:
                known = self._connection().list_topics(timeout=_time_for_request(deadline)).topics
            except KafkaException as error:
                self._judge(error.args[0], "list the topics")
                time.sleep(pause)
                continue
            own = (name for name in known if not name.startswith("__"))
            return tuple(sorted(name for name in own if wanted.fullmatch(name)))
        raise self._away("list the topics")

    def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        """Describe those of the topics that exist."""
        found = self._ask(
            "describe the topics",
            lambda admin, limit: admin.describe_topics(TopicCollection(list(names)), **limit),
            absent=frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART}),
        )
        return {
            name: Topic(str(topic.topic_id), tuple(sorted(each.id for each in topic.partitions)))
            for name, topic in sorted(found.items())
        }

    def leaders(self, name: str) -> dict[int, str]:
        """The leader of each partition of a topic; empty if there is no such topic."""
        found = self._ask(
            f"describe topic {name}",
            lambda admin, limit: admin.describe_topics(TopicCollection([name]), **limit),
            absent=frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART}),
        )
        return {
            part.id: f"{part.leader.host}:{part.leader.port}" if part.leader else "none"
            for topic in found.values()
            for part in topic.partitions
        }

    def make_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication: int = -1,
        config: Mapping[str, str] = MappingProxyType({}),
        only_ask: bool = False,
    ) -> str:
        """Create a topic; an existing one is left as it is.

        Args:
            name: The topic's name.
            partitions: How many; -1 for the cluster's default.
            replication: How many replicas of each; -1 for the cluster's default.
            config: The topic's configuration.
            only_ask: Whether only to validate the request, without creating anything.

        Returns:
            Why the cluster refuses to create the topic; empty if it does not.
        """
        wanted = NewTopic(name, partitions, replication_factor=replication, config=dict(config))
        told: dict[str, KafkaError] = {}
        self._ask(
            f"make topic {name}",
            lambda admin, limit: admin.create_topics([wanted], validate_only=only_ask, **limit),
            absent=_NOT_AS_WANTED | {KafkaError.TOPIC_ALREADY_EXISTS},
            told=told,
        )
        error = told.get(name)
        if error is None or error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return ""
        return f"{error.str()} ({error.name()})"

    def config_of(self, name: str) -> dict[str, str]:
        """The configuration of a topic; empty if this user may not read it."""
        wanted = ConfigResource(ConfigResource.Type.TOPIC, name)
        found = self._ask(
            f"ask how topic {name} is set up",
            lambda admin, limit: admin.describe_configs([wanted], **limit),
            absent=frozenset(
                {
                    KafkaError.TOPIC_AUTHORIZATION_FAILED,
                    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
                    KafkaError.UNKNOWN_TOPIC_OR_PART,
                }
            ),
        )
        return {
            key: str(entry.value)
            for each in found.values()
            for key, entry in each.items()
            if entry.value is not None
        }

    def edges(self, lanes: Sequence[Lane], *, committed: bool = True) -> dict[Lane, Edges]:
        """The offsets that partitions hold now.

        Args:
            lanes: The partitions.
            committed: Whether to end at the last stable offset, before open transactions.
        """
        if not lanes:
            return {}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        earliest = self._offsets(lanes, OffsetSpec.earliest(), level)  # type: ignore[no-untyped-call]
        # Queried last, so that the end is never before an earliest offset seen above.
        ends = self._offsets(lanes, OffsetSpec.latest(), level)  # type: ignore[no-untyped-call]
        return {lane: Edges(min(earliest[lane], ends[lane]), ends[lane]) for lane in lanes}

    def group_offsets(self, group: str, lanes: Sequence[Lane]) -> dict[Lane, int]:
        """A group's committed offsets, where it has any."""
        wanted = [TopicPartition(*lane) for lane in lanes]
        found = self._ask_as_member(
            group,
            f"read the offsets of group {group}",
            lambda member, seconds: member.committed(wanted, timeout=seconds),
        )
        return {(part.topic, part.partition): part.offset for part in found if part.offset >= 0}

    def commit(self, group: str, offsets: Mapping[Lane, int]) -> None:
        """Commit a group's offsets."""
        parts = [TopicPartition(*lane, offset) for lane, offset in sorted(offsets.items())]
        self._ask_as_member(
            group,
            f"write the offsets of group {group}",
            lambda member, _: member.commit(offsets=parts, asynchronous=False),
        )

    def _ask_as_member(
        self,
        group: str,
        what: str,
        request: Callable[[Consumer, float], Sequence[TopicPartition]],
    ) -> Sequence[TopicPartition]:
        """Query a group's coordinator with a consumer that never joins the group.

        The admin client has such queries too. But if the connection to the coordinator breaks
        during one, librdkafka uses memory after freeing it, and crashes the process.

        Raises:
            SourceUnavailable, SinkUnavailable: No answer within ``patience``.
            AuthFailed: The credentials were refused.
        """
        deadline = time.monotonic() + self.patience
        limit = round(_time_for_request(deadline) * 1000)
        own = {"group.id": group, "session.timeout.ms": str(limit)}
        with refused_settings(self.asker.shown, self.settings):
            member = Consumer({**consumer_settings(self.settings), **own}, logger=log)
        try:
            for pause in _pauses(deadline):
                try:
                    found = request(member, _time_for_request(deadline))
                    problems = [part.error for part in found if part.error is not None]
                except KafkaException as error:
                    problems = [error.args[0]]
                if not problems:
                    return found
                for problem in problems:
                    self._judge(problem, what)
                time.sleep(pause)
        finally:
            member.close()
        raise self._away(what)

    def _offsets(
        self,
        lanes: Sequence[Lane],
        where: OffsetSpec,
        isolation: IsolationLevel,
    ) -> dict[Lane, int]:
        request = {TopicPartition(*lane): where for lane in lanes}
        found = self._ask(
            "ask for offsets",
            lambda admin, limit: admin.list_offsets(request, isolation_level=isolation, **limit),
            problems=_problems_of_offset,
        )
        return {(part.topic, part.partition): answer.offset for part, answer in found.items()}

    def _connection(self) -> AdminClient:
        if self._admin is None:
            self._refusal, self._trouble = None, ""
            settings: dict[str, Any] = {**self.settings, "error_cb": self._note}
            with refused_settings(self.asker.shown, self.settings):
                self._admin = AdminClient(settings, logger=log)
        return self._admin

    def _note(self, error: KafkaError) -> None:
        """Called by librdkafka with errors while a request is pending."""
        self._trouble = error.str()
        failure = failure_of(error, self.asker, self.settings["bootstrap.servers"])
        if failure is not None:
            self._refusal = failure

    def _ask(
        self,
        what: str,
        request: Callable[[AdminClient, Mapping[str, Any]], Mapping[_KeyT, Future[Any]]],
        absent: frozenset[int] = frozenset(),
        problems: Callable[[Any], Sequence[KafkaError]] = lambda _: (),
        told: dict[_KeyT, KafkaError] | None = None,
    ) -> dict[_KeyT, Any]:
        """Send a request until it is answered.

        Args:
            what: What is requested, for errors.
            request: Sends the request, with a timeout.
            absent: Error codes that count as an answer; such keys are left out of the result.
            problems: Finds errors inside of an answer.
            told: Receives the errors of ``absent``, by key.

        Raises:
            SourceUnavailable, SinkUnavailable: No answer within ``patience``.
            AuthFailed: The credentials were refused.
        """
        deadline = time.monotonic() + self.patience
        for pause in _pauses(deadline):
            admin = self._connection()
            pending = dict(request(admin, {"request_timeout": _time_for_request(deadline)}))
            while wait(pending.values(), _LOOK_SECONDS).not_done:
                admin.poll(0)
                if self._refusal is not None:
                    refusal, self._admin = self._refusal, None
                    raise refusal
            answers: dict[_KeyT, Any] = {}
            failed = False
            for key, each in pending.items():
                error = each.exception()
                if error is None:
                    answers[key] = each.result()
                    for problem in problems(answers[key]):
                        self._judge(problem, what)
                        failed = True
                elif not isinstance(error, KafkaException):
                    raise error
                elif error.args[0].code() not in absent:
                    self._judge(error.args[0], what)
                    failed = True
                elif told is not None:
                    told[key] = error.args[0]
            if not failed:
                return answers
            time.sleep(pause)
        raise self._away(what)

    def _judge(self, error: KafkaError, what: str) -> None:
        """Raise an error unless it is transient; keep the first one's text for the final error."""
        self._trouble = self._trouble or error.str()
        if error.retriable() or error.code() in _NOT_THERE_YET:
            return
        failure = failure_of(error, self.asker, what)
        if failure is not None:
            self._admin = None
            raise failure

    def _away(self, what: str) -> LaminarError:
        self._admin = None
        servers = self.settings["bootstrap.servers"]
        reason = f"cannot {what} at {servers} within {self.patience:g} s"
        return self.asker.away(f"{reason}: {self._trouble or 'no answer'}")


# A new topic is known to its leader a moment later than to other brokers. And librdkafka reports
# _NOENT for partitions while it reconnects to their leader.
_NOT_THERE_YET: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._NOENT})  # noqa: SLF001

# Permanent: the cluster will never create a topic with these parameters.
_NOT_AS_WANTED: Final = frozenset(
    {
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_REQUEST,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.POLICY_VIOLATION,
    }
)


def _problems_of_offset(answer: ListOffsetsResultInfo) -> list[KafkaError]:
    """A connection lost during the request yields an answer without an offset: treat as error."""
    return [] if answer.offset >= 0 else [KafkaError(KafkaError.OFFSET_NOT_AVAILABLE)]


def _pauses(deadline: float) -> Iterator[float]:
    """The pauses after each attempt, until a deadline: exponential backoff with jitter."""
    pause = FIRST_PAUSE
    yield _jittered(pause)
    while (left := deadline - time.monotonic()) > 0:
        pause = min(2 * pause, LONGEST_PAUSE)
        yield min(_jittered(pause), left)


def _time_for_request(deadline: float) -> float:
    return min(_REQUEST_SECONDS, max(_LEAST_SECONDS, deadline - time.monotonic()))


def _jittered(pause: float) -> float:
    return pause * random.uniform(0.5, 1.5)
