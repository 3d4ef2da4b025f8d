"""Hypothesis strategies for identifiers, positions and whole documents, all of them valid."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from hypothesis import strategies as st

from laminar_dagster.core import layout
from laminar_dagster.core.document import FORMAT_VERSION
from laminar_dagster.core.ids import (
    MAX_EPOCH,
    CheckpointId,
    EpochNumber,
    FileName,
    OperatorId,
    PartitionId,
    PipelineName,
    SinkId,
    SourceId,
)
from laminar_dagster.core.manifest import (
    CheckpointManifest,
    DeadLetterEntry,
    FileEntry,
    OperatorSnapshotEntry,
    Origin,
    PartitionSnapshotEntry,
    RecordCounts,
    SinkEntry,
    SourceOffsetEntry,
    SourceReading,
)
from laminar_dagster.core.offsets import (
    CustomIdentity,
    CustomPosition,
    FileIdentity,
    FilePosition,
    Gap,
    KafkaIdentity,
    KafkaPosition,
    MysqlIdentity,
    MysqlPosition,
    PostgresIdentity,
    PostgresPosition,
    PostgresTable,
    SnapshotProgress,
    SourceIdentity,
    SourcePosition,
    SourceRange,
    lane_of,
    progress_of,
)
from laminar_dagster.core.plan import EpochPlan, ParentCheckpoint, Quiet, SinkPlan, SourcePlan

T = TypeVar("T")

UINT63 = st.integers(0, 2**63 - 1)
UINT64 = st.integers(0, 2**64 - 1)
MICROS = st.integers(-(2**63) + 1, 2**63 - 1)
# Any text JSON can hold; a lone surrogate is none.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
SHA256 = st.binary(min_size=32, max_size=32).map(bytes.hex)
MOMENTS = st.integers(0, 250_000_000_000_000_000).map(
    lambda micros: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
)

# Two fillers of Hangul are letters that nobody can see, which no name may hold.
_LETTERS = st.characters(
    categories=["Lu", "Ll", "Lo", "Nd"], exclude_characters="\u115f\u1160"
).filter(lambda letter: unicodedata.normalize("NFKC", letter) == letter)
_PUNCTUATION = st.sampled_from("_-.")


def is_good_name(text: str) -> bool:
    """The rules of names, said a second time."""
    return (
        0 < len(text.encode()) <= 200
        and not text.startswith(".")
        and not text.endswith(".")
        and unicodedata.normalize("NFKC", text) == text
    )


names = st.one_of(
    st.text("abcxyz019_-.", min_size=1, max_size=12),
    st.text(_LETTERS | _PUNCTUATION, min_size=1, max_size=40),
    st.text("z", min_size=199, max_size=200),
).filter(is_good_name)

checkpoint_ids = st.builds(
    # Up to the last millisecond that a datetime can name.
    CheckpointId.from_parts,
    st.integers(0, 253_402_300_799_999),
    st.integers(0, 2**74 - 1),
)
epochs = st.integers(1, MAX_EPOCH).map(EpochNumber)
partition_ids = st.integers(0, 2**32 - 1).map(PartitionId)

kafka_positions = st.builds(
    KafkaPosition, topic=TEXT, partition=st.integers(0, 2**31 - 1), offset=UINT63
)
snapshot_progress = st.none() | st.builds(
    SnapshotProgress, number=st.integers(1, 2**63 - 1), rows=UINT63
)
postgres_positions = st.builds(PostgresPosition, lsn=UINT64, slot=TEXT, snapshot=snapshot_progress)
mysql_positions = st.builds(
    MysqlPosition,
    binlog_file=st.builds(
        lambda stem, number: f"{stem}.{number:06d}",
        st.text("abc-.", min_size=1, max_size=8),
        st.integers(1, 2**31),
    ),
    binlog_position=UINT64,
    gtid_set=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    snapshot=snapshot_progress,
)
file_positions = st.builds(
    FilePosition, path=TEXT.filter(lambda path: "\0" not in path), byte_offset=UINT64
)
custom_positions = st.builds(
    CustomPosition, source_type=TEXT, position_bytes=st.binary(max_size=12)
)
positions: st.SearchStrategy[SourcePosition] = st.one_of(
    kafka_positions, postgres_positions, mysql_positions, file_positions, custom_positions
)

identities: st.SearchStrategy[SourceIdentity] = st.one_of(
    st.builds(KafkaIdentity, cluster_id=TEXT, topic_ids=st.dictionaries(TEXT, TEXT, max_size=2)),
    st.builds(
        PostgresIdentity,
        system_id=TEXT,
        timeline=UINT63,
        slot=TEXT,
        tables=st.dictionaries(
            TEXT,
            st.builds(PostgresTable, oid=UINT63, columns=st.lists(TEXT, max_size=2).map(tuple)),
            max_size=2,
        ),
    ),
    st.builds(MysqlIdentity, server_uuid=TEXT),
    st.builds(FileIdentity, fingerprints=st.dictionaries(TEXT, TEXT, max_size=2)),
    st.builds(CustomIdentity, source_type=TEXT, identity=TEXT),
)


@st.composite
def ranges(draw: st.DrawFn) -> SourceRange:
    """A range of Kafka, or an empty one of anything."""
    start = draw(positions)
    if not isinstance(start, KafkaPosition):
        return SourceRange(start=start, end=start)
    end = draw(st.integers(start.offset, 2**63 - 1))
    return SourceRange(
        start=start,
        end=KafkaPosition(topic=start.topic, partition=start.partition, offset=end),
    )


gaps = st.builds(Gap, lost=ranges(), reason=TEXT)


def unique_names(kind: type[T], most: int = 3) -> st.SearchStrategy[list[T]]:
    return st.lists(names.map(kind), max_size=most, unique=True)


@st.composite
def source_plans(draw: st.DrawFn, source_id: SourceId) -> SourcePlan:
    parts = draw(st.lists(ranges(), max_size=3, unique_by=lambda part: lane_of(part.start)))
    idle = [part.start for part in parts if progress_of(part.start) == progress_of(part.end)]
    return SourcePlan(
        source_id=source_id,
        identity=draw(identities),
        ranges=tuple(parts),
        idle=tuple(idle),
        gaps=tuple(draw(st.lists(gaps, max_size=1))),
        quiet=tuple(Quiet(position=each, since=draw(MOMENTS)) for each in idle),
    )


@st.composite
def plans(draw: st.DrawFn) -> EpochPlan:
    epoch = draw(epochs)
    below = None
    if epoch > 1:
        below = ParentCheckpoint(
            checkpoint_id=draw(checkpoint_ids),
            epoch=epoch.previous(),
            manifest_checksum=draw(SHA256),
        )
    return EpochPlan(
        version=FORMAT_VERSION,
        plan_id=draw(checkpoint_ids),
        pipeline=PipelineName(draw(names)),
        epoch=epoch,
        clock=draw(MOMENTS),
        fingerprint=draw(TEXT),
        parent=below,
        sources=tuple(draw(source_plans(name)) for name in draw(unique_names(SourceId, 2))),
        sinks=tuple(
            SinkPlan(sink_id=name, joined_at=EpochNumber(draw(st.integers(1, epoch))))
            for name in draw(unique_names(SinkId))
        ),
    )


@st.composite
def chains(draw: st.DrawFn, operator: OperatorId, epoch: int) -> list[PartitionSnapshotEntry]:
    """The files of each partition of an operator: a full one, then deltas in epoch order."""
    files = []
    for partition in draw(st.lists(partition_ids, max_size=2, unique=True)):
        written = sorted(draw(st.sets(st.integers(1, epoch), min_size=1, max_size=3)))
        for place, moment in enumerate(written):
            # The first may be a delta that was promoted when what stood below it went.
            is_delta = place > 0 or draw(st.booleans())
            path = layout.delta_path if is_delta else layout.snapshot_path
            # One checkpoint an epoch, and none that a manifest could be drawn for.
            home = CheckpointId.from_parts(2**40, moment)
            origin = Origin(checkpoint_id=home, epoch=EpochNumber(moment))
            span = sorted(draw(st.tuples(MICROS, MICROS)))
            files.append(
                PartitionSnapshotEntry(
                    partition_id=partition,
                    path=path(operator, partition),
                    size_bytes=draw(st.integers(0, 2**40)),
                    sha256=draw(SHA256),
                    is_incremental=place > 0,
                    rows=draw(st.none() | UINT63),
                    event_time=draw(st.none() | st.just((span[0], span[1]))),
                    origin=None if moment == epoch else origin,
                )
            )
    return files


@st.composite
def written_files(draw: st.DrawFn, folder: str) -> tuple[FileEntry, ...]:
    return tuple(
        FileEntry(
            path=f"{folder}{name}", size_bytes=draw(UINT63), sha256=draw(SHA256), rows=draw(UINT63)
        )
        for name in draw(unique_names(FileName, 2))
    )


@st.composite
def counts(draw: st.DrawFn) -> RecordCounts:
    parts = [draw(st.integers(0, 2**60)) for _ in range(5)]
    added = draw(st.integers(0, sum(parts)))
    return RecordCounts(
        read=sum(parts) - added,
        processed=parts[0],
        filtered=parts[1],
        dead_lettered=parts[2],
        late=parts[3],
        skipped=parts[4],
        added=added,
    )


@st.composite
def source_entries(draw: st.DrawFn, source_id: SourceId) -> SourceOffsetEntry:
    where = draw(st.lists(positions, max_size=3, unique_by=lane_of))
    marks = draw(st.booleans())
    return SourceOffsetEntry(
        source_id=source_id,
        positions=tuple(where),
        path=layout.offsets_path(source_id),
        watermarks=tuple(draw(st.none() | MICROS) for _ in where) if marks else (),
        watermark=draw(st.none() | MICROS),
        schema_fingerprint=draw(st.none() | TEXT),
        gaps=tuple(draw(st.lists(gaps, max_size=1))),
        schema_ids=tuple(draw(st.lists(st.integers(0, 2**31), max_size=2))),
        reading=draw(st.none() | st.builds(SourceReading, records=st.integers(0, 2**60))),
    )


@st.composite
def manifests(draw: st.DrawFn) -> CheckpointManifest:
    """A manifest that is valid, with every optional member used now and then."""
    epoch = draw(epochs)
    operators = tuple(
        OperatorSnapshotEntry(
            operator_id=name,
            operator_type=draw(TEXT),
            state_backend=draw(TEXT),
            partitions=tuple(draw(chains(name, epoch))),
            schema_fingerprint=draw(st.none() | TEXT),
        )
        for name in draw(unique_names(OperatorId))
    )
    sources = draw(unique_names(SourceId)) or ([] if operators else [SourceId("only")])
    started, completed = sorted(draw(st.tuples(MOMENTS, MOMENTS)))
    return CheckpointManifest(
        version=FORMAT_VERSION,
        checkpoint_id=draw(checkpoint_ids),
        epoch=epoch,
        pipeline=PipelineName(draw(names)),
        fingerprint=draw(TEXT),
        plan_checksum=draw(SHA256),
        previous_checkpoint_id=draw(checkpoint_ids) if epoch > 1 else None,
        started_at=started,
        completed_at=completed,
        total_size_bytes=sum(part.size_bytes for entry in operators for part in entry.partitions),
        operators=operators,
        sources=tuple(draw(source_entries(name)) for name in sources),
        sinks=tuple(
            SinkEntry(
                sink_id=name,
                joined_at=EpochNumber(draw(st.integers(1, epoch))),
                files=draw(written_files(f"staged/{name}/")),
                output_sha256=draw(SHA256),
                schema_fingerprint=draw(st.none() | TEXT),
            )
            for name in draw(unique_names(SinkId, 2))
        ),
        dead_letters=tuple(
            DeadLetterEntry(source_id=name, files=draw(written_files(f"dead_letters/{name}/")))
            for name in draw(unique_names(SourceId, 1))
        ),
        counts=draw(counts()),
        watermark=draw(st.none() | MICROS),
        is_unaligned=draw(st.booleans()),
        metadata=draw(st.dictionaries(TEXT, TEXT, max_size=3)),
    )
