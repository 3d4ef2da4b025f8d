"""A pipeline on a topic, killed at any step that touches the topic: every record counts once.

A worker is killed with SIGKILL while a transaction is open; the transaction ends, more records
come, and other processes go on from what is there, one for each epoch. Then the sink equals
DuckDB's answer over what was committed, the ranges follow each other without a gap, the accounting
adds up to the topic, and the group stands where the last epoch ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

import pytest

from infra.kafka import Kafka, KafkaEndpoint
from infra.spark_connect import SparkConnectEndpoint
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.offsets import KafkaPosition
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.survey import newest_manifest, survey
from laminar_dagster.stores.local import LocalStore
from tests.integration.proof.answer import MOVES, PER_MINUTE, REFUNDS, Answer, Rows
from tests.integration.proof.kafka_clicks import ClickTopic, WaitBeforeReading, wait_for_file
from tests.integration.proof.kill_points import AtStep, AtWrite, KillPoint
from tests.integration.proof.processes import start
from tests.integration.proof.published import manifests_of, read_lake, read_minutes
from tests.integration.proof.stream import (
    MODELS,
    SINKS,
    SOURCES,
    Layout,
    append_lines,
    random_lines,
    write_pipeline,
)
from tests.integration.proof.worker import Job
from tests.services.kafka import IMPATIENT, delete_topic
from tests.services.proofs import with_long_lane

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service("kafka"),
    pytest.mark.service("spark_connect"),
    pytest.mark.proof("crashes on Kafka"),
]

_LAMINAR: Final = Path(sys.executable).with_name("laminar")
_MINUTES: Final = SINKS[: SINKS.index("CREATE SINK lake")]
_REFUNDS: Final = SOURCES[SOURCES.index("CREATE SOURCE TABLE refunds") :]

# What touches the topic or the group, or goes on without its driver; after `compute`, the tests
# below. The long lane adds where nothing of Kafka has changed since the point before.
POINTS: Final = with_long_lane(
    (
        AtStep("after", "plan"),
        AtWrite("after", 1, "staged", "/staged/", orphaned=True),
        AtStep("before", "acknowledge"),
        AtStep("after", "acknowledge"),
    ),
    (
        AtStep("before", "plan"),
        AtStep("after", "compute"),
        AtStep("before", "commit_sinks"),
        AtStep("after", "commit_sinks"),
    ),
)


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_killed_while_a_transaction_is_open(
    tmp_path: Path,
    kafka_service: KafkaEndpoint,
    warm_spark: dict[str, str],
    point: KillPoint,
) -> None:
    topic = ClickTopic(kafka_service, f"clicks-{uuid.uuid4().hex}")
    write_pipeline(tmp_path, _minutes(topic))
    topic.write(30, begin=0)
    topic.end(topic.write_in_transaction(10, begin=60), "abort")
    topic.write(20, begin=60)
    undecided = topic.write_in_transaction(20, begin=100)
    topic.write(10, begin=140)
    start(Job(tmp_path, warm_spark, kill=(2, point), epochs=2)).must_be_killed()
    topic.end(undecided, "commit")
    topic.write(40, begin=160)
    _finish(tmp_path, topic, warm_spark)
    assert len(_check(tmp_path, topic)) >= 4
    delete_topic(kafka_service, topic.name)


def test_the_broker_is_killed_while_an_epoch_computes(
    tmp_path: Path, warm_spark: dict[str, str]
) -> None:
    with Kafka(IMPATIENT) as kafka:
        topic = ClickTopic(kafka.start(tmp_path / "kafka"), "clicks")
        write_pipeline(tmp_path, _minutes(topic))
        topic.write(60, begin=0)
        point = cast(KillPoint, WaitBeforeReading())
        worker = start(Job(tmp_path, warm_spark, kill=(1, point), epochs=1))
        wait_for_file(tmp_path / "begun")
        kafka.kill()
        (tmp_path / "go-on").touch()
        kafka.start(tmp_path / "kafka")
        worker.must_finish()
        topic.write(40, begin=120)
        _finish(tmp_path, topic, warm_spark)
        _check(tmp_path, topic)


def test_a_topic_and_files_in_one_pipeline(
    tmp_path: Path,
    kafka_service: KafkaEndpoint,
    spark_connect: SparkConnectEndpoint,
    warm_spark: dict[str, str],
) -> None:
    topic = ClickTopic(kafka_service, f"clicks-{uuid.uuid4().hex}")
    write_pipeline(tmp_path, Layout(max_records=90, sources=topic.source + _REFUNDS))
    topic.write(40, begin=0)
    refunds = tmp_path / "input" / "refunds"
    append_lines(refunds / "r.ndjson", random_lines(topic.chance, 100))
    point = AtStep("after", "compute")
    start(Job(tmp_path, warm_spark, kill=(2, point), epochs=2)).must_be_killed()
    topic.write(40, begin=80)
    append_lines(refunds / "r.ndjson", random_lines(topic.chance, 100, begin=200))
    _laminar_run(tmp_path, spark_connect)
    manifests = _check(tmp_path, topic, refunds)
    ledger, lake = read_lake(tmp_path)
    assert ledger == len(manifests)
    assert lake == _answer(tmp_path, topic, refunds)[0].rows(MOVES)
    delete_topic(kafka_service, topic.name)


def test_records_that_compaction_takes_between_two_attempts(
    tmp_path: Path, kafka_service: KafkaEndpoint, warm_spark: dict[str, str]
) -> None:
    """The second attempt reads what is left; of the first, nothing is published."""
    eager = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.001",
        "max.compaction.lag.ms": "100",
    }
    topic = ClickTopic(kafka_service, f"clicks-{uuid.uuid4().hex}", config=eager)
    write_pipeline(tmp_path, _minutes(topic))
    topic.write(60, begin=0, keys=20)
    point = AtStep("after", "compute")
    start(Job(tmp_path, warm_spark, kill=(1, point), epochs=1)).must_be_killed()
    # Rolls the segments, which are what gets compacted.
    topic.write(30, begin=120, keys=30)
    topic.forget_what_was_compacted(at_most=50)
    _finish(tmp_path, topic, warm_spark)
    _check(tmp_path, topic)
    delete_topic(kafka_service, topic.name)


def _minutes(topic: ClickTopic) -> Layout:
    models = {"per_minute": MODELS["per_minute"]}
    return Layout(max_records=120, sources=topic.source, models=models, sinks=_MINUTES)


def _finish(root: Path, topic: ClickTopic, environment: Mapping[str, str]) -> None:
    checkpoints = CheckpointStore(LocalStore(root / "state"))
    while _stands(checkpoints) != topic.ends():
        start(Job(root, environment, epochs=1)).must_finish()


def _stands(checkpoints: CheckpointStore) -> dict[int, int]:
    """Where the newest epoch ends, if it is finished."""
    standing = survey(checkpoints)
    manifest = newest_manifest(checkpoints, standing)
    if manifest is None or standing.unfinished:
        return {}
    positions = [each for source in manifest.sources for each in source.positions]
    return {each.partition: each.offset for each in positions if isinstance(each, KafkaPosition)}


def _laminar_run(root: Path, spark_connect: SparkConnectEndpoint) -> None:
    done = subprocess.run(
        [_LAMINAR, "run", "--until-caught-up", "--no-dagster"],
        cwd=root,
        env={**os.environ, **spark_connect.environment()},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _answer(root: Path, topic: ClickTopic, refunds: Path | None) -> tuple[Answer, int]:
    answer = Answer()
    tombstones = topic.add_to(answer, root / f"answer-{uuid.uuid4().hex}")
    if refunds is not None:
        answer.add("refunds", refunds, REFUNDS)
    return answer, tombstones


def _check(root: Path, topic: ClickTopic, refunds: Path | None = None) -> list[CheckpointManifest]:
    answer, tombstones = _answer(root, topic, refunds)
    checkpoints = CheckpointStore(LocalStore(root / "state"))
    manifests = manifests_of(checkpoints)
    ledger, found = read_minutes(root)
    _same(found, answer.rows(PER_MINUTE))
    assert ledger == len(manifests)
    counts = [manifest.counts for manifest in manifests]
    expected = answer.accounting()
    assert all(each.is_balanced for each in counts)
    assert sum(each.read for each in counts) == expected.read + tombstones
    assert sum(each.skipped for each in counts) == tombstones
    assert sum(each.dead_lettered for each in counts) == expected.dead
    assert sum(each.late for each in counts) == expected.late
    stood = dict.fromkeys(topic.log, 0)
    for manifest in manifests:
        plan = checkpoints.plan(EpochNumber(manifest.epoch))
        assert plan is not None
        for part in (part for source in plan.sources for part in source.ranges):
            if isinstance(part.start, KafkaPosition) and isinstance(part.end, KafkaPosition):
                assert part.start.offset == stood[part.start.partition]
                stood[part.start.partition] = part.end.offset
    assert stood == topic.ends()
    assert topic.group_stands() == stood
    return manifests


def _same(found: Rows, expected: Rows) -> None:
    assert expected, "an empty answer proves nothing"
    missing, surplus = expected - found, found - expected
    assert not missing and not surplus, (
        f"{missing.total()} rows are missing, such as {list(missing)[:3]};"
        f" {surplus.total()} are too many, such as {list(surplus)[:3]}"
    )
