"""Who talks to a cluster: its errors are told for a source or for a sink."""

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
    """A source or a sink, by its name within the pipeline."""

    kind: Literal["source", "sink"]
    name: str

    @classmethod
    def source(cls, source_id: SourceId | str) -> Asker:
        """A source."""
        return cls("source", str(source_id))

    @classmethod
    def sink(cls, sink_id: SinkId | str) -> Asker:
        """A sink."""
        return cls("sink", str(sink_id))

    @property
    def shown(self) -> str:
        """For errors of its options."""
        return f"{self.kind} {self.name}"

    def away(self, reason: str) -> SourceUnavailable | SinkUnavailable:
        """The cluster does not answer, or not as it should; it may do so later."""
        if self.kind == "source":
            return SourceUnavailable(self.name, reason)
        return SinkUnavailable(self.name, reason)

    def refused(self, reason: str) -> AuthFailed:
        """The cluster refuses the credentials, or what they want to do."""
        return AuthFailed(self._cluster, reason)

    def failed(self, reason: str) -> ServiceFailed:
        """The cluster, or its client, says what is not known to pass."""
        return ServiceFailed(self._cluster, reason)

    @property
    def _cluster(self) -> str:
        return f"the Kafka cluster of {self.kind} {self.name}"
