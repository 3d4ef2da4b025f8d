"""The ledger of a Kafka sink: records in partition 0 of a compacted topic, committed with the rows.

Every group of partitions has its own record, updated by its own transaction. Group 0 leads: it
commits an epoch first, and its record says into how many groups and partitions the epoch is split.
The other groups follow that record. So a topic that grows, or committers that race, cannot split an
epoch in two ways; and an epoch is published once every group that the leader counts is at it.
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
    # A commit reads the whole topic, which grows with every epoch: small segments compact early.
    "segment.bytes": str(2**20),
    "min.cleanable.dirty.ratio": "0.1",
}
_VERSION: Final = 1


class LedgerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record that a group of a sink has committed an epoch.

    Attributes:
        previous: The epoch of the whole sink before; None when it is the first.
        instances: How many groups there are.
        partitions: How many partitions the epoch's rows are spread over.
        topic_id: The id of the output topic, which changes if the topic is deleted and recreated.
        ledger_id: The id of the ledger topic that this record was written to.
        output_sha256: The digest of the epoch's output.
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
    """Identifies the ledger records of one sink."""

    pipeline: PipelineName
    sink_id: SinkId

    def of(self, group: int) -> bytes:
        """The key of a group's record. Unambiguous, since names contain no slash."""
        return f"{self.pipeline}/{self.sink_id}/{group}".encode()

    def group_of(self, key: bytes | None) -> int | None:
        """The group in a record's key; None if the key belongs to another sink."""
        before, _, group = (key or b"").rpartition(b"/")
        is_own = before == f"{self.pipeline}/{self.sink_id}".encode() and group.isdigit()
        return int(group) if is_own else None


def encode(record: LedgerRecord) -> bytes:
    """The JSON of a record."""
    return msgspec.json.encode(record)


def decode(value: bytes | None, where: str) -> LedgerRecord:
    """Parse the JSON of a record.

    Raises:
        MalformedDocument: The value is not a ledger record.
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
    """The record that a group has committed an epoch."""
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
    """Where a sink writes: topic names, and ids that change if a topic is deleted and recreated.

    Attributes:
        partitions: The topic's current number of partitions.
        largest: The topic's maximum message size in bytes; None if it is not known.
    """

    topic: str
    topic_id: str
    partitions: int
    ledger: str
    ledger_id: str
    largest: int | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """How an epoch is split into transactions.

    Attributes:
        previous: The epoch of the whole sink before; None before the first.
        instances: The number of groups, each with its own transaction.
        partitions: The number of partitions over which rows are spread.
    """

    previous: int | None
    instances: int
    partitions: int


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of one sink in the ledger: the newest record of each group."""

    records: Mapping[int, LedgerRecord]

    @property
    def leader(self) -> LedgerRecord | None:
        """The record of group 0, which commits each epoch first."""
        return self.records.get(0)

    @property
    def epoch(self) -> EpochNumber | None:
        """The last epoch that all groups have committed; None before the first."""
        if self.leader is None:
            return None
        found = self.leader.previous if self.lagging else self.leader.epoch
        return None if found is None else EpochNumber(found)

    @property
    def lagging(self) -> tuple[int, ...]:
        """The groups that have not committed the leader's epoch yet."""
        leader = self.leader
        if leader is None:
            return ()
        return tuple(
            group
            for group in range(1, leader.instances)
            if (record := self.records.get(group)) is None or record.epoch != leader.epoch
        )

    def require_kept(self, place: Place) -> None:
        """Refuse topics other than the ones that hold the epochs so far.

        Raises:
            Unwritable: The output or the ledger topic was recreated, or is another one.
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
        """Check that an epoch that another committer began can be finished.

        Raises:
            Unwritable: It was split into another number of groups, or has other rows.
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
