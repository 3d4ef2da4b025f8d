"""Positions of a source: offsets, half-open ranges, and the identity of a source.

A position is a tagged union with one variant for each family of sources. No field has a default:
a missing offset is an error, because 0 would re-read or skip everything.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, assert_never

from msgspec import Meta, field

from laminar_dagster.core.document import (
    Document,
    Natural,
    Record,
    Text,
    decode_part,
    encode_part,
)
from laminar_dagster.core.ids import CheckpointId, EpochNumber, SourceId

UInt64 = Annotated[int, Meta(ge=0)]
KafkaPartition = Annotated[int, Meta(ge=0, le=2**31 - 1)]

_BINLOG_FILE: Final = re.compile(r".+\.[0-9]+")


class _Position(Record, frozen=True, kw_only=True, tag_field="type"):
    """A place in one partition of a source."""


class KafkaPosition(_Position, frozen=True, kw_only=True, tag="kafka"):
    """The next offset to read of a topic's partition."""

    topic: Text
    partition: KafkaPartition
    offset: Natural


class SnapshotProgress(Record, frozen=True, kw_only=True):
    """How many rows of a source's snapshot have been read; see ``core.snapshot``."""

    number: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    rows: Natural


class PostgresPosition(_Position, frozen=True, kw_only=True, tag="postgres_cdc"):
    """The log sequence number up to which a replication slot has been read.

    Attributes:
        snapshot: Where the snapshot that precedes the LSN is still being read; None after it.
    """

    lsn: UInt64
    slot: Text
    snapshot: SnapshotProgress | None = None

    def __post_init__(self) -> None:
        """Check what the JSON schema cannot say: a limit above 63 bits."""
        _require_64_bits("lsn", self.lsn)


class MysqlPosition(_Position, frozen=True, kw_only=True, tag="mysql_cdc"):
    """A place in the binary log; with the GTID set executed up to there, where there is one.

    Attributes:
        snapshot: As for PostgreSQL.
    """

    binlog_file: Text
    binlog_position: UInt64
    gtid_set: str | None = None
    snapshot: SnapshotProgress | None = None

    def __post_init__(self) -> None:
        """Check what the JSON schema cannot say."""
        _require_64_bits("binlog_position", self.binlog_position)
        if not _BINLOG_FILE.fullmatch(self.binlog_file):
            raise ValueError("`binlog_file` must end with the log's number")


class FilePosition(_Position, frozen=True, kw_only=True, tag="file"):
    """The next byte to read of a file."""

    path: Text
    byte_offset: UInt64

    def __post_init__(self) -> None:
        """Check what the JSON schema cannot say."""
        _require_64_bits("byte_offset", self.byte_offset)
        if "\0" in self.path:
            raise ValueError("`path` must not hold NUL")


class CustomPosition(_Position, frozen=True, kw_only=True, tag="custom"):
    """A position of a custom source.

    The bytes must sort as the stream runs; a big-endian number does.
    """

    source_type: Text
    position_bytes: bytes


SourcePosition = KafkaPosition | PostgresPosition | MysqlPosition | FilePosition | CustomPosition


def lane_of(position: SourcePosition) -> tuple[str | int, ...]:
    """The partition of the source that a position belongs to."""
    match position:
        case KafkaPosition(topic=topic, partition=partition):
            return ("kafka", topic, partition)
        case PostgresPosition(slot=slot):
            return ("postgres_cdc", slot)
        case MysqlPosition():
            return ("mysql_cdc",)
        case FilePosition(path=path):
            return ("file", path)
        case CustomPosition(source_type=source_type):
            return ("custom", source_type)
        case _:
            assert_never(position)


def describe_position(position: SourcePosition) -> tuple[str, str]:
    """The partition of a source, and the place in it, as the source's own tools write them."""
    match position:
        case KafkaPosition(topic=topic, partition=partition, offset=offset):
            return f"{topic}/{partition}", f"offset {offset}"
        case PostgresPosition(slot=slot, lsn=lsn, snapshot=snapshot):
            return f"slot {slot}", _within(snapshot, f"lsn {lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}")
        case MysqlPosition(binlog_file=file, binlog_position=offset, gtid_set=gtids):
            at = f"{file}:{offset}" + (f", gtid {gtids}" if gtids else "")
            return "", _within(position.snapshot, at)
        case FilePosition(path=path, byte_offset=offset):
            return path, f"byte {offset}"
        case CustomPosition(source_type=source_type, position_bytes=data):
            return source_type, f"0x{data.hex()}"
        case _:
            assert_never(position)


def progress_of(position: SourcePosition) -> tuple[Any, ...]:
    """How far along its lane a position is: later ones compare greater."""
    match position:
        case KafkaPosition(offset=offset):
            return (offset,)
        case PostgresPosition(lsn=lsn, snapshot=snapshot):
            return (lsn, *_read_of(snapshot))
        case MysqlPosition(binlog_file=file, binlog_position=offset, snapshot=snapshot):
            # As a number: it may have more than six digits, so the text does not sort.
            return (int(file.rpartition(".")[2]), offset, *_read_of(snapshot))
        case FilePosition(byte_offset=offset):
            return (offset,)
        case CustomPosition(position_bytes=data):
            return (data,)
        case _:
            assert_never(position)


