"""Reads the state of transactions, as their coordinators store it.

librdkafka cannot query coordinators. But a coordinator writes every change of a transaction to the
topic ``__transaction_state``, in a published format, and the leaders of its partitions are the
coordinators. So reading that topic gives the coordinator's answer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from laminar_dagster.clients.kafka.asker import Asker
from laminar_dagster.clients.kafka.cluster import Cluster
from laminar_dagster.clients.kafka.partition_reader import PartitionReader

STATE_TOPIC: Final = "__transaction_state"

State = Literal["open", "committing", "aborting", "over"]

_STATES: Final[dict[int, State]] = {
    0: "over",  # Empty
    1: "open",  # Ongoing
    2: "committing",  # PrepareCommit
    3: "aborting",  # PrepareAbort
    4: "over",  # CompleteCommit
    5: "over",  # CompleteAbort
    6: "over",  # Dead
    7: "aborting",  # PrepareEpochFence
}
_FLEXIBLE: Final = 1


@dataclass(frozen=True, slots=True)
class Transaction:
    """The last known state of a transactional id.

    Attributes:
        started: In milliseconds since 1970, by the coordinator's clock; -1 if none is open.
        timeout: In milliseconds.
        partitions: The partitions that the transaction has written to.
        coordinator: The address of the coordinator.
    """

    identity: str
    state: State
    producer_id: int
    producer_epoch: int
    timeout: int
    started: int
    partitions: tuple[str, ...]
    coordinator: str


def find_transactions(
    asker: Asker, cluster: Cluster, identities: Sequence[str]
) -> tuple[Transaction, ...]:
    """The stored state of transactional ids; ids that were never used are left out.

    Raises:
        SourceUnavailable, SinkUnavailable: The cluster does not answer.
        AuthFailed: The topic may not be read.
    """
    leaders = cluster.leaders(STATE_TOPIC)
    if not leaders:
        return ()
    wanted = set(identities)
    found: dict[str, Transaction] = {}
    for partition in sorted({partition_of(each, len(leaders)) for each in wanted}):
        with PartitionReader(asker, cluster, (STATE_TOPIC, partition)) as reader:
            for message in reader.news(reader.end()):
                key, value = message.key(), message.value()
                identity = identity_of(key) if isinstance(key, bytes) else None
                if identity not in wanted or identity is None:
                    continue
                if isinstance(value, bytes):
                    found[identity] = transaction_of(identity, value, leaders[partition])
                else:
                    # A tombstone: the coordinator expires ids that were unused for a week.
                    found.pop(identity, None)
    return tuple(found[each] for each in sorted(found))


def partition_of(identity: str, count: int) -> int:
    """The partition that stores a transactional id: the absolute value of Java's ``hashCode``.

    Unlike elsewhere in Kafka, where only the lower 31 bits are used. The smallest integer, which
    has no absolute value, counts as 0.
    """
    total = 0
    units = identity.encode("utf-16-be")
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        total = (31 * total + unit) & 0xFFFFFFFF
    hashed = total - 2**32 if total >= 2**31 else total
    return 0 if hashed == -(2**31) else abs(hashed) % count


def identity_of(key: bytes) -> str | None:
    """The transactional id of a record's key; None for other kinds of records."""
    if len(key) < 4 or key[:2] != b"\0\0":
        return None
    return key[4:].decode(errors="replace")


def transaction_of(identity: str, value: bytes, coordinator: str) -> Transaction:
    """Parse a record's value; see ``TransactionLogValue`` among Kafka's messages.

    Raises:
        ValueError: The version of the record is not supported.
    """
    version, producer_id, epoch, timeout, status = struct.unpack_from(">hqhib", value)
    if version not in (0, _FLEXIBLE):
        raise ValueError(f"records of version {version} in {STATE_TOPIC} are not known")
    rest = _Bytes(value, struct.calcsize(">hqhib"), version == _FLEXIBLE)
    partitions: list[str] = []
    for _ in range(rest.count()):
        topic = rest.text()
        partitions += [f"{topic}/{number}" for number in rest.numbers()]
        rest.skip_tags()
    _, started = rest.take(">qq")
    return Transaction(
        identity=identity,
        state=_STATES.get(status, "over"),
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout=timeout,
        started=started,
        partitions=tuple(sorted(partitions)),
        coordinator=coordinator,
    )


class _Bytes:
    """Parses Kafka's arrays and strings, in the old encoding or the compact one."""

    def __init__(self, data: bytes, place: int, is_compact: bool) -> None:
        self._data = data
        self._place = place
        self._is_compact = is_compact

    def take(self, form: str) -> tuple[int, ...]:
        found = struct.unpack_from(form, self._data, self._place)
        self._place += struct.calcsize(form)
        return found

    def count(self, form: str = ">i") -> int:
        """The length of the array or string that follows; null counts as 0."""
        found = self._varint() - 1 if self._is_compact else self.take(form)[0]
        return max(0, found)

    def text(self) -> str:
        length = self.count(">h")
        start, self._place = self._place, self._place + length
        return self._data[start : start + length].decode(errors="replace")

    def numbers(self) -> Iterable[int]:
        return self.take(f">{self.count()}i")

    def skip_tags(self) -> None:
        if not self._is_compact:
            return
        for _ in range(self._varint()):
            self._varint()
            size = self._varint()
            self._place += size

    def _varint(self) -> int:
        total = shift = 0
        while True:
            byte = self._data[self._place]
            self._place += 1
            total |= (byte & 127) << shift
            if byte < 128:
                return total
            shift += 7
