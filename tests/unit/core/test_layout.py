"""Keys: built in one place, unable to leave the base, and readable back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.core import layout
from laminar_dagster.core.errors import InvalidName
from laminar_dagster.core.ids import (
    MAX_EPOCH,
    CheckpointId,
    EpochNumber,
    FileName,
    OperatorId,
    PartitionId,
    SinkId,
    SourceId,
)
from tests.unit.core.samples import checkpoint
from tests.unit.core.strategies import checkpoint_ids, names, partition_ids

ID = CheckpointId("0192a3b4-c5d6-7e8f-9a0b-1c2d3e4f5a6b")


def test_paths_checkpoint_dir() -> None:
    assert layout.checkpoint_folder(ID) == f"checkpoints/{ID}/"
    assert layout.checkpoint_folder(ID).startswith(layout.CHECKPOINTS)


def test_paths_manifest_path() -> None:
    assert layout.manifest_key(ID) == f"checkpoints/{ID}/manifest.json"
    assert layout.attempt_key(ID) == f"checkpoints/{ID}/attempt.json"


def test_paths_snapshot_path() -> None:
    path = layout.snapshot_path(OperatorId("agg_01"), PartitionId(3))
    assert path == "operators/agg_01/3.snap"
    assert layout.checkpoint_key(ID, path) == f"checkpoints/{ID}/operators/agg_01/3.snap"
    delta = layout.delta_path(OperatorId("agg_01"), PartitionId(3))
    assert delta == "operators/agg_01/3.delta"


def test_paths_offset_path() -> None:
    assert layout.offsets_path(SourceId("kafka-orders")) == "sources/kafka-orders.offsets"


def test_paths_latest_path() -> None:
    assert layout.LATEST == "checkpoints/_latest"
    # The pointer is no checkpoint's folder, whatever a checkpoint is called.
    assert layout.parse_checkpoint_key(layout.LATEST) is None


def test_paths_of_staged_output_and_bad_records() -> None:
    assert layout.staged_path(SinkId("lake"), FileName("a.arrow")) == "staged/lake/a.arrow"
    letters = layout.dead_letter_path(SourceId("clicks"), FileName("b.arrow"))
    assert letters == "dead_letters/clicks/b.arrow"


def test_paths_of_epochs() -> None:
    assert layout.plan_key(EpochNumber(42)) == "epochs/00000000000000000042/plan.json"
    assert layout.prepared_key(EpochNumber(42)) == "epochs/00000000000000000042/prepared.json"
    assert layout.epoch_start(EpochNumber(42)) == "epochs/00000000000000000042/"


BUILDERS: list[tuple[Callable[[str, str, PartitionId], str], int]] = [
    (lambda one, _, part: layout.snapshot_path(OperatorId(one), part), 3),
    (lambda one, _, part: layout.delta_path(OperatorId(one), part), 3),
    (lambda one, _, __: layout.offsets_path(SourceId(one)), 2),
    (lambda one, two, _: layout.staged_path(SinkId(one), FileName(two)), 3),
    (lambda one, two, _: layout.dead_letter_path(SourceId(one), FileName(two)), 3),
]


@pytest.mark.parametrize(("build", "segments"), BUILDERS)
@given(folder=names, file=names, partition=partition_ids, home=checkpoint_ids)
def test_every_accepted_name_stays_in_its_folder(
    build: Callable[[str, str, PartitionId], str],
    segments: int,
    folder: str,
    file: str,
    partition: PartitionId,
    home: CheckpointId,
) -> None:
    path = build(folder, file, partition)
    key = layout.checkpoint_key(home, path)
    parts = key.split("/")
    assert len(parts) == 2 + segments
    assert parts[:2] == ["checkpoints", home]
    assert not {"", ".", ".."} & set(parts)
    assert len(key.encode()) <= 1024, "longer than S3 takes"
    assert max(len(part.encode()) for part in parts) <= 255, "longer than a file name may be"
    assert layout.parse_checkpoint_key(key) == (home, path)
    assert not layout.is_manifest_path(path)
    assert not layout.is_attempt_path(path)


@given(st.integers(0, MAX_EPOCH))
def test_keys_of_epochs_parse_back(number: int) -> None:
    epoch = EpochNumber(number)
    assert layout.parse_epoch_key(layout.plan_key(epoch)) == (epoch, True)
    assert layout.parse_epoch_key(layout.prepared_key(epoch)) == (epoch, False)
    assert layout.plan_key(epoch).startswith(layout.EPOCHS)
    assert layout.epoch_start(epoch) < layout.plan_key(epoch) < layout.prepared_key(epoch)


@given(checkpoint_ids)
def test_keys_of_checkpoints_parse_back(home: CheckpointId) -> None:
    found = layout.parse_checkpoint_key(layout.manifest_key(home))
    assert found is not None
    assert found[0] == home
    assert layout.is_manifest_path(found[1])
    found = layout.parse_checkpoint_key(layout.attempt_key(home))
    assert found is not None
    assert layout.is_attempt_path(found[1])
    folder = layout.checkpoint_folder(home)
    assert layout.manifest_key(home).startswith(folder)
    assert layout.attempt_key(home).startswith(folder)


@given(st.integers(1, MAX_EPOCH), st.integers(1, MAX_EPOCH))
def test_a_listing_from_an_epoch_on_shows_it_and_the_later_ones(one: int, two: int) -> None:
    shown = layout.plan_key(EpochNumber(two)) > layout.epoch_start(EpochNumber(one))
    assert shown == (two >= one)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "epochs",
        "epochs/",
        "epochs/1/plan.json",
        "epochs/00000000000000000001/",
        "epochs/00000000000000000001/plan.json/x",
        "epochs/00000000000000000001/other.json",
        "epochs/0000000000000000000x/plan.json",
        "epochs/" + "\u0660" * 20 + "/plan.json",
        "epochs/+0000000000000000001/plan.json",
        "epochs/99999999999999999999/plan.json",
        "epochs/09223372036854775808/plan.json",
        "x/epochs/00000000000000000001/plan.json",
        "checkpoints/00000000000000000001/plan.json",
    ],
    ids=ascii,
)
def test_a_strangers_key_is_no_epochs(key: str) -> None:
    assert layout.parse_epoch_key(key) is None


@pytest.mark.parametrize(
    "key",
    [
        "",
        "checkpoints",
        "checkpoints/",
        "checkpoints/_latest",
        f"checkpoints/{ID}",
        f"checkpoints/{ID}/",
        f"checkpoints/{ID.upper()}/manifest.json",
        "checkpoints/x/manifest.json",
        f"x/checkpoints/{ID}/manifest.json",
        f"epochs/{ID}/manifest.json",
        f"/checkpoints/{ID}/manifest.json",
    ],
)
def test_a_strangers_key_is_no_checkpoints(key: str) -> None:
    assert layout.parse_checkpoint_key(key) is None


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "manifest.json",
        "attempt.json",
        "../manifest.json",
        "operators/../../x",
        "operators/agg/../0.snap",
        "operators//0.snap",
        "operators/agg/0.txt",
        "operators/agg/.snap",
        "operators/agg/00.snap",
        "operators/agg/+1.snap",
        "operators/agg/-1.snap",
        "operators/agg/1_0.snap",
        "operators/agg/٣.snap",
        "operators/agg/²snap",
        "operators/agg/4294967296.snap",
        "operators/agg/" + "1" * 5000 + ".snap",
        "operators/agg/0.snap/x",
        "operators/agg",
        "/operators/agg/0.snap",
        "operators\\agg\\0.snap",
        "sources/.offsets",
        "sources/...offsets",
        "sources/a",
        "sources/a/b.offsets",
        "staged/lake",
        "staged/lake/",
        "staged/lake/..",
        "staged/lake/a/b",
        "staged/../lake",
        "dead_letters/clicks/\0",
        "dead_letters//x",
        "_latest",
    ],
    ids=lambda path: ascii(path)[:40],
)
def test_a_path_that_is_not_ours_is_refused(path: str) -> None:
    with pytest.raises(InvalidName):
        layout.check_path(path)
    with pytest.raises(InvalidName):
        layout.checkpoint_key(checkpoint(1), path)


@given(st.text("operatsdulckn/._-01\\\0", max_size=40) | st.text(max_size=20))
def test_any_path_is_refused_or_cannot_leave_the_folder(path: str) -> None:
    try:
        key = layout.checkpoint_key(ID, path)
    except InvalidName:
        return
    assert key == f"checkpoints/{ID}/{path}"
    assert not {"", ".", ".."} & set(key.split("/"))
    assert "\\" not in key
    assert "\0" not in key


def test_bad_records_and_late_ones_have_names_of_their_own() -> None:
    bad = layout.dead_letter_path(SourceId("s"), layout.bad_records_file(3, 1))
    late = layout.dead_letter_path(SourceId("s"), layout.late_records_file(3, 1))
    assert (bad, late) == (
        "dead_letters/s/bad-000003-0001.arrow",
        "dead_letters/s/late-000003-0001.arrow",
    )
    assert [layout.is_late_path(each) for each in (bad, late)] == [False, True]
    assert layout.is_letter_path(bad)
    assert not layout.is_letter_path("staged/dead_letters/x")


def test_the_definition_of_a_fingerprint_cannot_leave_its_folder() -> None:
    assert layout.definition_key("ab12") == "pipelines/ab12.json"
    with pytest.raises(InvalidName):
        layout.definition_key("../x")
