from __future__ import annotations

import numpy as np
import pyarrow as pa

from laminar_dagster.sources.kafka.messages import (
    HEADERS_TYPE,
    MessageBatch,
    PartitionRange,
    Wanted,
    empty_batch,
    join,
)


def batch() -> MessageBatch:
    headers = [[], [{"key": "ab", "value": b"cde"}, {"key": "f", "value": None}], [], []]
    return MessageBatch(
        offsets=np.array([3, 4, 7, 8], np.int64),
        values=pa.array([b"one", None, b"", b"three"], pa.binary()),
        keys=pa.array([b"k", b"", None, b"key"], pa.binary()),
        timestamps=np.array([1, 2, -1, 3], np.int64),
        headers=pa.array(headers, HEADERS_TYPE),
        fetch_seconds=0.5,
    )


def columns(of: MessageBatch) -> list[object]:
    assert of.keys is not None
    assert of.timestamps is not None
    assert of.headers is not None
    arrays = of.values, of.keys, of.headers
    return [of.offsets.tolist(), of.timestamps.tolist(), *(each.to_pylist() for each in arrays)]


def test_what_was_cut_can_be_joined() -> None:
    whole = batch()
    for low in range(5):
        for high in range(low, 5):
            parts = [whole.slice(0, low), whole.slice(low, high), whole.slice(high, 4)]
            assert [len(each) for each in parts] == [low, high - low, 4 - high]
            joined = join(parts, 2.0)
            assert columns(joined) == columns(whole)
            assert joined.fetch_seconds == 2.0


def test_all_that_is_there_counts() -> None:
    whole = batch()
    assert whole.ends().tolist() == [4, 10, 10, 18]
    assert whole.slice(1, 4).ends().tolist() == [6, 6, 14]
    assert join([whole.slice(1, 2), whole.slice(1, 4)]).ends().tolist() == [6, 12, 12, 20]
    values_alone = MessageBatch(whole.offsets, whole.values)
    assert values_alone.ends().tolist() == [3, 3, 3, 8]
    assert values_alone.slice(3, 4).ends().tolist() == [5]
    assert 0 < values_alone.size_bytes < whole.size_bytes


def test_an_empty_batch_has_the_columns_that_are_wanted() -> None:
    nothing = empty_batch(Wanted(keys=True, timestamps=True, headers=True))
    assert len(nothing) == 0
    assert nothing.ends().tolist() == []
    assert columns(join([nothing, batch()])) == columns(batch())
    assert empty_batch(Wanted()).keys is None


def test_a_range_reads_well() -> None:
    assert str(PartitionRange("clicks", 3, 5, 9)) == "clicks[3], offsets 5 to 9"
