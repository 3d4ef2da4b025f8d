"""Checkpoint ids: UUIDs of version 7 that sort by time."""

from __future__ import annotations

import pickle
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.core import layout
from laminar_dagster.core.errors import InvalidCheckpointId
from laminar_dagster.core.ids import CheckpointId
from tests.unit.core.strategies import checkpoint_ids

LAST_MOMENT = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
TIMES = st.integers(0, LAST_MOMENT)
BITS = st.integers(0, 2**74 - 1)
GOOD = "0192a3b4-c5d6-7e8f-9a0b-1c2d3e4f5a6b"


@given(st.integers(0, LAST_MOMENT - 10_000), BITS, BITS, st.integers(1, 10_000))
def test_checkpoint_id_new_is_time_sortable(time: int, first: int, second: int, gap: int) -> None:
    earlier = CheckpointId.from_parts(time, first)
    later = CheckpointId.from_parts(time + gap, second)
    assert earlier < later


@given(checkpoint_ids)
def test_checkpoint_id_to_from_path_string(checkpoint: CheckpointId) -> None:
    key = layout.manifest_key(checkpoint)
    parsed = layout.parse_checkpoint_key(key)
    assert parsed is not None
    assert parsed[0] == checkpoint
    assert type(parsed[0]) is CheckpointId
    assert CheckpointId(str(checkpoint)) == checkpoint


@given(TIMES, BITS)
def test_checkpoint_id_timestamp_extraction(time: int, bits: int) -> None:
    moment = CheckpointId.from_parts(time, bits).timestamp
    assert moment - datetime(1970, 1, 1, tzinfo=UTC) == timedelta(milliseconds=time)
    assert moment.tzinfo is UTC


def test_the_example_of_rfc_9562() -> None:
    # Appendix A.6: 2022-02-22T19:22:22.000Z, rand_a 0xCC3, rand_b 0x18C4DC0C0C07398F.
    checkpoint = CheckpointId.from_parts(0x017F22E279B0, 0xCC3 << 62 | 0x18C4DC0C0C07398F)
    assert checkpoint == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
    assert checkpoint.timestamp == datetime(2022, 2, 22, 19, 22, 22, tzinfo=UTC)


@given(TIMES, BITS)
def test_the_bits_lie_where_rfc_9562_puts_them(time: int, bits: int) -> None:
    number = uuid.UUID(CheckpointId.from_parts(time, bits))
    assert number.version == 7
    assert number.variant == uuid.RFC_4122
    assert number.int >> 80 == time
    assert (number.int >> 64 & 0xFFF) << 62 | number.int & 2**62 - 1 == bits


@given(checkpoint_ids, checkpoint_ids)
def test_equality_hash_and_pickle(one: CheckpointId, two: CheckpointId) -> None:
    assert (one == two) == (str(one) == str(two))
    assert hash(one) == hash(str(one))
    assert CheckpointId(one) is one
    again = pickle.loads(pickle.dumps(one))
    assert again == one
    assert type(again) is CheckpointId


@pytest.mark.parametrize(
    "text",
    [
        "",
        GOOD.upper(),
        GOOD.replace("-", ""),
        "{" + GOOD + "}",
        "urn:uuid:" + GOOD,
        GOOD + "\n",
        " " + GOOD,
        GOOD[:-1],
        GOOD + "0",
        "../" + GOOD,
        GOOD.replace("0", "\u0660"),
        GOOD.replace("a", "\uff41"),
        *(GOOD[:14] + version + GOOD[15:] for version in "012345689abcdef"),
        *(GOOD[:19] + variant + GOOD[20:] for variant in "01234567cdef"),
        "x" * 1000,
    ],
    ids=lambda text: ascii(text)[:50],
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidCheckpointId) as caught:
        CheckpointId(text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", [None, 7, GOOD.encode()])
def test_what_is_no_text_is_refused(value: str) -> None:
    with pytest.raises(InvalidCheckpointId):
        CheckpointId(value)


@pytest.mark.parametrize(("time", "bits"), [(-1, 0), (2**48, 0), (0, -1), (0, 2**74)])
def test_parts_that_do_not_fit_are_refused(time: int, bits: int) -> None:
    with pytest.raises(InvalidCheckpointId):
        CheckpointId.from_parts(time, bits)


def test_every_id_that_is_accepted_has_a_readable_time() -> None:
    """A folder of that name may be anybody's; listing it must not end in an OverflowError."""
    try:
        checkpoint = CheckpointId("ffffffff-ffff-7fff-bfff-ffffffffffff")
    except InvalidCheckpointId:
        return
    assert checkpoint.timestamp >= datetime(9999, 1, 1, tzinfo=UTC)
