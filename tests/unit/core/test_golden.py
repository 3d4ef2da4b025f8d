"""Documents of format version 1, as they were first written, are read for ever."""

from __future__ import annotations

import gzip
import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from laminar_dagster.core.branch import BranchRecord
from laminar_dagster.core.definition import PipelineDefinition
from laminar_dagster.core.document import Document, checksum, decode, encode
from laminar_dagster.core.manifest import CheckpointManifest, RecordCounts
from laminar_dagster.core.offsets import (
    CustomPosition,
    FilePosition,
    KafkaIdentity,
    KafkaPosition,
    MysqlPosition,
    PostgresPosition,
    SourceOffsets,
)
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.prepared import AttemptRecord, LatestPointer, Prepared
from laminar_dagster.core.recovery import RecoveryPlan, choose_winner
from laminar_dagster.core.snapshot import SourceSnapshot
from laminar_dagster.runtime.recovery.documents import attempt_of, offsets_of
from laminar_dagster.runtime.recovery.inspection import state_files
from tests.golden import write_v1

FOLDER = Path(write_v1.__file__).parent / "v1"
FIRST = "018bcfe5-6be8-7001-8002-000000000001"
SECOND = "018bcfe5-6fd0-7003-8004-000000000002"
KINDS: dict[str, type[Document]] = {
    "manifest_small.json": CheckpointManifest,
    "manifest_large.json": CheckpointManifest,
    "plan.json": EpochPlan,
    "plan_rescale.json": EpochPlan,
    "plan_references.json": EpochPlan,
    "plan_bounded.json": EpochPlan,
    "manifest_references.json": CheckpointManifest,
    "definition.json": PipelineDefinition,
    "definition_keyed.json": PipelineDefinition,
    "definition_tables.json": PipelineDefinition,
    "prepared.json": Prepared,
    "prepared_with_plan.json": Prepared,
    "latest": LatestPointer,
    "source.offsets": SourceOffsets,
    "attempt.json": AttemptRecord,
    "branch.json": BranchRecord,
    "snapshot.json": SourceSnapshot,
    "snapshot_mysql.json": SourceSnapshot,
    "snapshot_postgres.json": SourceSnapshot,
    "in_snapshot.offsets": SourceOffsets,
}
# Of the JSON text, so that a file that was renewed by mistake is noticed.
TEXTS = {
    "manifest_small.json": "d3204a8cc675efdf29ff034ad3c87f4f9c51c7cfcd0f0f83d53d17bdcd56bd08",
    "manifest_large.json": "007734eecb0efb2b4bc3974830e5c24ba3e55b9c9c13bd929d55612947d92db1",
    "plan.json": "991840b896840c5939ddbb0bb7cd7d578f0b033b4638802f60402f8bd4a73b4a",
    "plan_rescale.json": "2c6bc125f61dbee2a08d2502f2db2a182a15248ae8ad5dbd53f9d7f6ae14ee92",
    "plan_references.json": "372e6bfd9808f013a2024c484b8f190dbc9f1110670d3b9c409e6ceec720bfc9",
    "plan_bounded.json": "55bba7c7dfacbe427239acd297356633934b3eb3771d1c0ab7491b0cff065a7b",
    "manifest_references.json": "9073cce61f35f0353c3855fdbb72afcea35a1e54d5ab95213f47b487e1998281",
    "definition.json": "04608fecab22a9792094d02b1e1c63264267a332b384685f656ef0cd239da091",
    "definition_keyed.json": "2ab277f51c161d21f381a2872b9e3e01aae39d263a8a844d21e4065557cb5e0c",
    "definition_tables.json": "bd73eedd660d43e07973335389248c652f389be905c378f75b31d87780b13c18",
    "prepared.json": "17ba4edeb2a7ae8d5391bfa5308463fe7a777a79c19145c0a4133f66fc03493b",
    "prepared_with_plan.json": "faf011e36c68d18f68879b86d334e8fbd967085e98ecf19ccabe82911ab8f374",
    "latest": "1b06ad0e28e92aadaded20f3c1b08a3a741828f393cd97063e8f4ab17427b8df",
    "source.offsets": "d36bb3574fff1735df86a5244adcc5974c985c2289f1eb57e7689b9700781e20",
    "attempt.json": "44857a7e93c9d47a1c15eca389a78a2faad951536ccd10546e8b5ff2ab18b771",
    "branch.json": "22d79ff22d4081d2b9b0cc4eb1ec9b1e296f641212b8ad2cc918dcc0ed05e8dc",
    "snapshot.json": "d29722e410acdaa5f5c495cc162e89343fd60310eaae377a2317f100082db837",
    "snapshot_mysql.json": "0938f94bcd97ff708aa2c866fda19a997deaed2ba33ca020d96f92d33703bc00",
    "snapshot_postgres.json": "dc309c57c0ba6f89a39dd36a3d4f0c517784ae1f0f4b255561d1bb2bc2d1e830",
    "in_snapshot.offsets": "0de873d249c4c78272ea1c410beb35d410a0a0be11167e05a21d27312f0e89b9",
}


