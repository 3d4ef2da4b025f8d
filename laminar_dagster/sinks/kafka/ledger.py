"""How far a sink is: records in partition 0 of a compacted topic, written with the epoch's rows.

Every group of partitions has a record of its own, moved by its own transaction. Group 0 leads: it
commits an epoch first, and its record says into how many groups and partitions the epoch is cut.
The others follow what it says. So a topic that grows, or committers that race, cannot cut an epoch
in two ways; and an epoch is there when every group that the leader names is at it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from laminar_dagster.core.errors import MalformedDocument
from laminar_dagster.core.ids import EpochNumber, PipelineName, SinkId
from laminar_dagster.sinks.changes import Unwritable

LEDGER_PARTITION: Final = 0
LEDGER_CONFIG: Final = {
    "cleanup.policy": "compact",
    # Every epoch adds a record, and a commit reads them all: small segments are compacted soon.
    "segment.bytes": str(2**20),
    "min.cleanable.dirty.ratio": "0.1",
}
_VERSION: Final = 1


class LedgerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A group of a sink is at an epoch.

    Attributes:
        previous: The epoch of the whole sink before; None when it is the first.
        instances: How many groups there are.
        partitions: How many partitions the epoch's rows are spread over.
        topic_id: Of the topic that holds the epochs: a new one of the same name has another.
        ledger_id: Of the topic that this record was written to.
        output_sha256: Of the rows.
    """

    version: int
    pipeline: str
    sink: str
    group: int
    epoch: int
    previous: int | None
    instances: int
    partitions: int
    topic: str
    topic_id: str
    ledger_id: str
    output_sha256: str
    committed_at: str


@dataclass(frozen=True, slots=True)
class LedgerKey:
    """Whose records."""

    pipeline: PipelineName
    sink_id: SinkId

    def of(self, group: int) -> bytes:
        """The key of a group's record. Names hold no slash."""
        return f"{self.pipeline}/{self.sink_id}/{group}".encode()

    def group_of(self, key: bytes | None) -> int | None:
        """Which of the sink's groups a key is of; None for somebody else's."""
        before, _, group = (key or b"").rpartition(b"/")
        is_own = before == f"{self.pipeline}/{self.sink_id}".encode() and group.isdigit()
        return int(group) if is_own else None


def encode(record: LedgerRecord) -> bytes:
    """A record as it is written."""
    return msgspec.json.encode(record)


def decode(value: bytes | None, where: str) -> LedgerRecord:
    """A record as it was written.

    Raises:
        MalformedDocument: It was not written by a sink.
    """
    try:
        return msgspec.json.decode(value or b"", type=LedgerRecord)
    except msgspec.MsgspecError as error:
        raise MalformedDocument(where, str(error)) from None


def new_record(
    key: LedgerKey,
    group: int,
    epoch: EpochNumber,
    cut: Cut,
    place: Place,
    output_sha256: str,
    committed_at: str,
) -> LedgerRecord:
    """The record that says that a group is at an epoch."""
    return LedgerRecord(
        version=_VERSION,
        pipeline=str(key.pipeline),
        sink=str(key.sink_id),
        group=group,
        epoch=int(epoch),
        previous=cut.previous,
        instances=cut.instances,
        partitions=cut.partitions,
        topic=place.topic,
        topic_id=place.topic_id,
        ledger_id=place.ledger_id,
        output_sha256=output_sha256,
        committed_at=committed_at,
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sink writes: names, and the ids that tell a topic from a later one of its name.

    Attributes:
        partitions: How many the topic has now.
        largest: How many bytes the topic takes for one message; None if that is not known.
    """

    topic: str
    topic_id: str
    partitions: int
    ledger: str
    ledger_id: str
    largest: int | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """How an epoch is cut into transactions."""

    previous: int | None
    instances: int
    partitions: int


@dataclass(frozen=True, slots=True)
class Standing:
    """What the ledger says of one sink: the newest record of each group."""

    records: Mapping[int, LedgerRecord]

    @property
    def leader(self) -> LedgerRecord | None:
        """The record of the group that leads."""
        return self.records.get(0)

    @property
    def epoch(self) -> EpochNumber | None:
        """The last epoch that is there as a whole; None before the first."""
        if self.leader is None:
            return None
        found = self.leader.previous if self.lagging else self.leader.epoch
        return None if found is None else EpochNumber(found)

    @property
    def lagging(self) -> tuple[int, ...]:
        """The groups that are yet to follow their leader."""
        leader = self.leader
        if leader is None:
            return ()
        return tuple(
            group
            for group in range(1, leader.instances)
            if (record := self.records.get(group)) is None or record.epoch != leader.epoch
        )

    def require_kept(self, place: Place) -> None:
        """Refuse to go on over topics that are not those of the epochs so far.

        Raises:
            Unwritable: The topic or the ledger was made anew, or is another one.
        """
        leader = self.leader
        if leader is None:
            return
        if leader.topic != place.topic:
            raise Unwritable(
                f"its epochs so far are in topic `{leader.topic}`;"
                " for another topic, give the sink another name"
            )
        if leader.topic_id != place.topic_id:
            raise Unwritable(
                f"topic `{place.topic}`, which held its epochs so far, is gone: the one of that"
                f" name has the id {place.topic_id}, and it had {leader.topic_id}"
            )
        if leader.ledger_id != place.ledger_id:
            raise Unwritable(
                f"topic `{place.ledger}` is not the one that this ledger was written to:"
                " its records were copied from another"
            )

    def require_same_cut(self, instances: int, output_sha256: str) -> None:
        """Before an epoch is finished that another committer has begun.

        Raises:
            Unwritable: It was cut, or made, in another way.
        """
        leader = self.leader
        if leader is None:
            return
        if leader.instances != instances:
            raise Unwritable(
                f"epoch {leader.epoch} was begun with instances = {leader.instances}, and groups"
                f" {', '.join(map(str, self.lagging))} are not there yet;"
                " set it back until the epoch is finished"
            )
        if leader.output_sha256 != output_sha256:
            raise Unwritable(f"epoch {leader.epoch} was begun with other rows")