def position_to_json(position: SourcePosition) -> bytes:
    """The canonical JSON of a position."""
    return encode_part(position)


def position_from_json(data: bytes) -> SourcePosition:
    """Read a position.

    Raises:
        MalformedDocument: names the missing, wrong or unknown member, or the unknown type.
    """
    position: SourcePosition = decode_part(data, SourcePosition, "source position")  # type: ignore[arg-type]
    return position


class SourceOffset(Record, frozen=True, kw_only=True):
    """A source's position in one of its partitions."""

    source_id: SourceId
    position: SourcePosition


class SourceOffsets(Document, frozen=True, kw_only=True):
    """The file of a checkpoint with one source's positions, to seek without the manifest.

    It names its checkpoint, so that a file swapped with another epoch's is noticed.
    """

    source_id: SourceId
    epoch: EpochNumber
    checkpoint_id: CheckpointId
    positions: tuple[SourcePosition, ...]


class SourceRange(Record, frozen=True, kw_only=True):
    """The half-open range [start, end) of one partition that an epoch reads."""

    start: SourcePosition
    end: SourcePosition

    def __post_init__(self) -> None:
        """Refuse a range across partitions, or one that runs backwards."""
        if lane_of(self.start) != lane_of(self.end):
            raise ValueError(f"a range must stay in one partition: {self.start} and {self.end}")
        if progress_of(self.end) < progress_of(self.start):
            raise ValueError(f"a range must not run backwards: {self.start} to {self.end}")

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read."""
        return progress_of(self.start) == progress_of(self.end)


class Gap(Record, frozen=True, kw_only=True):
    """Records that were lost before they could be read, accepted by an explicit setting."""

    lost: SourceRange
    reason: Text


# --- identities: pinned by a plan, so that a replaced source is noticed -------------------------


class KafkaIdentity(Record, frozen=True, kw_only=True, tag_field="type", tag="kafka"):
    """The cluster, and the id of each topic: a topic that is created again has another id."""

    cluster_id: Text
    topic_ids: dict[str, str]


class PostgresTable(Record, frozen=True, kw_only=True):
    """A table of a database, at one place in the log.

    Attributes:
        oid: Its id: a table that is created again under its name has another.
        columns: The declared columns that it has.
        lacks: The declared columns that it does not have.
        members: The ids of its membership in the publication: they change if the table is removed
            and added again.
    """

    oid: Natural
    columns: tuple[str, ...]
    lacks: tuple[str, ...] = ()
    members: tuple[Natural, ...] = ()


class PostgresIdentity(Record, frozen=True, kw_only=True, tag_field="type", tag="postgres_cdc"):
    """The database cluster, its timeline, and the slot.

    Attributes:
        database: The id of the database: one that is created again under its name has another.
        tables: Each table as of the end of the planned range. Plans of earlier versions have none;
            a table that is missing here is not checked.
    """

    system_id: Text
    timeline: Natural
    slot: Text
    database: Natural | None = None
    tables: dict[str, PostgresTable] = field(default_factory=dict)


class LogMark(Record, frozen=True, kw_only=True):
    """An event of a binary log, to recognise the log: another log has another event there, or none.

    Attributes:
        start: The byte of the file at which it begins.
        checksum: The CRC-32 of the event.
    """

    binlog_file: Text
    start: Natural
    checksum: Natural


class MysqlIdentity(Record, frozen=True, kw_only=True, tag_field="type", tag="mysql_cdc"):
    """The server that wrote the binary log, and what identifies the log and its tables.

    Attributes:
        server_uuid: The server's UUID. MariaDB has none: there it is ``server_id`` and its number.
        mark: The last event before the end of the planned range, or the first of its file.
        tables: For each table, the types of the columns that are read, as of that event.
    """

    server_uuid: Text
    mark: LogMark | None = None
    tables: dict[str, dict[str, str]] = field(default_factory=dict)


class FileIdentity(Record, frozen=True, kw_only=True, tag_field="type", tag="file"):
    """For each file by path, a fingerprint that growth does not change."""

    fingerprints: dict[str, str]


class CustomIdentity(Record, frozen=True, kw_only=True, tag_field="type", tag="custom"):
    """The identity of a custom source."""

    source_type: Text
    identity: str


SourceIdentity = KafkaIdentity | PostgresIdentity | MysqlIdentity | FileIdentity | CustomIdentity


def _within(snapshot: SnapshotProgress | None, place: str) -> str:
    if snapshot is None:
        return place
    return f"row {snapshot.rows} of snapshot {snapshot.number}, before {place}"


def _read_of(snapshot: SnapshotProgress | None) -> tuple[int, int, int]:
    """The progress in a snapshot, which sorts before the log at the same position."""
    return (1, 0, 0) if snapshot is None else (0, snapshot.number, snapshot.rows)


def _require_64_bits(name: str, value: int) -> None:
    if not 0 <= value < 2**64:
        raise ValueError(f"`{name}` must be between 0 and 2^64 - 1")
