"""The catalogue of metrics: names, kinds and units, as OpenTelemetry writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Attributes = Mapping[str, str]
# Values of a gauge, each with the attributes of its series.
Points = Sequence[tuple[float, Attributes]]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        unit: In UCUM; in braces where it only says what is counted.
        attributes: The attributes of its series, besides the pipeline.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    description: str
    attributes: tuple[str, ...] = ()


def _of_source(
    name: str, unit: str, description: str, kind: Literal["counter", "gauge"] = "counter"
) -> Metric:
    return Metric(f"laminar.source.{name}", kind, unit, description, ("source",))


RECORDS: Final = _of_source("records", "{record}", "Records that were read.")
BYTES: Final = _of_source("bytes", "By", "Bytes that were read.")
CHUNKS: Final = _of_source("chunks", "{chunk}", "Groups of records that were decoded together.")
FETCH: Final = _of_source("fetch.seconds", "s", "Time spent on waiting for the source, all tasks.")
DECODE: Final = _of_source("decode.seconds", "s", "Time spent on decoding, all tasks.")
PAUSES: Final = _of_source("pauses", "{pause}", "How often a task held back, to catch up.")
ERRORS: Final = _of_source(
    "errors", "{error}", "Complaints of the source's client that it got over by itself."
)
CHUNK_P99: Final = _of_source(
    "chunk.p99",
    "s",
    "In the newest epoch, 99 of 100 groups of records took at most so long.",
    "gauge",
)
DEAD_LETTERS: Final = _of_source("dead_letters", "{record}", "Bad records that were set aside.")
LATE: Final = _of_source("late", "{record}", "Records that came too late for their windows.")
AHEAD: Final = _of_source(
    "ahead", "{record}", "Records whose event time was too far ahead of the epoch's clock."
)
NEWEST_WATERMARK: Final = _of_source(
    "newest_watermark", "s", "How far the furthest of its partitions has come, since 1970.", "gauge"
)
COMMITS: Final = _of_source("commits", "{epoch}", "Epochs that the source was told of.")
COMMIT_FAILURES: Final = _of_source(
    "commit_failures", "{epoch}", "Epochs that the source could not be told of."
)
UP: Final = _of_source("up", "1", "Whether the source answers: 1 or 0.", "gauge")
HEADROOM: Final = _of_source(
    "headroom",
    "1",
    "Least share of what a partition holds that has been read; at 0, unread records expire.",
    "gauge",
)
LAG: Final = Metric(
    "laminar.source.lag",
    "gauge",
    "",
    "What waits beyond the newest checkpoint, in records or bytes.",
    ("source", "unit", "partition"),
)
EPOCH_DURATION: Final = Metric(
    "laminar.epoch.duration",
    "histogram",
    "s",
    "From the beginning of the attempt until every sink has committed.",
)
STEP_DURATION: Final = Metric(
    "laminar.epoch.step.duration", "histogram", "s", "One step of an epoch.", ("step",)
)
EPOCH_NUMBER: Final = Metric("laminar.epoch.number", "gauge", "{epoch}", "The newest epoch.")
LAST_SUCCESS: Final = Metric(
    "laminar.epoch.last_success", "gauge", "s", "When the newest epoch was ready, since 1970."
)
WATERMARK: Final = Metric(
    "laminar.epoch.watermark", "gauge", "s", "The pipeline's watermark, since 1970."
)
FAILURES: Final = Metric(
    "laminar.epoch.failures", "counter", "{failure}", "Tries that ended with an error.", ("kind",)
)
SINK_EPOCH: Final = Metric(
    "laminar.sink.epoch", "gauge", "{epoch}", "The newest epoch of a sink.", ("sink",)
)


def _of_sink(
    name: str, unit: str, description: str, kind: Literal["counter", "histogram"] = "counter"
) -> Metric:
    return Metric(f"laminar.sink.{name}", kind, unit, description, ("sink",))


SINK_COMMITS: Final = _of_sink("commits", "{transaction}", "Transactions that were committed.")
SINK_ABORTS: Final = _of_sink("aborts", "{transaction}", "Transactions that were rolled back.")
SINK_COMMIT_FAILURES: Final = _of_sink(
    "commit_failures", "{transaction}", "Commits that nobody confirmed; the ledger was read."
)
SINK_ROWS: Final = _of_sink("rows", "{row}", "Rows in transactions that were committed.")
SINK_BEGIN: Final = _of_sink(
    "begin.duration", "s", "From being asked until the transaction was open.", "histogram"
)
SINK_COMMIT: Final = _of_sink(
    "commit.duration", "s", "From sending the commit until it was confirmed.", "histogram"
)


def _of_reference(name: str, unit: str, description: str) -> Metric:
    return Metric(f"laminar.reference.{name}", "gauge", unit, description, ("reference",))


REFERENCE_CHECKED: Final = _of_reference(
    "checked", "s", "When the table was last looked at, since 1970."
)
REFERENCE_UNAVAILABLE: Final = _of_reference(
    "unavailable", "1", "Whether the table is away and an older copy is used: 1 or 0."
)
REFERENCE_ROWS: Final = _of_reference("rows", "{row}", "Rows of the copy in use.")
REFERENCE_BYTES: Final = _of_reference("bytes", "By", "Bytes of the copy in use.")

METRICS: Final = (
    RECORDS,
    BYTES,
    CHUNKS,
    FETCH,
    DECODE,
    PAUSES,
    ERRORS,
    CHUNK_P99,
    DEAD_LETTERS,
    LATE,
    AHEAD,
    NEWEST_WATERMARK,
    COMMITS,
    COMMIT_FAILURES,
    UP,
    HEADROOM,
    LAG,
    EPOCH_DURATION,
    STEP_DURATION,
    EPOCH_NUMBER,
    LAST_SUCCESS,
    WATERMARK,
    FAILURES,
    SINK_EPOCH,
    SINK_COMMITS,
    SINK_ABORTS,
    SINK_COMMIT_FAILURES,
    SINK_ROWS,
    SINK_BEGIN,
    SINK_COMMIT,
    REFERENCE_CHECKED,
    REFERENCE_UNAVAILABLE,
    REFERENCE_ROWS,
    REFERENCE_BYTES,
)
