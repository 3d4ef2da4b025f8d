from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from laminar_dagster.cli.manifest_dossier import dossier
from laminar_dagster.cli.plain_documents import plain_document
from laminar_dagster.cli.tables import Fields, Line, Table
from laminar_dagster.core import layout
from laminar_dagster.core.additions import AddedPartial
from laminar_dagster.core.document import checksum, decode, encode
from laminar_dagster.core.ids import CheckpointId, EpochNumber, FileName, SourceId
from laminar_dagster.core.manifest import (
    CheckpointManifest,
    DeadLetterEntry,
    FileEntry,
    OperatorSnapshotEntry,
    PartitionSnapshotEntry,
    RecordCounts,
    SinkEntry,
    SourceOffsetEntry,
)
from laminar_dagster.core.offsets import (
    CustomPosition,
    FilePosition,
    Gap,
    KafkaPosition,
    MysqlPosition,
    PostgresPosition,
    SourcePosition,
    SourceRange,
    describe_position,
)
from tests.unit.cli.conditions import History, Laminar, flip_bit

ADDED = AddedPartial(partial="max(n)", epoch=EpochNumber(4), generation=1, shows="null")
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_json_is_the_manifest_whole(laminar: Laminar, history: History) -> None:
    document = laminar.json("checkpoints", "show", history.ids[4])
    manifest = history.manifest(4)
    assert document.pop("checksum") == checksum(manifest)
    # Members equal to their default are there as well; the manifest can be rebuilt from it.
    assert set(document) == set(CheckpointManifest.__struct_fields__)
    assert document["counts"] == {
        "read": 4, "processed": 4, "filtered": 0, "dead_lettered": 0, "late": 0,
        "added": 0, "skipped": 0,
    }  # fmt: skip
    rebuilt = msgspec.convert(
        document,
        CheckpointManifest,
        dec_hook=lambda kind, value: kind(value),
    )
    assert rebuilt == manifest
    assert encode(rebuilt) == history.path(4, "manifest.json").read_bytes()


def test_tells_everything_to_people(laminar: Laminar, history: History) -> None:
    result = laminar("checkpoints", "show", history.ids[5])
    assert (result.exit_code, result.stderr) == (0, "")
    fields = dict(
        line.split(":", 1) for line in result.stdout.split("\n\n")[0].splitlines()
    )  # the first paragraph
    told = {name: value.strip() for name, value in fields.items()}
    assert told["checkpoint"] == history.ids[5]
    assert told["epoch"] == "5"
    assert told["latest"] == "yes"
    assert told["pipeline"] == "clicks"
    assert told["fingerprint"] == "code-1"
    assert told["parent"] == history.ids[4]
    assert told["started"] == "2026-01-01 11:59:00 UTC"
    assert told["committed"].startswith("2026-01-01 11:59:00 UTC, ")
    assert told["watermark"] == "none yet"
    assert told["records"] == "4 read = 4 processed + 0 filtered + 0 dead-lettered + 0 late"
    manifest = history.manifest(5)
    assert told["plan"] == manifest.plan_checksum
    for _, _, sha256 in manifest.files():
        assert sha256[:12] in result.stdout
    assert "numbers/0  offset 15" in result.stdout
    assert "numbers/1  offset 5" in result.stdout


def test_an_older_checkpoint_is_not_the_latest(laminar: Laminar, history: History) -> None:
    lines = laminar("checkpoints", "show", history.ids[4]).stdout.splitlines()
    assert "latest:      no" in lines


def test_the_first_checkpoint_has_no_parent(laminar: Laminar, history: History) -> None:
    lines = laminar("checkpoints", "show", history.ids[1]).stdout.splitlines()
    assert "parent:      none" in lines


@pytest.mark.parametrize("wanted", ["latest", "LATEST"])
def test_finds_the_latest(laminar: Laminar, history: History, wanted: str) -> None:
    assert laminar.json("checkpoints", "show", wanted)["epoch"] == 5


def test_finds_by_epoch(laminar: Laminar, history: History) -> None:
    assert laminar.json("checkpoints", "show", "--epoch", "2")["checkpoint_id"] == history.ids[2]


def test_finds_by_the_shortest_prefix_and_in_capitals(laminar: Laminar, history: History) -> None:
    wanted = history.ids[3]
    length = next(
        length
        for length in range(1, 37)
        if sum(other.startswith(wanted[:length]) for other in history.ids.values()) == 1
    )
    for text in (wanted[:length], wanted[:length].upper(), wanted, wanted.upper()):
        assert laminar.json("checkpoints", "show", text)["checkpoint_id"] == wanted