def text_of(data: bytes) -> bytes:
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def test_every_golden_file_is_known() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_a_golden_file_is_read_and_written_as_it_was(name: str) -> None:
    stored = (FOLDER / name).read_bytes()
    assert hashlib.sha256(text_of(stored)).hexdigest() == TEXTS[name]
    document = decode(stored, KINDS[name], name)
    assert document == write_v1.documents()[name]
    again = encode(document)
    # The packed form may change with the compressor; the text may not.
    assert text_of(again) == text_of(stored)
    is_packed = name == "manifest_large.json"
    assert stored.startswith(b"\x1f\x8b") == again.startswith(b"\x1f\x8b") == is_packed
    assert is_packed or again == stored


def manifest(name: str) -> CheckpointManifest:
    return decode((FOLDER / name).read_bytes(), CheckpointManifest, name)


def test_what_the_small_manifest_says() -> None:
    document = manifest("manifest_small.json")
    document.validate()
    assert document.version == 1
    assert (document.checkpoint_id, document.epoch) == (SECOND, 2)
    assert document.previous_checkpoint_id == FIRST
    assert document.pipeline == "clickstream"
    assert document.started_at == datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    assert document.completed_at == datetime(2026, 3, 1, 12, 0, 3, 250000, tzinfo=UTC)
    assert document.total_size_bytes == 1536
    assert document.is_unaligned
    assert document.watermark == 1_772_366_455_000_000
    assert document.metadata == {"host": "worker-1", "a note": 'quotes " and \\ and ü'}
    assert document.counts == RecordCounts(
        read=15, processed=5, filtered=4, dead_lettered=2, late=4
    )
    assert [entry.positions for entry in document.sources] == [
        (
            KafkaPosition(topic="clicks", partition=0, offset=42),
            KafkaPosition(topic="clicks", partition=1, offset=9223372036854775807),
        ),
        (PostgresPosition(lsn=18446744073709551615, slot="laminar"),),
        (
            MysqlPosition(
                binlog_file="binlog.1000000",
                binlog_position=157,
                gtid_set="3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5",
            ),
        ),
        (FilePosition(path="/var/log/журнал.log", byte_offset=1024),),
        (CustomPosition(source_type="mqtt", position_bytes=b"\x00\x01\xff"),),
    ]
    clicks = document.sources[0]
    assert clicks.watermarks == (1_772_366_455_000_000, None)
    assert clicks.watermark == 1_772_366_455_000_000
    assert clicks.gaps[0].lost.end == KafkaPosition(topic="clicks", partition=0, offset=10)
    assert [(each.sink_id, each.joined_at) for each in document.sinks] == [
        ("lake", 1),
        ("warehouse", 2),
    ]
    assert document.dead_letters[0].files[0].rows == 2
    assert [
        (each.key, each.is_incremental)
        for each in RecoveryPlan.from_manifest(document).operator_snapshots
    ] == [
        (f"checkpoints/{FIRST}/operators/clicks_per_minute/0.snap", False),
        (f"checkpoints/{SECOND}/operators/clicks_per_minute/0.delta", True),
        (f"checkpoints/{SECOND}/operators/join/4294967295.snap", False),
    ]


def test_what_the_large_manifest_says() -> None:
    document = manifest("manifest_large.json")
    document.validate()
    assert (document.checkpoint_id, document.epoch) == (FIRST, 1)
    assert document.previous_checkpoint_id is None
    assert len(document.operators) == 400
    last = document.operators[399].partitions[0]
    assert last.path == "operators/session_window_0399/0.snap"
    assert last.size_bytes == 399
    assert last.sha256 == hashlib.sha256(b"session_window_0399").hexdigest()
    assert document.counts == RecordCounts()


