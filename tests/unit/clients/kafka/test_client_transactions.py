"""The records in which coordinators keep transactions, as Kafka describes them."""

from __future__ import annotations

import struct

import pytest

from laminar_dagster.clients.kafka.transactions import identity_of, partition_of, transaction_of

_HEAD = struct.pack(">qhib", 77, 5, 60_000, 1)
_TIMES = struct.pack(">qq", 1_000, 900)


def test_a_record_of_the_first_version() -> None:
    topics = struct.pack(">i", 1) + struct.pack(">h", 2) + b"ab" + struct.pack(">iii", 2, 3, 0)
    found = transaction_of("id", b"\0\0" + _HEAD + topics + _TIMES, "b:9092")
    assert (found.state, found.producer_id, found.producer_epoch) == ("open", 77, 5)
    assert (found.timeout, found.started) == (60_000, 900)
    assert found.partitions == ("ab/0", "ab/3")
    assert found.coordinator == "b:9092"


def test_a_record_of_the_compact_version_with_fields_that_are_not_known() -> None:
    tagged = bytes([1, 9, 3]) + b"xyz"
    topics = bytes([2, 3]) + b"ab" + bytes([3]) + struct.pack(">ii", 3, 0) + tagged
    found = transaction_of("id", b"\0\1" + _HEAD + topics + _TIMES + tagged, "b:9092")
    assert found.partitions == ("ab/0", "ab/3")
    assert found.started == 900


@pytest.mark.parametrize(
    ("status", "state"), [(0, "over"), (2, "committing"), (3, "aborting"), (4, "over"), (9, "over")]
)
def test_what_a_status_means(status: int, state: str) -> None:
    head = struct.pack(">qhib", 77, 5, 60_000, status)
    nothing = struct.pack(">i", -1)
    assert transaction_of("id", b"\0\0" + head + nothing + _TIMES, "").state == state


def test_a_version_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="version 7"):
        transaction_of("id", b"\0\7" + _HEAD + _TIMES, "")


def test_keys() -> None:
    assert identity_of(b"\0\0\0\2id") == "id"
    assert identity_of(b"\0\1\0\2id") is None
    assert identity_of(b"") is None


def test_where_an_id_is_kept_is_by_javas_hash() -> None:
    # "hello".hashCode() is 99162322, "polygenelubricants".hashCode() is the smallest number.
    assert partition_of("hello", 50) == 99162322 % 50
    assert partition_of("polygenelubricants", 50) == 0
    # -1752305996: where a broker was seen to keep it.
    assert partition_of("laminar.t12abade8fe9449d5bb40bbb8a3c2ab68.table.0", 50) == 46