def test_a_prefix_of_several_names_them(laminar: Laminar, history: History) -> None:
    error = laminar.error("checkpoints", "show", history.ids[1][:2], exit_code=2)
    assert error["kind"] == "ambiguous_checkpoint"
    assert error["context"]["matches"] == 5
    assert history.ids[5] in error["hint"]
    assert error["hint"].endswith("…")


def test_a_prefix_means_checkpoints_before_attempts(laminar: Laminar, history: History) -> None:
    attempt = history.attempt(6)
    for epoch in (1, 2, 3, 4):
        history.path(epoch, "manifest.json").unlink()
    shared = history.ids[5][:2]
    assert attempt.startswith(shared)
    found = laminar.json("checkpoints", "show", shared)
    assert found["checkpoint_id"] == history.ids[5]


def test_many_matches_are_ambiguous_without_reading_them(
    laminar: Laminar, history: History
) -> None:
    history.run(15)
    error = laminar.error("checkpoints", "show", "0", exit_code=2)
    assert error["context"]["matches"] == 20


@pytest.mark.parametrize(
    "wanted",
    ["no-such-thing", "../../etc/passwd", "018f" * 12, "00000000-0000-4000-8000-000000000000"],
)
def test_refuses_what_cannot_be_an_id(laminar: Laminar, wanted: str) -> None:
    error = laminar.error("checkpoints", "show", wanted, exit_code=2)
    assert error["kind"] == "invalid_checkpoint_id"


def test_an_empty_id_is_refused_where_it_is_read(laminar: Laminar) -> None:
    error = laminar.error("checkpoints", "show", "", exit_code=2)
    assert error["kind"] == "usage"
    assert "it is empty" in error["message"]


def test_an_unknown_id_is_told_from_an_attempt(laminar: Laminar, history: History) -> None:
    unknown = CheckpointId.from_parts(1, 1)
    for wanted in (unknown, unknown[:8]):
        error = laminar.error("checkpoints", "show", wanted, exit_code=2)
        assert error["kind"] == "unknown_checkpoint"
        assert "checkpoints list" in error["hint"]
    attempt = history.attempt(6)
    error = laminar.error("checkpoints", "show", attempt, exit_code=2)
    assert error["kind"] == "incomplete_checkpoint"


@pytest.mark.parametrize("epoch", ["0", "-1", "one", "1.5", str(2**63)])
def test_refuses_an_epoch_that_is_none(laminar: Laminar, epoch: str) -> None:
    error = laminar.error("checkpoints", "show", "--epoch", epoch, exit_code=2)
    assert error["kind"] == "usage"


def test_an_epoch_without_a_checkpoint_says_why(laminar: Laminar, history: History) -> None:
    error = laminar.error("checkpoints", "show", "--epoch", "6", exit_code=2)
    assert error["message"] == (
        "epoch 6 has no checkpoint: it has not begun, or is not computed yet"
    )
    history.path(2, "manifest.json").unlink()
    error = laminar.error("checkpoints", "show", "--epoch", "2", exit_code=2)
    assert error["message"].endswith("it has been collected")
    history.path(5, "manifest.json").unlink()
    (history.root / layout.LATEST).unlink()
    error = laminar.error("checkpoints", "show", "--epoch", "5", exit_code=2)
    assert error["message"].endswith("it is prepared and not committed yet")


def test_an_epoch_is_found_without_the_record_of_its_winner(
    laminar: Laminar, history: History
) -> None:
    prepared = history.root / layout.prepared_key(EpochNumber(2))
    flip_bit(prepared)
    assert laminar.json("checkpoints", "show", "--epoch", "2")["checkpoint_id"] == history.ids[2]
    history.path(2, "manifest.json").unlink()
    assert laminar.error("checkpoints", "show", "--epoch", "2", exit_code=4)


@pytest.mark.parametrize("args", [(), ("latest", "--epoch", "1")])
def test_wants_one_checkpoint(laminar: Laminar, args: tuple[str, ...]) -> None:
    error = laminar.error("checkpoints", "show", *args, exit_code=2)
    assert error["message"] == "give either an ID (or `latest`) or --epoch N"


