"""The manifest: built from parts, complete, small, and the same after a round trip."""

from __future__ import annotations

import hashlib
import json
import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from laminar_dagster.core import layout
from laminar_dagster.core.document import decode, encode
from laminar_dagster.core.errors import InvalidManifest, InvalidName, UnsupportedVersion
from laminar_dagster.core.ids import FileName, OperatorId, PartitionId, SinkId, SourceId
from laminar_dagster.core.manifest import (
    CheckpointManifest,
    DeadLetterEntry,
    OperatorSnapshotEntry,
    PartitionSnapshotEntry,
    RecordCounts,
    SourceReading,
    chunk_time,
)
from laminar_dagster.core.manifest_builder import ManifestBuilder
from tests.unit.core import strategies
from tests.unit.core.samples import (
    CLICKS,
    LAKE,
    MOMENT,
    checkpoint,
    dead_letters,
    file_entry,
    kafka,
    manifest,
    operator,
    problem_of,
    sha,
    sink,
    source,
    state_file,
)


def empty(number: int = 1) -> CheckpointManifest:
    """A manifest without parts, to build on."""
    return manifest(number, operators=(), sources=(), sinks=(), counts=RecordCounts())


def test_manifest_builder_basic() -> None:
    built = ManifestBuilder(empty()).add_source(source(kafka(5))).build()
    assert built.checkpoint_id == checkpoint(1)
    assert built.epoch == 1
    assert built.sources == (source(kafka(5)),)
    assert not (built.operators or built.sinks or built.dead_letters)
    assert built.total_size_bytes == 0
    assert built.previous_checkpoint_id is None
    assert not built.is_unaligned
    assert built.warnings() == ()


def test_manifest_builder_with_operators_and_sources() -> None:
    counts = RecordCounts(read=10, processed=4, filtered=3, dead_lettered=2, late=1)
    built = (
        ManifestBuilder(empty(2))
        .add_operator(
            operator(state_file(2, operator=OperatorId("z")), operator_id=OperatorId("z"))
        )
        .add_operator(operator(state_file(2)))
        .add_source(source(kafka(7, topic="views"), source_id=SourceId("views")))
        .add_source(source(kafka(5)))
        .add_sink(sink(SinkId("warehouse")))
        .add_sink(sink())
        .add_dead_letters(dead_letters(SourceId("views")))
        .add_dead_letters(dead_letters())
        .counts(counts)
        .watermark(-5)
        .unaligned(True)
        .metadata("host", "a")
        .metadata("run", "7")
        .build()
    )
    assert [entry.operator_id for entry in built.operators] == ["agg", "z"]
    assert [entry.source_id for entry in built.sources] == ["clicks", "views"]
    assert [entry.sink_id for entry in built.sinks] == ["lake", "warehouse"]
    assert [entry.source_id for entry in built.dead_letters] == ["clicks", "views"]
    assert built.counts == counts
    assert built.watermark == -5
    assert built.is_unaligned
    assert built.metadata == {"host": "a", "run": "7"}
    assert built.previous_checkpoint_id == checkpoint(1)


def test_manifest_builder_total_size_calculation() -> None:
    built = (
        ManifestBuilder(empty(3))
        .add_operator(
            operator(
                state_file(1, origin=checkpoint(1), size=1000),
                state_file(3, delta=True, size=20),
                state_file(3, partition=1, size=3),
            )
        )
        .add_sink(sink())
        .add_source(source(kafka(1)))
        .build()
    )
    # State files, old and new; output is not state.
    assert built.total_size_bytes == 1023


def test_a_builder_is_not_changed_by_its_calls() -> None:
    first = ManifestBuilder(empty()).add_source(source(kafka(5)))
    first.add_sink(sink()).metadata("a", "b").watermark(3)
    assert first.build() == ManifestBuilder(empty()).add_source(source(kafka(5))).build()


@given(st.permutations([SinkId("a"), SinkId("b"), SinkId("c")]))
def test_the_order_of_adding_does_not_matter(order: list[SinkId]) -> None:
    builder = ManifestBuilder(empty()).add_source(source(kafka(5)))
    for name in order:
        builder = builder.add_sink(sink(name))
    assert [entry.sink_id for entry in builder.build().sinks] == ["a", "b", "c"]


def test_a_builder_refuses_parts_that_contradict_each_other() -> None:
    with pytest.raises(InvalidManifest, match="neither"):
        ManifestBuilder(empty()).build()
    twice = ManifestBuilder(empty()).add_source(source(kafka(5))).add_source(source(kafka(6)))
    with pytest.raises(InvalidManifest, match="twice"):
        twice.build()


def test_manifest_validate_current_version() -> None:
    assert problem_of(manifest()) == problem_of(manifest(4)) == ""


def test_manifest_validate_wrong_version() -> None:
    with pytest.raises(UnsupportedVersion) as caught:
        manifest(version=2).validate()
    assert (caught.value.found, caught.value.expected) == (2, 1)


def test_manifest_validate_empty() -> None:
    with pytest.raises(InvalidManifest, match="neither operators nor sources"):
        empty().validate()


@given(strategies.manifests())
def test_manifest_serialize_deserialize_roundtrip(document: CheckpointManifest) -> None:
    document.validate()
    again = decode(encode(document), CheckpointManifest, "m")
    assert again == document
    again.validate()


