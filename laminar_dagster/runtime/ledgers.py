"""The ledgers of a pipeline's sinks: the newest epoch that each has committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from laminar_dagster.core.errors import LaminarError
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.core.ports import Sink


@dataclass(frozen=True, slots=True)
class Ledgers:
    """The newest epoch of each sink, or the error of one that could not be asked."""

    found: Mapping[SinkId, EpochNumber | None] = field(default_factory=dict)
    errors: Mapping[SinkId, LaminarError] = field(default_factory=dict)

    @classmethod
    def read(cls, sinks: Iterable[Sink]) -> Ledgers:
        """Ask every sink in parallel: this takes as long as the slowest, not as their sum."""
        found: dict[SinkId, EpochNumber | None] = {}
        errors: dict[SinkId, LaminarError] = {}
        asked = {sink.sink_id: sink for sink in sinks}
        with ThreadPoolExecutor(max(1, len(asked)), thread_name_prefix="ledger") as pool:
            pending = {name: pool.submit(sink.ledger) for name, sink in asked.items()}
        for name, answer in pending.items():
            try:
                found[name] = answer.result()
            except LaminarError as error:
                errors[name] = error
        return cls(found, errors)

    def newest(self) -> EpochNumber | None:
        """The newest epoch that any sink has committed."""
        ahead = self.furthest()
        return ahead[1] if ahead else None

    def furthest(self) -> tuple[SinkId, EpochNumber] | None:
        """The sink that is furthest ahead, and its newest epoch."""
        known = [(ledger, sink) for sink, ledger in self.found.items() if ledger is not None]
        if not known:
            return None
        ledger, sink = max(known)
        return sink, ledger