def test_a_damaged_manifest_is_an_integrity_error(laminar: Laminar, history: History) -> None:
    history.flip(5, "manifest.json")
    for wanted in (("latest",), (history.ids[5],), ("--epoch", "5")):
        error = laminar.error("checkpoints", "show", *wanted, exit_code=4)
        assert error["kind"] == "checksum_mismatch"
        assert history.ids[5] in error["context"]["path"]


def test_the_latest_that_is_gone_is_an_integrity_error(laminar: Laminar, history: History) -> None:
    history.path(5, "manifest.json").unlink()
    assert laminar.error("checkpoints", "show", "latest", exit_code=4)["kind"] == "object_missing"
    flip_bit(history.root / layout.LATEST)
    error = laminar.error("checkpoints", "show", "latest", exit_code=4)
    assert error["context"]["path"] == layout.LATEST
    # A damaged pointer does not stand in the way of a checkpoint that is named.
    result = laminar("checkpoints", "show", history.ids[4])
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: checkpoints/_latest")


def test_without_a_latest_says_what_there_is(
    laminar: Laminar, history: History, empty: Laminar
) -> None:
    error = empty.error("checkpoints", "show", "latest", exit_code=1)
    assert error["kind"] == "no_checkpoint_available"
    (history.root / layout.LATEST).unlink()
    error = laminar.error("checkpoints", "show", "latest", exit_code=2)
    assert error["kind"] == "nothing_confirmed"


def test_warns_of_a_clock_that_was_set_back(laminar: Laminar, history: History) -> None:
    manifest = msgspec.structs.replace(
        history.manifest(4), completed_at=datetime(2025, 1, 1, tzinfo=UTC)
    )
    history.path(4, "manifest.json").write_bytes(encode(manifest))
    result = laminar("checkpoints", "show", history.ids[4], "--json")
    assert result.stderr == (
        "warning: completed_at is before started_at: the machine's clock was set back\n"
    )


def test_warns_of_a_latest_that_is_another_than_the_pointer_says(
    laminar: Laminar, history: History
) -> None:
    manifest = msgspec.structs.replace(history.manifest(5), fingerprint="forged")
    history.path(5, "manifest.json").write_bytes(encode(manifest))
    result = laminar("checkpoints", "show", "latest")
    assert "another manifest" in result.stderr


# --- the parts that a pipeline in memory does not have ------------------------------------------


def _full(history: History) -> CheckpointManifest:
    file = FileEntry(
        path=layout.dead_letter_path(SourceId("numbers"), FileName("bad.arrow")),
        size_bytes=2048,
        sha256="d" * 64,
        rows=3,
    )
    start = KafkaPosition(topic="numbers", partition=0, offset=2)
    end = KafkaPosition(topic="numbers", partition=0, offset=9)
    return msgspec.structs.replace(
        history.manifest(5),
        watermark=1_767_268_800_500_000,
        operators=tuple(
            msgspec.structs.replace(each, added=(ADDED,)) for each in history.manifest(5).operators
        ),
        metadata={"owner": "team\x1b[31m\nred", "a": "b"},
        dead_letters=(DeadLetterEntry(source_id=SourceId("numbers"), files=(file,)),),
        counts=RecordCounts(read=1_000, processed=997, dead_lettered=3),
        sources=(
            SourceOffsetEntry(
                source_id=SourceId("numbers"),
                positions=(end,),
                path=layout.offsets_path(SourceId("numbers")),
                watermarks=(2**62,),
                watermark=0,
                gaps=(Gap(lost=SourceRange(start=start, end=end), reason="retention"),),
            ),
        ),
    )


def test_tells_of_dead_letters_gaps_watermarks_and_metadata(history: History) -> None:
    blocks = list(dossier(_full(history), NOW, is_latest=False, every_file=False))
    fields = next(dict(block.rows) for block in blocks if isinstance(block, Fields))
    assert fields["watermark"] == "2026-01-01 12:00:00.5 UTC"
    assert fields["records"].startswith("1,000 read = 997 processed")
    tables = {block.title.split(":")[0]: block for block in blocks if isinstance(block, Table)}
    letters = tables["Dead letters and late records"]
    assert list(letters.rows) == [("numbers", "3", "0", "1", "2.0 KiB")]
    assert list(tables["Gaps"].rows) == [
        ("numbers", "numbers/0", "offset 2", "offset 9", "retention")
    ]
    assert list(tables["Added to state that was there"].rows) == [
        (str(each.operator_id), "max(n)", "4", "NULL in rows that began before")
        for each in history.manifest(5).operators
    ]
    # No calendar reaches that far.
    assert tables["Sources"].rows[0][3] == f"{2**62} µs"
    assert tables["Sources"].rows[1] == ("numbers", "all", "", "1970-01-01 00:00:00", "")
    assert [row[0] for row in tables["Metadata"].rows] == ["a", "owner"]


