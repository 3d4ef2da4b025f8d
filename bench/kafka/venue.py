"""Where the contest takes place: one broker and one registry, and topics that are filled once."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from bench.kafka.click_topic import AVRO_SCHEMA, ClickTopic
from bench.kafka.processor_time import seconds_of
from bench.surroundings import Surroundings
from infra.kafka import Kafka
from infra.schema_registry import SchemaRegistry

# None of the options that make a broker start sooner and run slower.
_JVM: Final = ("-XX:+UseG1GC",)
_HEAP: Final = "1g"
_SUBJECT: Final = "clicks-value"


@dataclass
class Venue:
    """The services, each started when first asked for."""

    surroundings: Surroundings
    _stack: ExitStack = field(default_factory=ExitStack, repr=False)
    _kafka: Kafka | None = None
    _registry: SchemaRegistry | None = None
    _sizes: dict[ClickTopic, int] = field(default_factory=dict)

    @property
    def servers(self) -> str:
        """The broker's address."""
        return self._broker().endpoint.bootstrap

    def broker_seconds(self) -> float:
        """The processor time that the broker has used so far."""
        return seconds_of(self._broker().identity.pid)

    def registry_url(self) -> str:
        """The registry's address."""
        if self._registry is None:
            self._registry = self._stack.enter_context(SchemaRegistry())
            self._registry.start(self.surroundings.folder())
        return self._registry.endpoint.url

    def topic(self, wanted: ClickTopic) -> ClickTopic:
        """Fill a topic, unless it is there already; as it is called and named in the registry."""
        if wanted.format == "avro":
            wanted = replace(wanted, schema_id=_register(self.registry_url()))
        if wanted not in self._sizes:
            self._sizes[wanted] = wanted.produce(self.servers)
        return next(each for each in self._sizes if each == wanted)

    def mean_bytes(self, topic: ClickTopic) -> float:
        """Of a message's value."""
        return self._sizes[topic] / topic.total

    def close(self) -> None:
        """Stop the services."""
        self._stack.close()

    def _broker(self) -> Kafka:
        if self._kafka is None:
            self._kafka = self._stack.enter_context(Kafka(heap=_HEAP, jvm=_JVM))
            self._kafka.start(self.surroundings.folder())
        return self._kafka


_open: Final[list[Venue]] = []


def venue_of(surroundings: Surroundings) -> Venue:
    """The venue of this run; the benchmarks share it."""
    if not _open:
        _open.append(Venue(surroundings))
    return _open[0]


@contextmanager
def closing_venue() -> Iterator[None]:
    """Stop at the end of the block what was started within it."""
    try:
        yield
    finally:
        while _open:
            _open.pop().close()


def cores() -> int:
    """How many there are for this process."""
    return len(os.sched_getaffinity(0))


def _register(url: str) -> int:
    body = json.dumps({"schema": AVRO_SCHEMA}).encode()
    request = urllib.request.Request(
        f"{url}/subjects/{_SUBJECT}/versions",
        body,
        {"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return int(json.load(answer)["id"])