def test_what_the_plan_says() -> None:
    document = decode((FOLDER / "plan.json").read_bytes(), EpochPlan, "plan")
    assert document.epoch == 2
    assert document.plan_id == "018bcfe5-6e00-7005-8006-000000000003"
    assert document.clock == datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    assert document.parent is not None
    assert (document.parent.checkpoint_id, document.parent.epoch) == (FIRST, 1)
    clicks = document.sources[0]
    assert isinstance(clicks.identity, KafkaIdentity)
    assert clicks.identity.topic_ids == {"clicks": "b8tRS7h4TJ2V"}
    assert clicks.idle == (KafkaPosition(topic="clicks", partition=1, offset=2**63 - 1),)
    assert clicks.gaps[0].reason == "retention expired; on_gap: earliest"
    assert [source.source_id for source in document.sources] == [
        "clicks",
        "orders-pg",
        "kunden_mysql",
        "журнал.log",
        "mqtt",
    ]


def test_a_plan_from_before_there_was_a_bound_has_none() -> None:
    old = decode((FOLDER / "plan.json").read_bytes(), EpochPlan, "plan")
    assert {source.max_ahead_micros for source in old.sources} == {None}
    new = decode((FOLDER / "plan_bounded.json").read_bytes(), EpochPlan, "plan")
    bounds = {str(source.source_id): source.max_ahead_micros for source in new.sources}
    assert bounds == dict.fromkeys(bounds) | {"clicks": 86_400_000_000, "журнал.log": 0}


def test_a_golden_checkpoint_recovers() -> None:
    """Its documents are put back from each other, and its plan of recovery is complete."""
    small = manifest("manifest_small.json")
    prepared = decode((FOLDER / "prepared.json").read_bytes(), Prepared, "prepared")
    latest = decode((FOLDER / "latest").read_bytes(), LatestPointer, "latest")
    attempt = decode((FOLDER / "attempt.json").read_bytes(), AttemptRecord, "attempt")
    offsets = decode((FOLDER / "source.offsets").read_bytes(), SourceOffsets, "offsets")
    assert Prepared.of(small) == prepared
    assert LatestPointer.to(small) == latest
    assert attempt_of(small) == attempt
    for name in ("manifest_small.json", "manifest_large.json"):
        document = manifest(name)
        plan = RecoveryPlan.from_manifest(document)
        assert plan.total_bytes == document.total_size_bytes
        assert len(plan.source_offsets) == sum(len(each.positions) for each in document.sources)
        assert len(plan.operator_snapshots) == len([*state_files(document)])
    names = {each.source_id: each for each in small.sources}
    assert offsets_of(small, names[offsets.source_id]).checkpoint_id == offsets.checkpoint_id
    winner = choose_winner(small.epoch, None, [small], [latest.as_parent()])
    assert winner == choose_winner(small.epoch, prepared, [], []) == small


def test_what_the_small_documents_say() -> None:
    small = manifest("manifest_small.json")
    prepared = decode((FOLDER / "prepared.json").read_bytes(), Prepared, "prepared")
    assert (prepared.epoch, prepared.checkpoint_id) == (2, SECOND)
    assert encode(prepared.manifest) == (FOLDER / "manifest_small.json").read_bytes()
    assert prepared.plan is None
    newer = decode((FOLDER / "prepared_with_plan.json").read_bytes(), Prepared, "prepared")
    assert newer.plan == decode((FOLDER / "plan.json").read_bytes(), EpochPlan, "plan")
    latest = decode((FOLDER / "latest").read_bytes(), LatestPointer, "latest")
    assert (latest.epoch, latest.checkpoint_id) == (2, SECOND)
    assert latest.manifest_checksum == checksum(small)
    attempt = decode((FOLDER / "attempt.json").read_bytes(), AttemptRecord, "attempt")
    assert (attempt.epoch, attempt.checkpoint_id) == (2, SECOND)
    assert attempt.started_at == datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    offsets = decode((FOLDER / "source.offsets").read_bytes(), SourceOffsets, "offsets")
    assert (offsets.source_id, offsets.epoch, offsets.checkpoint_id) == ("clicks", 2, SECOND)
    assert len(offsets.positions) == 6
