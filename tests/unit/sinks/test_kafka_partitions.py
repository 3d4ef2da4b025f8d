"""Where rows go must not change from one release to the next, or keys would part company."""

from __future__ import annotations

import zlib

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.sinks.kafka.partitions import by_key, by_turns, murmur2

# From the tests of Kafka's own client.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def keys(*values: bytes) -> pa.Array:
    return pa.array(values, pa.large_binary())


def test_hashes_are_those_of_the_java_client() -> None:
    assert murmur2(keys(*KNOWN)).astype("int32").tolist() == [*KNOWN.values()]


@given(st.lists(st.binary(max_size=40), min_size=1), st.integers(0, 3), st.integers(1, 50))
def test_a_key_goes_to_the_same_partition_whatever_stands_beside_it(
    values: list[bytes], before: int, count: int
) -> None:
    together = by_key(keys(*[b"x"] * before, *values)[before:], count, "murmur2").tolist()
    assert together == [by_key(keys(each), count, "murmur2")[0] for each in values]
    assert all(0 <= each < count for each in together)


def test_crc32_is_that_of_librdkafka() -> None:
    assert by_key(keys(b"a", b"bc"), 7, "crc32").tolist() == [
        zlib.crc32(b"a") % 7,
        zlib.crc32(b"bc") % 7,
    ]


def test_rows_without_a_key_take_turns() -> None:
    assert by_turns(4, 5, 3).tolist() == [1, 2, 0, 1, 2]
    assert by_key(keys(), 3, "murmur2").tolist() == []
