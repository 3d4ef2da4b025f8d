"""The parts of `make soak` that need no server."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.kafka_orders.producer import Sent
from soak import verdict
from soak.schedule import Fault, schedule


def test_a_seed_is_always_the_same_run() -> None:
    assert schedule(7, 600) == schedule(7, 600)
    assert schedule(7, 600) != schedule(8, 600)


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    short = schedule(7, 60)
    assert short
    assert schedule(7, 600)[: len(short)] == short


@pytest.mark.parametrize("seed", range(20))
def test_faults_come_in_order_and_in_time(seed: int) -> None:
    strikes = schedule(seed, 300)
    times = [strike.due for strike in strikes]
    assert times == sorted(times)
    assert 0 < times[0] < times[-1] < 300


@pytest.mark.parametrize("seed", range(20))
def test_each_comes_once_before_any_comes_again(seed: int) -> None:
    strikes = schedule(seed, 900)
    whole = len(strikes) - len(strikes) % len(Fault)
    assert whole
    counts = Counter(strike.fault for strike in strikes[:whole])
    assert set(counts.values()) == {whole // len(Fault)}
    assert {*counts} == {*Fault}


def test_only_what_was_asked_for() -> None:
    faults = (Fault.KILL, Fault.PAUSE)
    assert {strike.fault for strike in schedule(1, 300, faults)} == {*faults}


_ORDERS = [
    '{"order_id":1,"product":"a","amount":2.50,"ts":"2026-01-01T00:00:01Z"}',
    '{"order_id":2,"product":"a","amount":1.00,"ts":"2026-01-01T00:00:02Z"}',
    '{"order_id":3,"product":"a","amount":9.00,"ts":"2026-01-01T00:01:00Z"}',
]
_WINDOW = {"product": "a", "since": "2026-01-01T00:00:00Z", "orders": 2, "revenue": "3.50"}


@pytest.mark.parametrize(
    ("rows", "is_right"),
    [([_WINDOW], True), ([_WINDOW, _WINDOW], False), ([], False)],
    ids=["once", "twice", "never"],
)
def test_a_sink_is_right_when_it_has_every_row_once(
    tmp_path: Path, rows: list[dict[str, object]], is_right: bool
) -> None:
    topic = tmp_path / "topic.parquet"
    lines = {"partition": [0] * 3, "offset": [*range(3)], "value": _ORDERS}
    pq.write_table(pa.table(lines), topic)
    found = verdict.judge(
        topic, _sent(records=3), [], {"sink": pa.Table.from_pylist(rows, _schema())}
    )
    assert found.sinks[0].is_equal is is_right
    # No epoch has counted anything, which is wrong in any case.
    assert len(found.problems) == (1 if is_right else 2)


def test_a_record_that_is_not_in_the_topic_is_missed(tmp_path: Path) -> None:
    topic = tmp_path / "topic.parquet"
    pq.write_table(pa.table({"partition": [0], "offset": [0], "value": _ORDERS[:1]}), topic)
    found = verdict.judge(topic, _sent(records=2), [], {"sink": _schema().empty_table()})
    assert "2 records were sent, and the topic has 1" in found.problems
    assert "no window was over, so that nothing was compared" in found.problems


def _schema() -> pa.Schema:
    return pa.schema(
        {"product": pa.string(), "since": pa.string(), "orders": pa.int64(), "revenue": pa.string()}
    )


def _sent(records: int) -> Sent:
    return Sent(
        records=records,
        acknowledged=records,
        late=0,
        broken=0,
        cents=0,
        last_cents=0,
        ends={0: records},
    )
