"""The contest on Kafka must be fair, and must notice who is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import fastavro
import pyarrow as pa
import pytest

from bench.__main__ import GROUPS, ON_REQUEST, main
from bench.click_schema import DELAY_SECONDS
from bench.kafka import chart, contest, markdown, peers
from bench.kafka.click_topic import AVRO_SCHEMA, LAST_PAGE, ClickTopic, comparable
from bench.kafka.contest import Arena, ContestantFailed, Entrant, Turn, require_same
from bench.kafka.contestants.protocol import Job, Row
from bench.kafka.decoding import batch_of, decoder_of
from bench.kafka.entrants import AGGREGATE, FAST, FLINK, PORTABLE, QUIX, SCAN, SPARK
from bench.kafka.message_formats import SCHEMA, all_formats
from bench.kafka.peers import Program
from bench.kafka.processor_time import seconds_of, sum_up
from bench.kafka.standing import Standing, hold
from bench.kafka.venue import Venue
from bench.spark_watch import Process
from infra.errors import ServiceUnavailable
from infra.load import Deadline

TOPIC = ClickTopic(records=4_000, partitions=4, seconds=300, keys=20)


def turn(rate: float, processor: float = 1.0) -> Turn:
    return Turn(1_000_000, 1_000_000 / rate, processor, broker=0.5, whole=30.0)


def standing(**failures: str) -> Standing:
    turns = {
        PORTABLE: [turn(300_000), turn(330_000), turn(310_000)],
        FAST: [turn(600_000), turn(650_000), turn(640_000)],
        SPARK: [turn(120_000, 8.0), turn(126_000, 8.5), turn(130_000, 9.0)],
        FLINK: [turn(140_000), turn(150_000), turn(149_000)],
    }
    by_name = {each.name: each for each in AGGREGATE}
    failed = {by_name[name]: reason for name, reason in failures.items()}
    measured = {each: found for each, found in turns.items() if each not in failed}
    return Standing("kafka-test", "1,000,000 records", measured, failed)


# --- the clicks -----------------------------------------------------------------------------------


def test_a_partition_holds_pages_of_its_own_and_ends_with_one_click_an_hour_later() -> None:
    pages: list[set[str]] = []
    for partition in range(TOPIC.partitions):
        clicks = TOPIC.clicks(partition)
        assert len(clicks) == TOPIC.ends[partition] == 1_001
        *others, last = clicks.column("page").to_pylist()
        assert last == LAST_PAGE
        pages.append(set(others))
        moments = clicks.column("at").to_pylist()
        assert (moments[-1] - max(moments[:-1])).total_seconds() > 3_600
    assert sum(map(len, pages)) == len(set.union(*pages)) == TOPIC.keys


def test_no_click_is_late_for_any_system() -> None:
    for partition in range(TOPIC.partitions):
        newest = None
        for moment in TOPIC.clicks(partition).column("at").to_pylist():
            assert newest is None or (newest - moment).total_seconds() < DELAY_SECONDS
            newest = moment if newest is None else max(newest, moment)


def test_the_answer_is_that_of_a_plain_loop() -> None:
    found: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for partition in range(TOPIC.partitions):
        for line in TOPIC.lines(partition).splitlines():
            click = json.loads(line)
            millis = int(datetime.fromisoformat(click["at"]).timestamp() * 1000)
            place = (click["page"], millis - millis % 60_000)
            found.setdefault(place, []).append((click["n"], click["amount"]))
    rows: list[Row] = [
        (page, minute, len(seen), sum(n for n, _ in seen), _mean(seen), max(a for _, a in seen))
        for (page, minute), seen in found.items()
        if page != LAST_PAGE
    ]
    assert TOPIC.expected() == sorted(rows)
    ((_, latest, letters, total, amount, count),) = TOPIC.expected_sums()
    assert count == TOPIC.total
    assert total == sum(n for seen in found.values() for n, _ in seen)
    assert amount == sum(amount for seen in found.values() for _, amount in seen)
    assert latest == int(TOPIC.clicks(0).column("at").to_pylist()[-1].timestamp() * 1000)
    assert letters == (14 + 9) * TOPIC.total


def _mean(seen: list[tuple[int, float]]) -> float:
    return sum(amount for _, amount in seen) / len(seen)


def test_messages_of_both_formats_hold_the_same_clicks() -> None:
    avro = ClickTopic(records=40, partitions=2, format="avro", schema_id=7)
    plain = ClickTopic(records=40, partitions=2)
    schema = fastavro.parse_schema(json.loads(AVRO_SCHEMA))
    for (key, packed, moment), (other_key, line, other_moment) in zip(
        avro.messages(1), plain.messages(1), strict=True
    ):
        assert (key, moment) == (other_key, other_moment)
        assert packed[:5] == b"\0\0\0\0\x07"
        click = json.loads(line)
        assert _read(packed[5:], schema) == {**click, "at": datetime.fromisoformat(click["at"])}
        assert moment == int(datetime.fromisoformat(click["at"]).timestamp() * 1000)
        assert click["page"].encode() == key


def _read(data: bytes, schema: Any) -> object:
    return fastavro.schemaless_reader(pa.BufferReader(data), schema, None)


def test_every_format_decodes_to_the_same_clicks(tmp_path: Path) -> None:
    clicks = ClickTopic(records=50, partitions=1).clicks(0).cast(SCHEMA)
    formats = all_formats(clicks, tmp_path)
    assert {each.name for each in formats} == {"json", "csv", "avro", "protobuf", "debezium-json"}
    for each in formats:
        rows = decoder_of(each).decode("t", 0, batch_of(each)).rows.select(SCHEMA.names)
        assert rows.to_pylist() == clicks.to_pylist()
        for value in each.values:
            assert each.read(value)


# --- who is right ---------------------------------------------------------------------------------


def test_rows_in_any_order_are_right_and_windows_that_stay_open_do_not_count() -> None:
    expected = TOPIC.expected()
    extra = (LAST_PAGE, 0, 1, 1, 1.0, 1.0)
    found = [list(row) for row in [extra, *reversed(expected)]]
    require_same(SPARK, 0, found, expected)
    assert comparable([extra, expected[0]]) == [expected[0]]


@pytest.mark.parametrize("change", ["lost", "twice", "other"])
def test_wrong_rows_are_an_error_that_names_the_first(change: str) -> None:
    expected = TOPIC.expected()
    found = list(expected)
    if change == "lost":
        del found[3]
    elif change == "twice":
        found.append(found[3])
    else:
        page, minute, clicks, *rest = found[3]
        found[3] = (page, minute, clicks + 1, *rest)  # type: ignore[assignment]
    with pytest.raises(ContestantFailed, match="Structured Streaming: job 2 gave"):
        require_same(SPARK, 1, found, expected)


def test_the_sums_of_a_scan_are_compared_too() -> None:
    (sums,) = TOPIC.expected_sums()
    require_same(SPARK, 0, [list(sums)], [sums])
    for wrong in ([], [[*sums[:-1], sums[-1] + 1]]):
        with pytest.raises(ContestantFailed):
            require_same(SPARK, 0, wrong, [sums])


# --- rounds and standings -------------------------------------------------------------------------


def test_entrants_take_turns_and_the_order_is_reversed() -> None:
    seen: list[str] = []

    def take(entrant: Entrant) -> Turn:
        seen.append(entrant.name)
        return turn(1.0)

    found = hold("t", "w", [PORTABLE, SPARK], 3, take)
    assert seen == ["portable", "spark", "spark", "portable", "portable", "spark"]
    assert [len(turns) for turns in found.turns.values()] == [3, 3]


def test_a_peer_that_fails_has_no_figure_and_the_others_do() -> None:
    failing: Iterator[bool] = iter([False, True])

    def take(entrant: Entrant) -> Turn:
        if entrant is QUIX:
            raise ServiceUnavailable("quix", "cannot be installed")
        if entrant is SPARK and next(failing):
            raise ContestantFailed("other rows\nand a log")
        return turn(1.0)

    found = hold("t", "w", [PORTABLE, SPARK, QUIX], 3, take)
    assert list(found.turns) == [PORTABLE]
    figures = {figure.name: figure for figure in found.figures()}
    assert figures["t/spark"].sample is None
    assert figures["t/spark"].note == "other rows"
    assert figures["t/quix"].sample is None
    assert figures["t/portable"].peer_sample is None


def test_this_project_may_not_fail() -> None:
    def take(entrant: Entrant) -> Turn:
        raise ContestantFailed("other rows")

    with pytest.raises(ContestantFailed):
        hold("t", "w", [PORTABLE, SPARK], 3, take)


def test_the_target_is_a_multiple_of_the_best_peer() -> None:
    found = standing()
    assert found.best_peer is FLINK
    figures = {figure.name: figure for figure in found.figures({"portable": 1.2, "fast": 5.0})}
    assert figures["kafka-test/portable"].limit == pytest.approx(1.2 * 149_000)
    assert figures["kafka-test/portable"].is_met is True
    assert figures["kafka-test/fast"].is_met is False
    assert figures["kafka-test/flink"].peer_sample is None
    spark = figures["kafka-test/spark/processor"]
    assert spark.sample is not None
    assert spark.sample.median == 8.5


def test_the_table_is_markdown_with_the_fastest_first() -> None:
    lines = markdown.table(standing(quix="no")).splitlines()
    header, rule, *rows = lines[2:]
    assert {line.count("|") for line in (header, rule, *rows)} == {header.count("|")}
    names = [row.split("|")[1].strip(" *") for row in rows]
    assert names == [each.title for each in (FAST, PORTABLE, FLINK, SPARK, QUIX)]
    assert "| 640,000 ± 10,000 | 4.30 |" in rows[0]
    assert "not measured" in rows[-1]


def test_the_chart_is_a_picture_with_a_bar_for_each_number() -> None:
    drawn = ElementTree.fromstring(chart.of_standing(standing(), "Faster & <better>"))
    name = "{http://www.w3.org/2000/svg}"
    bars = [each for each in drawn.iter(f"{name}rect") if each.get("height") == "18"]
    assert len(bars) == 4 * 2
    widths = [float(each.get("width", "")) for each in bars[:4]]
    assert widths == sorted(widths, reverse=True)
    assert widths[1] / widths[0] == pytest.approx(310 / 640, abs=0.01)
    texts = [each.text for each in drawn.iter(f"{name}text")]
    assert "Faster & <better>" in texts
    assert {"640", "310", "149", "126"} <= set(texts)


# --- processes ------------------------------------------------------------------------------------


def test_processor_time_is_that_of_the_whole_tree_and_of_nobody_else() -> None:
    processes = {
        1: Process(0, "init", 100.0, 100.0),
        10: Process(1, "python", 1.0, 0.25),
        11: Process(10, "java", 5.0, 0.5),
        12: Process(11, "python", 3.0, 0.0),
        20: Process(1, "java", 70.0, 0.0),
    }
    assert sum_up(processes, 10) == 9.75
    assert sum_up(processes, 99) == 0


def test_processor_time_of_a_child_is_seen() -> None:
    code = "import sys\nwhile True:\n    sys.stdin and sum(range(1000))"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            deadline = Deadline(60)
            while (seconds := seconds_of(process.pid)) < 0.2:
                assert not deadline.is_over
                time.sleep(0.05)
        finally:
            process.kill()
    assert seconds < 60


def test_a_job_arrives_as_it_was_sent() -> None:
    job = Job("scan", "b:1", "t", (3, 4), "avro", "http://r", "{}", "/f", 2, {"reader": "fast"})
    assert job.as_line().count("\n") == 1
    assert Job.from_line(job.as_line()) == job


def test_peers_run_outside_the_environment_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAMINAR_CACHE", str(tmp_path))
    for name in (f"bench-quix-{peers.QUIX}", f"bench-flink-{peers.FLINK}"):
        (tmp_path / name).mkdir()
    (tmp_path / f"bench-flink-jars-{peers.FLINK}").mkdir()
    (tmp_path / f"bench-flink-jars-{peers.FLINK}" / "a.jar").touch()
    for program in (peers.quix(), peers.flink()):
        assert program.python.is_relative_to(tmp_path)
        assert program.variables()["PYTHONPATH"] == str(Path(peers.__file__).parents[2])
    assert peers.flink().environment["BENCH_FLINK_JARS"].endswith("/a.jar")


def test_the_connector_is_that_of_the_spark_it_runs_in() -> None:
    assert version("pyspark") == peers.SPARK


def test_contestants_of_other_environments_need_nothing_of_the_project() -> None:
    folder = Path(peers.__file__).parent / "contestants"
    for name in ("quix", "flink", "protocol", "../../sinks/contestants/flink_kafka"):
        text = (folder / f"{name}.py").read_text()
        imported = [line.split()[1] for line in text.splitlines() if line.startswith("from ")]
        assert "laminar_dagster" not in text
        foreign = {each for each in imported if each.startswith("bench")}
        assert foreign <= {"bench.kafka.contestants.protocol"}


def test_a_contestant_that_ends_too_soon_is_told_about_with_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Exception: no such topic\n\tat org.example.Deep.down(Deep.java:1)\n")
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        channel = contest.Channel(SPARK, process, log)
        with pytest.raises(ContestantFailed, match=r"ended with 3:\nException: no such topic$"):
            channel.receive()


class _QuietVenue:
    """A venue without a broker."""

    def __init__(self, folder: Path) -> None:
        self.surroundings = self
        self.servers = "none"
        self._folder = folder

    def folder(self) -> Path:
        return self._folder

    def broker_seconds(self) -> float:
        return 0.0


def _counting(tmp_path: Path) -> Program:
    """A contestant whose answer is how many jobs its process has done."""
    (tmp_path / "counting.py").write_text(
        "import json, sys\n"
        "print(json.dumps('ready'), flush=True)\n"
        "for number, _ in enumerate(sys.stdin, 1):\n"
        "    print(float(number), flush=True)\n"
        "    print(json.dumps([['', 1, 1, 1, 1.0, 1.0]]), flush=True)\n"
    )
    return Program("counting", Path(sys.executable), {})


@pytest.mark.parametrize(("is_warm", "last_jobs"), [(True, [5, 7, 9]), (False, [1, 2, 3])])
def test_an_entrant_is_started_once_and_warmed_up_again_in_every_round(
    tmp_path: Path, is_warm: bool, last_jobs: list[int]
) -> None:
    entrant = Entrant("counting", "Counting", lambda: _counting(tmp_path))
    venue = cast(Venue, _QuietVenue(tmp_path))
    expected: list[Row] = [("", 1, 1, 1, 1.0, 1.0)]
    with Arena(venue, TOPIC, expected, "scan", 1, is_warm) as arena:
        turns = [arena.take_turn(entrant) for _ in range(3)]
        (channel, _) = arena._running[entrant]
        assert channel.process.poll() is None
    assert [each.seconds for each in turns] == last_jobs
    assert len({each.whole for each in turns}) == 1
    assert channel.process.poll() == 0


def test_a_peer_that_stumbles_is_started_once_more(tmp_path: Path) -> None:
    (tmp_path / "stumbling.py").write_text(
        "import json, pathlib, sys\n"
        "print(json.dumps('ready'), flush=True)\n"
        "seen = pathlib.Path('seen')\n"
        "for _ in sys.stdin:\n"
        "    seen.write_text(seen.read_text() + '.' if seen.exists() else '.')\n"
        "    if len(seen.read_text()) in (1, 3):\n"
        "        sys.exit('it stumbles')\n"
        "    print(1.0, flush=True)\n"
        "    print(json.dumps([['', 1, 1, 1, 1.0, 1.0]]), flush=True)\n"
    )
    stumbling = Program("stumbling", Path(sys.executable), {})
    peer = Entrant("stumbling", "Stumbling", lambda: stumbling)
    venue = cast(Venue, _QuietVenue(tmp_path))
    expected: list[Row] = [("", 1, 1, 1, 1.0, 1.0)]
    with Arena(venue, TOPIC, expected, "scan", 1, is_warm=False) as arena:
        assert arena.take_turn(peer).seconds == 1.0
        with pytest.raises(ContestantFailed, match="it stumbles"):
            arena.take_turn(peer)
        own = Entrant("fast", "Own", lambda: stumbling)
        (tmp_path / "seen").unlink()
        with pytest.raises(ContestantFailed, match="it stumbles"):
            arena.take_turn(own)


# --- registered -----------------------------------------------------------------------------------


def test_the_benchmarks_of_kafka_run_only_when_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    for name in (
        "kafka-aggregate",
        "kafka-scan",
        "kafka-avro",
        "kafka-partitions",
        "kafka-cores",
        "kafka-decode",
        "kafka-plan",
        "kafka-acknowledge",
        "kafka-seek",
        "kafka-memory",
    ):
        assert f"  {name} " in listed
    assert ON_REQUEST == {"cold", "kafka", "sinks-peers"}
    assert ON_REQUEST < GROUPS.keys()


def test_entrants_have_names_of_their_own() -> None:
    for entrants in (AGGREGATE, SCAN):
        assert len({each.name for each in entrants}) == len(entrants)
        assert {each.name for each in entrants if each.is_own} == {"portable", "fast"}
