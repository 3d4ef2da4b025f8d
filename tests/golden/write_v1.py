"""Write the golden files of format version 1 into a folder.

They are written once and then kept: ``python -m tests.golden.write_v1 FOLDER`` is here to show
where they come from and to compare with, not to renew them.
"""

from __future__ import annotations

import hashlib
import sys
from datetime import UTC, datetime
from pathlib import Path

from msgspec import structs

from laminar_dagster.core import layout
from laminar_dagster.core.branch import BranchRecord, BranchSink, BranchWindow
from laminar_dagster.core.definition import OperatorDefinition, PipelineDefinition
from laminar_dagster.core.document import Document, checksum, encode
from laminar_dagster.core.ids import (
    BranchName,
    CheckpointId,
    EpochNumber,
    FileName,
    OperatorId,
    PartitionId,
    PipelineName,
    ReferenceId,
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
)
from laminar_dagster.core.offsets import (
    CustomIdentity,
    CustomPosition,
    FileIdentity,
    FilePosition,
    Gap,
    KafkaIdentity,
    KafkaPosition,
    LogMark,
    MysqlIdentity,
    MysqlPosition,
    PostgresIdentity,
    PostgresPosition,
    PostgresTable,
    SnapshotProgress,
    SourceIdentity,
    SourceOffsets,
    SourcePosition,
    SourceRange,
)
from laminar_dagster.core.plan import EpochPlan, ParentCheckpoint, SinkPlan, SourcePlan
from laminar_dagster.core.prepared import AttemptRecord, LatestPointer, Prepared
from laminar_dagster.core.reference import ReferencePin
from laminar_dagster.core.snapshot import SnapshotFile, SourceSnapshot
from laminar_dagster.core.upkeep import Rescale

FIRST = CheckpointId("018bcfe5-6be8-7001-8002-000000000001")
SECOND = CheckpointId("018bcfe5-6fd0-7003-8004-000000000002")
PLAN_ID = CheckpointId("018bcfe5-6e00-7005-8006-000000000003")
STARTED = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
COMPLETED = datetime(2026, 3, 1, 12, 0, 3, 250000, tzinfo=UTC)

KAFKA, POSTGRES, MYSQL = SourceId("clicks"), SourceId("orders-pg"), SourceId("kunden_mysql")
FILES, CUSTOM = SourceId("журнал.log"), SourceId("mqtt")
LAKE, WAREHOUSE = SinkId("lake"), SinkId("warehouse")
AGG, JOIN = OperatorId("clicks_per_minute"), OperatorId("join")

POSITIONS: dict[SourceId, tuple[SourcePosition, ...]] = {
    KAFKA: (
        KafkaPosition(topic="clicks", partition=0, offset=42),
        KafkaPosition(topic="clicks", partition=1, offset=2**63 - 1),
    ),
    POSTGRES: (PostgresPosition(lsn=2**64 - 1, slot="laminar"),),
    MYSQL: (
        MysqlPosition(
            binlog_file="binlog.1000000",
            binlog_position=157,
            gtid_set="3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5",
        ),
    ),
    FILES: (FilePosition(path="/var/log/журнал.log", byte_offset=1024),),
    CUSTOM: (CustomPosition(source_type="mqtt", position_bytes=b"\x00\x01\xff"),),
}
IDENTITIES: dict[SourceId, SourceIdentity] = {
    KAFKA: KafkaIdentity(cluster_id="MkU3OEVBNTcwNTJENDM2Qg", topic_ids={"clicks": "b8tRS7h4TJ2V"}),
    POSTGRES: PostgresIdentity(system_id="7301234567890123456", timeline=1, slot="laminar"),
    MYSQL: MysqlIdentity(server_uuid="3e11fa47-71ca-11e1-9e33-c80aa9429562"),
    FILES: FileIdentity(fingerprints={"/var/log/журнал.log": "first-1024:ab12"}),
    CUSTOM: CustomIdentity(source_type="mqtt", identity="broker-7"),
}
GAP = Gap(
    lost=SourceRange(
        start=KafkaPosition(topic="clicks", partition=0, offset=7),
        end=KafkaPosition(topic="clicks", partition=0, offset=10),
    ),
    reason="retention expired; on_gap: earliest",
)


