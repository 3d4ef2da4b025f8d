"""Records per second beside the peers: whole aggregations, scans, Avro, partitions and cores.

Every contest prints its table as Markdown and draws its chart. Only a full run draws into the
documentation; a hurried one draws beside its scratch files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.figures import Benchmark, Figure
from bench.kafka import chart, markdown
from bench.kafka.click_topic import ClickTopic
from bench.kafka.contest import Arena, Entrant
from bench.kafka.entrants import AGGREGATE, SCAN, SPARK_ONLY
from bench.kafka.standing import Standing, hold
from bench.kafka.venue import Venue, cores, venue_of
from bench.surroundings import Surroundings

_RECORDS: Final = 2_000_000
# For those that are run with several settings.
_FEWER: Final = 1_000_000
_PARTITIONS: Final = 4
_MANY: Final = (1, 4, 16, 64)
_CORES: Final = (1, 2)
_IMAGES: Final = Path("docs/images")
_DRAFTS: Final = Path(".laminar/charts")
# How many times the best peer.
_AGGREGATE_TARGETS: Final = {"portable": 1.2, "fast": 2.0}
_SCAN_TARGETS: Final = {"portable": 1.8, "fast": 3.0}


def aggregate(surroundings: Surroundings) -> Iterator[Figure]:
    """JSON to a 1-minute window by key to a sink."""
    topic = ClickTopic(surroundings.effort.scaled(_RECORDS), _PARTITIONS)
    standing = _contest(surroundings, "kafka-aggregate", topic, AGGREGATE)
    _show(surroundings, standing, "Kafka JSON to a 1-minute aggregate by key")
    yield from standing.figures(_AGGREGATE_TARGETS)


def avro(surroundings: Surroundings) -> Iterator[Figure]:
    """The same of Avro with a schema registry."""
    topic = ClickTopic(surroundings.effort.scaled(_RECORDS), _PARTITIONS, format="avro")
    standing = _contest(surroundings, "kafka-avro", topic, AGGREGATE)
    _show(surroundings, standing, "Kafka Avro to a 1-minute aggregate by key")
    yield from standing.figures()


def scan(surroundings: Surroundings) -> Iterator[Figure]:
    """All columns decoded and added up, nothing else."""
    topic = ClickTopic(surroundings.effort.scaled(_RECORDS), _PARTITIONS)
    standing = _contest(surroundings, "kafka-scan", topic, SCAN, task="scan")
    _show(surroundings, standing, "Kafka JSON, every column decoded and added up")
    yield from standing.figures(_SCAN_TARGETS)


def partitions(surroundings: Surroundings) -> Iterator[Figure]:
    """The aggregation over topics of few and of many partitions."""
    found: dict[str, Standing] = {}
    for count in _MANY:
        topic = ClickTopic(surroundings.effort.scaled(_FEWER), count)
        name = f"kafka-partitions/{count}"
        found[f"{count} partitions"] = _contest(surroundings, name, topic, SPARK_ONLY)
        yield from found[f"{count} partitions"].figures()
    _show_series(surroundings, "kafka-partitions", "The aggregate by number of partitions", found)


def scaling(surroundings: Surroundings) -> Iterator[Figure]:
    """The aggregation on one core and on two; the broker may use all."""
    found: dict[str, Standing] = {}
    for count in _CORES:
        if count > cores():
            continue
        topic = ClickTopic(surroundings.effort.scaled(_FEWER), _PARTITIONS)
        name = f"kafka-cores/{count}"
        label = f"{count} core{'s' if count > 1 else ''}"
        found[label] = _contest(surroundings, name, topic, SPARK_ONLY, on=count)
        yield from found[label].figures()
    _show_series(surroundings, "kafka-cores", "The aggregate by number of cores", found)


BENCHMARKS: Final = (
    Benchmark("kafka-aggregate", "a windowed aggregate of JSON, beside every peer", aggregate),
    Benchmark("kafka-scan", "decoding alone, beside Spark's connector", scan),
    Benchmark("kafka-avro", "the aggregate of Avro, beside every peer", avro),
    Benchmark("kafka-partitions", "the aggregate with 1 to 64 partitions", partitions),
    Benchmark("kafka-cores", "the aggregate on 1 core and on 2", scaling),
)


def _contest(
    surroundings: Surroundings,
    name: str,
    wanted: ClickTopic,
    entrants: Sequence[Entrant],
    *,
    task: str = "aggregate",
    on: int | None = None,
) -> Standing:
    venue = venue_of(surroundings)
    topic = venue.topic(wanted)
    expected = topic.expected_sums() if task == "scan" else topic.expected()
    used, effort = on or cores(), surroundings.effort
    with Arena(venue, topic, expected, task, used, is_warm=effort.scale == 1) as arena:
        return hold(name, _in_words(venue, topic, used), entrants, effort.jobs, arena.take_turn)


def _in_words(venue: Venue, topic: ClickTopic, used: int) -> str:
    return (
        f"{topic.records:,} records of {venue.mean_bytes(topic):.0f} bytes, "
        f"{topic.partitions} partition{'s' if topic.partitions > 1 else ''}, "
        f"{used} core{'s' if used > 1 else ''}"
    )


def _show(surroundings: Surroundings, standing: Standing, title: str) -> None:
    print(f"\n{markdown.table(standing)}", flush=True)
    _write(surroundings, standing.name, chart.of_standing(standing, title))


def _show_series(
    surroundings: Surroundings, name: str, title: str, found: Mapping[str, Standing]
) -> None:
    bars = [
        chart.Bar(
            f"{label}: {entrant.title}",
            (standing.rate(entrant).median / 1000, standing.processor(entrant).median),
            entrant.is_own,
        )
        for label, standing in found.items()
        for entrant in standing.turns
    ]
    for standing in found.values():
        print(f"\n{markdown.table(standing)}", flush=True)
    subtitle = f"{surroundings.effort.scaled(_FEWER):,} records of JSON, in one epoch or batch"
    _write(surroundings, name, chart.draw(title, subtitle, chart.PANELS, bars))


def _write(surroundings: Surroundings, name: str, picture: str) -> None:
    folder = _IMAGES if surroundings.effort.scale == 1 else _DRAFTS
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.svg"
    path.write_text(picture)
    print(f"Drawn: {path}", flush=True)