def test_what_a_manifest_says_cannot_steer_the_terminal(laminar: Laminar, history: History) -> None:
    manifest = msgspec.structs.replace(history.manifest(5), fingerprint="[red]x\x1b[31m\ny")
    history.path(5, "manifest.json").write_bytes(encode(manifest))
    assert r"fingerprint: [red]x\x1b[31m\ny" in laminar("checkpoints", "show", "latest").stdout


def test_many_files_are_cut_unless_asked_for(history: History) -> None:
    manifest = history.manifest(5)
    sink = manifest.sinks[0]
    files = tuple(
        msgspec.structs.replace(sink.files[0], path=f"staged/table/{n}") for n in range(99)
    )
    many = msgspec.structs.replace(manifest, sinks=(msgspec.structs.replace(sink, files=files),))
    total = len(list(many.files()))

    def shown(every_file: bool) -> tuple[int, list[str]]:
        blocks = list(dossier(many, NOW, is_latest=True, every_file=every_file))
        table = next(b for b in blocks if isinstance(b, Table) and b.title.startswith("Files"))
        return len(table.rows), [block.text for block in blocks if isinstance(block, Line)]

    assert shown(False) == (50, [f"{total - 50} more; --files shows every one."])
    assert shown(True) == (total, [])


@pytest.mark.parametrize(
    ("position", "told"),
    [
        (KafkaPosition(topic="t", partition=3, offset=9), ("t/3", "offset 9")),
        (PostgresPosition(lsn=0x16_B374D848, slot="s"), ("slot s", "lsn 16/B374D848")),
        (MysqlPosition(binlog_file="b.000003", binlog_position=4), ("", "b.000003:4")),
        (
            MysqlPosition(binlog_file="b.000003", binlog_position=4, gtid_set="u:1-5"),
            ("", "b.000003:4, gtid u:1-5"),
        ),
        (FilePosition(path="/x", byte_offset=7), ("/x", "byte 7")),
        (CustomPosition(source_type="mine", position_bytes=b"\x00\xff"), ("mine", "0x00ff")),
    ],
)
def test_positions_are_written_as_their_own_tools_do(
    position: SourcePosition, told: tuple[str, str]
) -> None:
    assert describe_position(position) == told


def test_plain_values_name_the_kind_of_a_position(history: History) -> None:
    entry = msgspec.structs.replace(
        history.manifest(5).sources[0],
        positions=(CustomPosition(source_type="mine", position_bytes=b"\x00\xff"),),
    )
    manifest = msgspec.structs.replace(history.manifest(5), sources=(entry,))
    assert plain_document(manifest)["sources"][0]["positions"] == [
        {"type": "custom", "source_type": "mine", "position_bytes": "AP8="}
    ]
    assert decode(encode(manifest), CheckpointManifest, "m").sources == (entry,)


def test_every_member_of_a_manifest_has_its_place_in_the_dossier() -> None:
    """Fails when a member is added: show it in ``dossier``, then name it here."""
    assert {
        kind.__name__: kind.__struct_fields__
        for kind in (OperatorSnapshotEntry, PartitionSnapshotEntry, SourceOffsetEntry, SinkEntry)
    } == {
        "OperatorSnapshotEntry": (
            "operator_id", "operator_type", "state_backend", "partitions", "schema_fingerprint",
            "added",
        ),
        "PartitionSnapshotEntry": (
            "partition_id", "path", "size_bytes", "sha256", "is_incremental", "rows",
            "event_time", "origin",
        ),
        "SourceOffsetEntry": (
            "source_id", "positions", "path", "watermarks", "watermark", "schema_fingerprint",
            "gaps", "schema_ids", "reading",
        ),
        "SinkEntry": ("sink_id", "joined_at", "files", "output_sha256", "schema_fingerprint"),
    }  # fmt: skip
    assert CheckpointManifest.__struct_fields__ == (
        "version", "checkpoint_id", "epoch", "pipeline", "fingerprint", "plan_checksum",
        "previous_checkpoint_id", "started_at", "completed_at", "total_size_bytes", "counts",
        "operators", "sources", "sinks", "dead_letters", "watermark", "is_unaligned", "metadata",
        "references",
    )  # fmt: skip