def test_checkpoint_manifest_serialization() -> None:
    members = json.loads(encode(manifest(2)))
    assert members["version"] == 1
    assert members["checkpoint_id"] == checkpoint(2)
    assert members["epoch"] == 2
    assert members["previous_checkpoint_id"] == checkpoint(1)
    assert members["started_at"] == "2026-03-01T12:00:00.123456Z"
    assert members["completed_at"] == "2026-03-01T12:00:03.123456Z"
    assert members["total_size_bytes"] == 10
    assert members["operators"] == [
        {
            "operator_id": "agg",
            "operator_type": "tumbling_window",
            "state_backend": "arrow",
            "partitions": [
                {
                    "partition_id": 0,
                    "path": "operators/agg/0.snap",
                    "size_bytes": 10,
                    "sha256": sha("agg 0 2"),
                }
            ],
        }
    ]
    assert members["sources"] == [
        {
            "source_id": "clicks",
            "positions": [{"type": "kafka", "topic": "clicks", "partition": 0, "offset": 100}],
            "path": "sources/clicks.offsets",
        }
    ]
    assert members["sinks"][0]["joined_at"] == 1
    assert members["counts"] == {"read": 2, "processed": 1, "late": 1}


def test_a_manifest_of_a_thousand_operators_stays_under_64_kib() -> None:
    noise = random.Random(11)
    kinds = ("tumbling_window", "sliding_window", "stream_join", "deduplicate", "session_window")
    builder = empty(9)
    operators = []
    for number in range(1000):
        name = OperatorId(f"{noise.choice(kinds)}_{number:04d}")
        entry = PartitionSnapshotEntry(
            partition_id=PartitionId(0),
            path=layout.snapshot_path(name, PartitionId(0)),
            size_bytes=noise.randrange(10**8),
            sha256=hashlib.sha256(noise.randbytes(16)).hexdigest(),
            rows=noise.randrange(10**6),
        )
        operators.append(
            OperatorSnapshotEntry(
                operator_id=name,
                operator_type=name.rpartition("_")[0],
                state_backend="arrow",
                partitions=(entry,),
            )
        )
    document = manifest(9, operators=tuple(operators), sources=builder.sources)
    data = encode(document)
    assert len(data) < 64 * 1024
    assert decode(data, CheckpointManifest, "m") == document


def test_files_of_a_checkpoint() -> None:
    document = manifest(
        3,
        operators=(
            operator(
                state_file(1, origin=checkpoint(1), size=5), state_file(3, delta=True, size=6)
            ),
        ),
        dead_letters=(dead_letters(),),
    )
    staged = layout.staged_path(LAKE, FileName("part-0.arrow"))
    letters = layout.dead_letter_path(CLICKS, FileName("bad-0.arrow"))
    assert list(document.files()) == [
        (f"checkpoints/{checkpoint(1)}/operators/agg/0.snap", 5, sha("agg 0 1")),
        (f"checkpoints/{checkpoint(3)}/operators/agg/0.delta", 6, sha("agg 0 3")),
        (f"checkpoints/{checkpoint(3)}/{staged}", 7, sha(staged)),
        (f"checkpoints/{checkpoint(3)}/{letters}", 7, sha(letters)),
    ]


def test_files_of_a_hostile_manifest_cannot_leave_the_base() -> None:
    document = manifest(sinks=(sink(files=(file_entry("../../../etc/passwd"),)),))
    with pytest.raises(InvalidName):
        list(document.files())


@given(strategies.manifests())
def test_every_file_has_a_key_of_its_own(document: CheckpointManifest) -> None:
    keys = [key for key, _, _ in document.files()]
    assert len(set(keys)) == len(keys)
    assert all(layout.parse_checkpoint_key(key) for key in keys)


def test_a_clock_that_was_set_back_is_a_warning_and_no_error() -> None:
    document = manifest(completed_at=MOMENT - timedelta(seconds=1))
    document.validate()
    assert len(document.warnings()) == 1
    assert "clock" in document.warnings()[0]
    assert manifest(completed_at=MOMENT).warnings() == ()


@pytest.mark.parametrize(
    ("counts", "is_balanced"),
    [
        (RecordCounts(), True),
        (RecordCounts(read=4, processed=1, filtered=1, dead_lettered=1, late=1), True),
        (RecordCounts(read=1), False),
        (RecordCounts(late=1), False),
        (RecordCounts(read=2, processed=3), False),
        (RecordCounts(read=2, processed=3, added=1), True),
        (RecordCounts(read=3, processed=2, skipped=1), True),
        (RecordCounts(read=2, processed=2, skipped=1), False),
    ],
)
def test_record_accounting(counts: RecordCounts, is_balanced: bool) -> None:
    assert counts.is_balanced == is_balanced


def test_dead_and_late_records_are_told_apart() -> None:
    views = SourceId("views")
    (dead,) = dead_letters(views).files
    path = layout.dead_letter_path(views, layout.late_records_file(0, 0))
    late = structs.replace(dead, path=path, rows=dead.rows + 7)
    entry = DeadLetterEntry(source_id=views, files=(late, dead))
    assert (entry.late_rows, entry.dead_rows) == (dead.rows + 7, dead.rows)


@pytest.mark.parametrize(
    ("seconds", "share", "millis"),
    [
        ([], 0.99, None),
        ([0.0], 0.99, 1),
        ([0.0009, 0.001], 0.5, 1),
        ([0.0009, 0.001], 0.99, 2),
        ([0.003] * 99 + [5.0], 0.99, 4),
        ([0.003] * 98 + [5.0] * 2, 0.99, 8192),
    ],
)
def test_how_long_chunks_took(seconds: list[float], share: float, millis: int | None) -> None:
    reading = SourceReading()
    for each in seconds:
        place = chunk_time(each)
        reading = reading.plus(SourceReading(chunks=1, chunk_times=(*[0] * place, 1)))
    assert reading.chunks == sum(reading.chunk_times) == len(seconds)
    assert reading.chunk_millis(share) == millis
