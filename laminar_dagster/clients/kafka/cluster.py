"""Questions to a Kafka cluster: which topics there are, what they hold, where a group stands.

A server that does not answer is asked again, after 100 ms at first and 30 s at most, until the
patience for it is used up. One that refuses the credentials is not asked twice.
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

# How long one request may take, the last one too, and how often to look whether it failed for good.
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
    """What a partition holds: the offsets [earliest, end)."""

    earliest: int
    end: int


@dataclass
class Cluster:
    """A connection for questions, made with the first one.

    Attributes:
        asker: Who asks, for errors.
        settings: Of librdkafka.
        patience: How long to try, in seconds.
    """

    asker: Asker
    settings: Mapping[str, str] = field(repr=False)
    patience: float
    _admin: AdminClient | None = field(init=False, default=None, repr=False)
    _refusal: LaminarError | None = field(init=False, default=None, repr=False)
    _trouble: str = field(init=False, default="")

    def __getstate__(self) -> dict[str, Any]:
        """All but the connection."""
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
        """Those of the topics that there are."""
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
        """Who leads each partition of a topic; nothing if there is no such topic."""
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
        """Make a topic; one that is there already is left as it is.

        Args:
            name: Of the topic.
            partitions: How many; -1 leaves it to the cluster.
            replication: How many copies of each; -1 leaves it to the cluster.
            config: What is to hold for it.
            only_ask: Whether to ask the cluster if it would, and make nothing.

        Returns:
            Why the cluster does not make such a topic; empty if it does.
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
        """What holds for a topic; empty if this user may not know."""
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
        """What partitions hold now.

        Args:
            lanes: Which.
            committed: Whether they end at the first transaction that is still open.
        """
        if not lanes:
            return {}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        earliest = self._offsets(lanes, OffsetSpec.earliest(), level)  # type: ignore[no-untyped-call]
        # Asked for last: a partition never holds less than what was seen here.
        ends = self._offsets(lanes, OffsetSpec.latest(), level)  # type: ignore[no-untyped-call]
        return {lane: Edges(min(earliest[lane], ends[lane]), ends[lane]) for lane in lanes}

    def group_offsets(self, group: str, lanes: Sequence[Lane]) -> dict[Lane, int]:
        """Where a group stands, in the partitions of which it holds an offset."""
        wanted = [TopicPartition(*lane) for lane in lanes]
        found = self._ask_as_member(
            group,
            f"read the offsets of group {group}",
            lambda member, seconds: member.committed(wanted, timeout=seconds),
        )
        return {(part.topic, part.partition): part.offset for part in found if part.offset >= 0}

    def commit(self, group: str, offsets: Mapping[Lane, int]) -> None:
        """Write down where a group stands."""
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
        """Ask a group's coordinator, as a member would that never joins.

        The admin client has such questions too. But when the connection to the coordinator breaks
        under one of them, librdkafka uses what it has freed, and ends the process.

        Raises:
            SourceUnavailable, SinkUnavailable: There is no answer, for all our patience.
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
        """Told by librdkafka of what goes wrong behind a request that has not been answered."""
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
        """Ask until there is an answer; what is absent is left out of it.

        Args:
            what: For errors.
            request: Asks, in so much time.
            absent: Errors that are answers.
            problems: Errors that are inside of an answer.
            told: Filled with the errors that are answers.

        Raises:
            SourceUnavailable, SinkUnavailable: There is none, for all our patience.
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
        """Raise what cannot pass; remember the rest for the end of the patience."""
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


# A topic is known to its leader a moment after it is known to the others. And of partitions whose
# leader is being connected to again, librdkafka says that they have none.
_NOT_THERE_YET: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._NOENT})  # noqa: SLF001

# No topic can be made like this here, now or later.
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
    """A connection that was lost under the request leaves an answer without an offset."""
    return [] if answer.offset >= 0 else [KafkaError(KafkaError.OFFSET_NOT_AVAILABLE)]


def _pauses(deadline: float) -> Iterator[float]:
    """How long to wait after each attempt, until a moment: longer each time, never in step."""
    pause = FIRST_PAUSE
    yield _jittered(pause)
    while (left := deadline - time.monotonic()) > 0:
        pause = min(2 * pause, LONGEST_PAUSE)
        yield min(_jittered(pause), left)


def _time_for_request(deadline: float) -> float:
    return min(_REQUEST_SECONDS, max(_LEAST_SECONDS, deadline - time.monotonic()))


def _jittered(pause: float) -> float:
    return pause * random.uniform(0.5, 1.5)
