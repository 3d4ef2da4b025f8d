"""How much memory it takes to read 1, 4 and 16 partitions at once, beside a plain client."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

from bench.figures import Benchmark, Figure
from bench.kafka.click_topic import ClickTopic
from bench.kafka.contestants.memory import PLAIN
from bench.kafka.venue import Venue, venue_of
from bench.measure import Sample
from bench.surroundings import Surroundings

_RECORDS_EACH: Final = 250_000
_PARTITIONS: Final = (1, 4, 16)
_KINDS: Final = ("portable", "fast", PLAIN)


def memory(surroundings: Surroundings) -> Iterator[Figure]:
    """Above what the process has before it reads; as much for each partition."""
    venue = venue_of(surroundings)
    for count in _PARTITIONS:
        topic = venue.topic(ClickTopic(surroundings.effort.scaled(_RECORDS_EACH) * count, count))
        found: dict[str, list[float]] = {kind: [] for kind in _KINDS}
        for _ in range(surroundings.effort.jobs):
            for kind in _KINDS:
                found[kind].append(_growth(venue, topic, kind))
        plain = Sample(tuple(found[PLAIN]))
        for kind in _KINDS[:-1]:
            sample = Sample(tuple(found[kind]))
            yield Figure(
                f"kafka-memory/{kind}/{count}",
                f"{count} partition{'s' if count > 1 else ''} read at once, {kind} reader",
                sample,
                unit="bytes",
                peer="one Consumer for all",
                peer_sample=plain,
                note=f"{sample.median / count / 2**20:.1f} MiB for each partition",
            )


BENCHMARK: Final = Benchmark("kafka-memory", "memory for each partition", memory)


def _growth(venue: Venue, topic: ClickTopic, kind: str) -> float:
    command = [sys.executable, "-m", "bench.kafka.contestants.memory", kind]
    command += [venue.servers, topic.name, *map(str, topic.ends)]
    done = subprocess.run(
        command, env=dict(os.environ), stdout=subprocess.PIPE, text=True, check=True
    )
    return float(done.stdout)