def sha(text: str) -> str:
    """The SHA-256 of a text, as hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def file(path: str, rows: int) -> FileEntry:
    """A file of output."""
    return FileEntry(path=path, size_bytes=rows * 100, sha256=sha(path), rows=rows)


def small_manifest() -> CheckpointManifest:
    """Every optional member used, every kind of position."""
    part, other = PartitionId(0), PartitionId(2**32 - 1)
    return CheckpointManifest(
        version=1,
        checkpoint_id=SECOND,
        epoch=EpochNumber(2),
        pipeline=PipelineName("clickstream"),
        fingerprint="sha256:9f2c",
        plan_checksum=sha("plan"),
        previous_checkpoint_id=FIRST,
        started_at=STARTED,
        completed_at=COMPLETED,
        total_size_bytes=1536,
        operators=(
            OperatorSnapshotEntry(
                operator_id=AGG,
                operator_type="tumbling_window",
                state_backend="arrow",
                partitions=(
                    PartitionSnapshotEntry(
                        partition_id=part,
                        path=layout.snapshot_path(AGG, part),
                        size_bytes=1024,
                        sha256=sha("base"),
                        rows=10,
                        event_time=(-1, 1_772_366_400_000_000),
                        origin=Origin(checkpoint_id=FIRST, epoch=EpochNumber(1)),
                    ),
                    PartitionSnapshotEntry(
                        partition_id=part,
                        path=layout.delta_path(AGG, part),
                        size_bytes=512,
                        sha256=sha("delta"),
                        is_incremental=True,
                        rows=0,
                        event_time=(1_772_366_400_000_000, 1_772_366_460_000_000),
                    ),
                ),
                schema_fingerprint="arrow:77aa",
            ),
            OperatorSnapshotEntry(
                operator_id=JOIN,
                operator_type="stream_join",
                state_backend="arrow",
                partitions=(
                    PartitionSnapshotEntry(
                        partition_id=other,
                        path=layout.snapshot_path(JOIN, other),
                        size_bytes=0,
                        sha256=sha(""),
                    ),
                ),
            ),
        ),
        sources=tuple(
            SourceOffsetEntry(
                source_id=source,
                positions=positions,
                path=layout.offsets_path(source),
                watermarks=(1_772_366_455_000_000, None) if source == KAFKA else (),
                watermark=1_772_366_455_000_000 if source == KAFKA else None,
                schema_fingerprint="avro:12" if source == KAFKA else None,
                gaps=(GAP,) if source == KAFKA else (),
            )
            for source, positions in POSITIONS.items()
        ),
        sinks=(
            SinkEntry(
                sink_id=LAKE,
                joined_at=EpochNumber(1),
                files=(file(layout.staged_path(LAKE, FileName("part-0.arrow")), 3),),
                output_sha256=sha("rows"),
                schema_fingerprint="arrow:31",
            ),
            SinkEntry(sink_id=WAREHOUSE, joined_at=EpochNumber(2), files=(), output_sha256=sha("")),
        ),
        dead_letters=(
            DeadLetterEntry(
                source_id=KAFKA,
                files=(file(layout.dead_letter_path(KAFKA, FileName("bad-0.arrow")), 2),),
            ),
        ),
        counts=RecordCounts(read=15, processed=5, filtered=4, dead_lettered=2, late=4),
        watermark=1_772_366_455_000_000,
        is_unaligned=True,
        metadata={"host": "worker-1", "a note": 'quotes " and \\ and ü'},
    )


def large_manifest() -> CheckpointManifest:
    """Four hundred operators: long enough to be wrapped in gzip."""
    operators = []
    for number in range(400):
        name = OperatorId(f"session_window_{number:04d}")
        part = PartitionSnapshotEntry(
            partition_id=PartitionId(0),
            path=layout.snapshot_path(name, PartitionId(0)),
            size_bytes=number,
            sha256=sha(name),
        )
        operators.append(
            OperatorSnapshotEntry(
                operator_id=name,
                operator_type="session_window",
                state_backend="arrow",
                partitions=(part,),
            )
        )
    return CheckpointManifest(
        version=1,
        checkpoint_id=FIRST,
        epoch=EpochNumber(1),
        pipeline=PipelineName("clickstream"),
        fingerprint="sha256:9f2c",
        plan_checksum=sha("plan"),
        previous_checkpoint_id=None,
        started_at=STARTED,
        completed_at=COMPLETED,
        total_size_bytes=sum(range(400)),
        counts=RecordCounts(),
        operators=tuple(operators),
    )


def plan() -> EpochPlan:
    """A range of every kind of source; an idle partition; a gap."""
    return EpochPlan(
        version=1,
        plan_id=PLAN_ID,
        pipeline=PipelineName("clickstream"),
        epoch=EpochNumber(2),
        clock=STARTED,
        fingerprint="sha256:9f2c",
        parent=ParentCheckpoint(
            checkpoint_id=FIRST, epoch=EpochNumber(1), manifest_checksum=sha("manifest")
        ),
        sources=tuple(
            SourcePlan(
                source_id=source,
                identity=IDENTITIES[source],
                ranges=tuple(SourceRange(start=each, end=each) for each in positions),
                idle=positions[-1:] if source == KAFKA else (),
                gaps=(GAP,) if source == KAFKA else (),
            )
            for source, positions in POSITIONS.items()
        ),
        sinks=(
            SinkPlan(sink_id=LAKE, joined_at=EpochNumber(1)),
            SinkPlan(sink_id=WAREHOUSE, joined_at=EpochNumber(2)),
        ),
    )


def definition() -> PipelineDefinition:
    """A window with everything, and one with nothing that can be left out."""
    return PipelineDefinition(
        version=1,
        pipeline=PipelineName("clickstream"),
        fingerprint="sha256-9f2c",
        buckets=8,
        operators=(
            OperatorDefinition(
                operator_id=OperatorId("per_minute"),
                time="ts",
                size_micros=60_000_000,
                slide_micros=30_000_000,
                keys=("page", "upper(`größe`)"),
                partials=("count(*)", "sum(price)", "count(price)"),
                where="price > 0",
                reads={"clicks": '{"connector":"kafka"}'},
                columns={"clicks.page": "string", "clicks.price": "decimal(10,2)"},
                arguments=("clicks.price",),
            ),
            OperatorDefinition(
                operator_id=OperatorId("per_hour.0"),
                time="window_start",
                size_micros=3_600_000_000,
                slide_micros=3_600_000_000,
                keys=(),
                partials=("max(clicks)",),
                reads={},
                columns={},
            ),
        ),
    )


def keyed_definition() -> PipelineDefinition:
    """State that is kept by key: a group over rows that are taken back, a session, a window."""
    return PipelineDefinition(
        version=1,
        pipeline=PipelineName("clickstream"),
        fingerprint="sha256-77aa",
        buckets=4,
        operators=(
            OperatorDefinition(
                operator_id=OperatorId("totals"),
                time=None,
                size_micros=0,
                slide_micros=0,
                keys=("page",),
                partials=("count(*) by weight", "sum(price) by weight", "count(price) by weight"),
                reads={"clicks": '{"connector":"kafka"}'},
                columns={"clicks.page": "string", "clicks.price": "decimal(10,2)"},
                kept_as="group",
                weight="_weight",
            ),
            OperatorDefinition(
                operator_id=OperatorId("visits"),
                time="ts",
                size_micros=0,
                slide_micros=0,
                keys=("user_id",),
                partials=("count(*)",),
                reads={},
                columns={},
                kept_as="session",
                gap_micros=1_800_000_000,
            ),
            OperatorDefinition(
                operator_id=OperatorId("so_far"),
                time="ts",
                size_micros=86_400_000_000,
                slide_micros=3_600_000_000,
                keys=(),
                partials=("count(*)",),
                reads={},
                columns={},
                offset_micros=21_600_000_000,
                grows=True,
                kept_as="window",
            ),
        ),
    )


def definition_with_tables() -> PipelineDefinition:
    """Operators over reference tables, one of which has to stay as it is."""
    return PipelineDefinition(
        version=1,
        pipeline=PipelineName("clickstream"),
        fingerprint="sha256-51d0",
        buckets=4,
        operators=(
            OperatorDefinition(
                operator_id=OperatorId("per_section"),
                time="ts",
                size_micros=60_000_000,
                slide_micros=60_000_000,
                keys=("`right.section`",),
                partials=("count(*)",),
                reads={"clicks": '{"connector":"kafka"}', "pages": '{"connector":"file"}'},
                columns={"pages.page": "string", "pages.section": "int", "clicks.page": "string"},
                input=sha("what goes in"),
                references={"pages": sha("pages"), "limits": sha("limits")},
                fixed=("limits",),
            ),
        ),
    )


def rescale_plan() -> EpochPlan:
    """Of an epoch of upkeep."""
    read = plan()
    return EpochPlan(
        version=1,
        plan_id=PLAN_ID,
        pipeline=read.pipeline,
        epoch=read.epoch,
        clock=read.clock,
        fingerprint=read.fingerprint,
        parent=read.parent,
        sources=(
            SourcePlan(
                source_id=KAFKA,
                identity=next(each.identity for each in read.sources if each.source_id == KAFKA),
                ranges=tuple(SourceRange(start=each, end=each) for each in POSITIONS[KAFKA]),
            ),
        ),
        sinks=read.sinks,
        upkeep=Rescale(buckets_before=8, buckets_after=12),
    )


def branch() -> BranchRecord:
    """A branch from the second epoch, with a sink of either mode."""
    return BranchRecord(
        version=1,
        name=BranchName("fix-1"),
        pipeline=PipelineName("clickstream"),
        from_epoch=EpochNumber(2),
        start=LatestPointer.to(small_manifest()).as_parent(),
        fingerprint="9f86d081884c7d65",
        created_at=STARTED,
        sinks=(
            BranchSink(sink_id=SinkId("lake"), view=OperatorId("clicks"), mode="append"),
            BranchSink(
                sink_id=SinkId("warehouse"),
                view=OperatorId("clicks_per_minute"),
                mode="upsert",
                key=("page", "minute"),
                window=BranchWindow(
                    operator_id=OperatorId("clicks_per_minute"),
                    column="minute",
                    size_micros=60_000_000,
                ),
            ),
        ),
    )


def prepared_with_plan() -> Prepared:
    """As the record is written since it holds the plan, too."""
    carried_out = structs.replace(small_manifest(), plan_checksum=checksum(plan()))
    return Prepared.of(carried_out, plan())


def snapshot() -> SourceSnapshot:
    """The second one of a source, in two files."""
    return SourceSnapshot(
        version=1,
        source_id=POSTGRES,
        number=2,
        draft_id=SECOND,
        taken_at=STARTED,
        position=PostgresPosition(lsn=2**40, slot="laminar"),
        identity=IDENTITIES[POSTGRES],
        files=tuple(
            SnapshotFile(name=FileName(name), rows=rows, size_bytes=rows * 10, sha256=sha(name))
            for name, rows in (("public.orders-000000.arrow", 3), ("größen-000000.arrow", 0))
        ),
    )


def mysql_snapshot() -> SourceSnapshot:
    """Of a server whose log is pinned by an event, and its tables by their types."""
    return SourceSnapshot(
        version=1,
        source_id=MYSQL,
        number=1,
        draft_id=SECOND,
        taken_at=STARTED,
        position=MysqlPosition(
            binlog_file="binlog.000002", binlog_position=2**33, gtid_set="0-1-5"
        ),
        identity=MysqlIdentity(
            server_uuid="server_id 77",
            mark=LogMark(binlog_file="binlog.000002", start=4, checksum=2**32 - 1),
            tables={"shop.größen": {"id": '{"family": "integer", "bits": 64}'}},
        ),
        files=(),
    )


def postgres_snapshot() -> SourceSnapshot:
    """Of a database whose tables are pinned by their ids and columns."""
    return SourceSnapshot(
        version=1,
        source_id=POSTGRES,
        number=1,
        draft_id=SECOND,
        taken_at=STARTED,
        position=PostgresPosition(lsn=2**40, slot="laminar"),
        identity=PostgresIdentity(
            system_id="7301234567890123456",
            timeline=1,
            slot="laminar",
            database=5,
            tables={
                "shop.größen": PostgresTable(
                    oid=2**32 - 1, columns=("id", "größe"), lacks=("preis",), members=(16402,)
                ),
                "public.orders": PostgresTable(oid=16385, columns=()),
            },
        ),
        files=(),
    )


def offsets_in_snapshot() -> SourceOffsets:
    """Positions within a snapshot, of every kind of source that has them."""
    progress = SnapshotProgress(number=2, rows=1)
    return SourceOffsets(
        version=1,
        source_id=POSTGRES,
        epoch=EpochNumber(2),
        checkpoint_id=SECOND,
        positions=(
            PostgresPosition(lsn=2**40, slot="laminar", snapshot=progress),
            MysqlPosition(binlog_file="binlog.000002", binlog_position=4, snapshot=progress),
        ),
    )


def pins() -> tuple[ReferencePin, ...]:
    """Of two reference tables, one of which is away."""
    file = SnapshotFile(
        name=FileName("rows-000000.arrow"),
        rows=7,
        size_bytes=1024,
        sha256=hashlib.sha256(b"rows").hexdigest(),
    )
    fruit = ReferencePin(
        reference_id=ReferenceId("fruit"),
        version="delta 018bcfe5 version 12",
        declaration=hashlib.sha256(b"declared").hexdigest(),
        epoch=EpochNumber(2),
        copy_id=PLAN_ID,
        checked_at=COMPLETED,
        files=(file, structs.replace(file, name=FileName("rows-000001.arrow"), rows=1)),
    )
    shops = structs.replace(
        fruit,
        reference_id=ReferenceId("магазины"),
        version="rows",
        epoch=EpochNumber(1),
        copy_id=FIRST,
        checked_at=STARTED,
        files=(file,),
        unavailable_since=COMPLETED,
    )
    return fruit, shops


def documents() -> dict[str, Document]:
    """Every golden file, by name."""
    return {
        "manifest_small.json": small_manifest(),
        "manifest_large.json": large_manifest(),
        "plan.json": plan(),
        "plan_rescale.json": rescale_plan(),
        "plan_references.json": structs.replace(plan(), references=pins()),
        "plan_bounded.json": plan().bounded({KAFKA: 86_400_000_000, FILES: 0}),
        "manifest_references.json": structs.replace(small_manifest(), references=pins()),
        "definition.json": definition(),
        "definition_keyed.json": keyed_definition(),
        "definition_tables.json": definition_with_tables(),
        "prepared.json": Prepared.of(small_manifest()),
        "prepared_with_plan.json": prepared_with_plan(),
        "latest": LatestPointer.to(small_manifest()),
        "snapshot.json": snapshot(),
        "snapshot_mysql.json": mysql_snapshot(),
        "snapshot_postgres.json": postgres_snapshot(),
        "in_snapshot.offsets": offsets_in_snapshot(),
        "source.offsets": SourceOffsets(
            version=1,
            source_id=KAFKA,
            epoch=EpochNumber(2),
            checkpoint_id=SECOND,
            positions=tuple(each for positions in POSITIONS.values() for each in positions),
        ),
        "branch.json": branch(),
        "attempt.json": AttemptRecord(
            version=1, epoch=EpochNumber(2), checkpoint_id=SECOND, started_at=STARTED
        ),
    }


if __name__ == "__main__":
    for name, document in documents().items():
        Path(sys.argv[1], name).write_bytes(encode(document))
