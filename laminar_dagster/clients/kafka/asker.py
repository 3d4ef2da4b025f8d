"""The source or sink on whose behalf a cluster is called: decides the types of errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from laminar_dagster.core.errors import (
    AuthFailed,
    ServiceFailed,
    SinkUnavailable,
    SourceUnavailable,
)
from laminar_dagster.core.ids import SinkId, SourceId


@dataclass(frozen=True, slots=True)
class Asker:
    """A source or sink, by its name within the pipeline."""

    kind: Literal["source", "sink"]
    name: str

    @classmethod
    def source(cls, source_id: SourceId | str) -> Asker:
        """A source by its id."""
        return cls("source", str(source_id))

    @classmethod
    def sink(cls, sink_id: SinkId | str) -> Asker:
        """A sink by its id."""
        return cls("sink", str(sink_id))

    @property
    def shown(self) -> str:
        """Its kind and name, for errors."""
        return f"{self.kind} {self.name}"

    def away(self, reason: str) -> SourceUnavailable | SinkUnavailable:
        """The error for an unavailable cluster, which may be retried."""
        if self.kind == "source":
            return SourceUnavailable(self.name, reason)
        return SinkUnavailable(self.name, reason)

    def refused(self, reason: str) -> AuthFailed:
        """The error for refused credentials, or an operation that is not allowed."""
        return AuthFailed(self._cluster, reason)

    def failed(self, reason: str) -> ServiceFailed:
        """The error for a failure that is not known to be transient."""
        return ServiceFailed(self._cluster, reason)

    @property
    def _cluster(self) -> str:
        return f"the Kafka cluster of {self.kind} {self.name}"
