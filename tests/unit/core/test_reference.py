"""Copies of reference tables: their keys, what a pin says, and when one may go."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.garbage import Holdings, find_garbage
from laminar_dagster.core.ids import CheckpointId, EpochNumber, FileName, ReferenceId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import ObjectInfo
from laminar_dagster.core.ports.reference import ReferenceFreshness
from laminar_dagster.core.reference import ReferencePin, require_each_once
from laminar_dagster.core.snapshot import SnapshotFile
from tests.unit.core.samples import MOMENT, checkpoint, manifest, sha

PAGES = ReferenceId("pages")
HOUR = timedelta(hours=1)


def file(name: str, rows: int) -> SnapshotFile:
    return SnapshotFile(name=FileName(name), rows=rows, size_bytes=10 * rows, sha256=sha(name))


def pin(
    copy: int = 1, *files: SnapshotFile, away: datetime | None = None, epoch: int = 1
) -> ReferencePin:
    return ReferencePin(
        reference_id=PAGES,
        version="7",
        declaration=sha("columns"),
        epoch=EpochNumber(epoch),
        copy_id=checkpoint(copy),
        checked_at=MOMENT,
        files=files or (file("0.arrow", 3), file("1.arrow", 4)),
        unavailable_since=away,
    )


def test_a_pin_adds_up_its_files_and_knows_where_they_are() -> None:
    found = pin()
    assert (found.rows, found.size_bytes) == (7, 70)
    assert found.copied_at == found.copy_id.timestamp
    assert not found.is_kept
    assert pin(away=MOMENT + HOUR).is_kept
    keys = [found.key_of(each) for each in found.files]
    assert keys == [f"{found.folder}0.arrow", f"{found.folder}1.arrow"]
    for key in keys:
        assert layout.parse_reference_key(key) == (PAGES, 1, found.copy_id)


@pytest.mark.parametrize(
    "key",
    [
        "references/pages/1/x/0.arrow",
        f"references/pages/{1:020d}/no-id/0.arrow",
        f"references/../{1:020d}/{checkpoint(1)}/0.arrow",
        f"references/pages/{1:020d}/{checkpoint(1)}/../0.arrow",
        f"references/pages/{1:020d}/{checkpoint(1)}/..",
        "checkpoints/_latest",
    ],
)
def test_other_keys_are_a_strangers(key: str) -> None:
    assert layout.parse_reference_key(key) is None


def test_a_pin_does_not_contradict_itself() -> None:
    with pytest.raises(ValueError, match="is pinned twice"):
        pin(1, file("0.arrow", 1), file("0.arrow", 2))
    with pytest.raises(ValueError, match="unavailable_since"):
        pin(away=datetime(2026, 1, 1))  # noqa: DTZ001  what is refused
    with pytest.raises(ValueError, match="pinned twice"):
        require_each_once((pin(1), pin(2)))
    require_each_once((pin(1),))


def test_when_a_table_is_looked_at_again() -> None:
    assert ReferenceFreshness(HOUR).next_look(MOMENT) == MOMENT + HOUR
    assert ReferenceFreshness(None).next_look(MOMENT) is None
    assert ReferenceFreshness(timedelta.max).next_look(MOMENT) is None


def left(
    *pins: ReferencePin,
    retained: tuple[CheckpointManifest, ...],
    winners: frozenset[CheckpointId] = frozenset(),
    decided: int = 9,
    age: timedelta = 100 * HOUR,
) -> set[int]:
    """Which of some copies a collector leaves alone, by their places."""
    objects = [
        ObjectInfo(key=each.key_of(part), size=part.size_bytes, modified=MOMENT - age)
        for each in pins
        for part in each.files
    ]
    holdings = Holdings(
        retained=retained,
        undecided=frozenset(),
        attempts={},
        decided=EpochNumber(decided),
        objects=objects,
        pinned=winners,
    )
    gone = set(find_garbage(holdings, MOMENT, HOUR).keys)
    whole = [{each.key_of(part) for part in each.files} for each in pins]
    assert all(keys <= gone or not keys & gone for keys in whole)
    return {place for place, keys in enumerate(whole) if not keys & gone}


def test_a_copy_goes_when_no_manifest_and_no_plan_to_come_can_name_it() -> None:
    named, unnamed, prepared, later = pin(1), pin(2), pin(3), pin(4, epoch=10)
    kept = (manifest(9, references=(named,)),)
    everything = (named, unnamed, prepared, later)
    found = left(*everything, retained=kept, winners=frozenset({prepared.copy_id}))
    assert found == {0, 2, 3}
    # Its writer may still be at it.
    assert left(*everything, retained=kept, age=timedelta(0)) == {0, 1, 2, 3}
    # Before the first checkpoint every plan is still to come.
    assert left(*everything, retained=()) == {0, 1, 2, 3}
