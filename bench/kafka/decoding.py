"""What it costs to decode a record, by format, beside a plain library that reads one at a time.

No broker is involved. The times are processor time of the whole process, as the decoder of JSON
has threads. The peer stops at Python objects, most of which are texts and no moments; the decoder
ends with typed columns.
"""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from bench.figures import Benchmark, Figure
from bench.kafka.click_topic import ClickTopic
from bench.kafka.message_formats import SCHEMA, MessageFormat, all_formats
from bench.measure import Run, Sample, one_by_one
from bench.surroundings import Surroundings
from laminar_dagster.sources.kafka.decoding import MessageDecoder
from laminar_dagster.sources.kafka.messages import MessageBatch
from laminar_dagster.sources.kafka.options import KafkaOptions

BATCH: Final = 20_000


def decode(surroundings: Surroundings) -> Iterator[Figure]:
    """Every format, a batch at a time."""
    clicks = ClickTopic(BATCH, 1).clicks(0).slice(0, BATCH).cast(SCHEMA)
    for each in all_formats(clicks, surroundings.folder()):
        yield _figure(surroundings, each)


BENCHMARK: Final = Benchmark("kafka-decode", "a record decoded, by format", decode)


def decoder_of(each: MessageFormat) -> MessageDecoder:
    """The decoder of a source of such messages."""
    options = KafkaOptions(
        bootstrap_servers="none", group_id="none", topics=("t",), format=each.name, **each.options
    )
    return MessageDecoder(each.schema, options, "clicks")


def batch_of(each: MessageFormat) -> MessageBatch:
    """All of its messages."""
    return MessageBatch(
        offsets=np.arange(len(each.values), dtype=np.int64),
        values=pa.array(each.values, pa.binary()),
    )


def _figure(surroundings: Surroundings, each: MessageFormat) -> Figure:
    decoder, batch = decoder_of(each), batch_of(each)
    found = decoder.decode("t", 0, batch)
    if found.rows.num_rows != len(batch):
        raise RuntimeError(f"{each.name}: {found.bad.slice(0, 1).to_pylist()}")
    values, read = each.values, each.read

    def one_at_a_time() -> None:
        for value in values:
            read(value)

    own, peer = one_by_one(
        surroundings.effort,
        _processor_time(lambda: decoder.decode("t", 0, batch)),
        _processor_time(one_at_a_time),
    )
    size = sum(map(len, values)) / len(values)
    return Figure(
        f"kafka-decode/{each.name}",
        f"a record of {size:.0f} bytes of {each.name}, in batches of {len(values):,}",
        _each(own, len(values)),
        peer=each.peer,
        peer_sample=_each(peer, len(values)),
        note="processor time; the peer makes Python objects, not columns",
    )


def _processor_time(act: Callable[[], object]) -> Run:
    return timeit.Timer(act, timer=time.process_time).timeit


def _each(sample: Sample, records: int) -> Sample:
    return Sample(tuple(value / records for value in sample.values))
