"""Records whose event time is too far ahead of the epoch's clock, where they are read."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.config.model import Column
from laminar_dagster.config.operators import stateful_operators
from laminar_dagster.config.relations import Stateful
from laminar_dagster.core import layout
from laminar_dagster.core.document import to_utc_microseconds
from laminar_dagster.core.ids import CheckpointId, SourceId
from laminar_dagster.core.offsets import SourceRange
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission, SplitReader
from laminar_dagster.spark.columns import CONTROL, EARLY
from laminar_dagster.spark.early_operators import early_operator
from laminar_dagster.spark.early_partials import EarlyOperator
from laminar_dagster.spark.lateness import AheadBound, LatenessJudge
from laminar_dagster.spark.scan import Scan, ScanStep, Split
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.config.folders import load
from tests.unit.sources.file.files import file_source, plan

CLOCK = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1) // timedelta(microseconds=1)
BOUND = AheadBound(to_utc_microseconds(CLOCK), DAY)
ATTEMPT = CheckpointId("01890a5d-ac96-774b-bcce-b302099a8057")
COLUMNS = (Column("n", "int"), Column("at", "timestamp", nullable=False))
SCHEMA = pa.schema(
    [pa.field("n", pa.int32()), pa.field("at", pa.timestamp("us", "UTC"), nullable=False)]
)


def line(n: int, at: datetime | str) -> bytes:
    text = at if isinstance(at, str) else at.isoformat().replace("+00:00", "Z")
    return json.dumps({"n": n, "at": text}).encode()


@dataclass
class Read:
    """What the tasks of some epochs made of a source, one after the other."""

    letters: list[dict[str, Any]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    counted: int = 0
    watermark: int | None = None
    ahead: int = 0


def read(
    reader: SplitReader,
    ranges: Sequence[SourceRange],
    into: Read,
    *,
    bound: AheadBound | None = BOUND,
    fail_on_bad: bool = False,
    delay: int = 0,
    early: tuple[EarlyOperator, ...] = (),
) -> list[dict[str, Any]]:
    """Read the ranges of a partition as the task of an epoch does; gives what it reports."""
    store = MemoryStore()
    reports = []
    for part in ranges:
        scan = Scan(
            source_id=SourceId("clicks"),
            schema=SCHEMA,
            reader=reader,
            splits=(Split(0, part, into.watermark),),
            time_column="at",
            delay=delay,
            floor=None,
            fail_on_bad=fail_on_bad,
            store=store,
            attempt=ATTEMPT,
            early=early,
            bound=bound,
        )
        for batch in ScanStep(scan).read(0):
            told = [json.loads(each) for each in batch.column(CONTROL).to_pylist() if each]
            if not told and (not early or batch.column(EARLY).null_count):
                into.rows += batch.column("n").to_pylist()
            into.counted += sum(each.get("processed", 0) for each in told)
            reports += [each for each in told if "operator" not in each]
        if "kind" in reports[-1]:
            return reports
        into.watermark = reports[-1]["watermark"]
        into.ahead += reports[-1]["ahead"]
        for each in reports[-1]["files"]:
            data = store.read(layout.checkpoint_key(ATTEMPT, each["path"]))
            table = pa.ipc.open_file(io.BytesIO(data)).read_all()
            if layout.is_late_path(each["path"]):
                into.late += table.column("n").to_pylist()
            else:
                into.letters += table.to_pylist()
    return reports


def early_count(folder: Path) -> EarlyOperator:
    source = (
        "CREATE SOURCE TABLE clicks (n INT, at TIMESTAMP, WATERMARK FOR at AS at)"
        " WITH (connector = 'file', path = 'clicks');"
    )
    sql = "SELECT COUNT(*) AS c FROM clicks GROUP BY TUMBLE(at, INTERVAL '1' MINUTE)"
    model = load(folder, {"s.sql": source, "models/v.sql": sql})
    ((operator, query),) = stateful_operators(model.views[0])
    assert isinstance(query, Stateful)
    found = early_operator(operator, query, SCHEMA)
    assert found
    return found


def epochs(root: Path, most: int | None) -> Iterator[tuple[SplitReader, list[SourceRange]]]:
    """The ranges of every epoch, which takes ``most`` records; the clock of all is the same."""
    source = file_source(root, COLUMNS)
    before: SourcePlan | None = None
    while True:
        before = plan(source, before, Admission(max_records=most), CLOCK)
        ranges = [each for each in before.ranges if not each.is_empty]
        if not ranges:
            return
        yield source.reader(), ranges


def test_a_record_from_the_year_9999_moves_no_watermark(tmp_path: Path) -> None:
    far = line(2, "9999-12-31T23:59:59.5Z")
    (tmp_path / "a.ndjson").write_bytes(
        b"\n".join([line(1, CLOCK), far, b"nonsense", line(3, CLOCK), b""])
    )
    ((reader, ranges),) = epochs(tmp_path, None)
    found = Read()
    (report,) = read(reader, ranges, found)
    assert found.rows == [1, 3]
    assert found.watermark == to_utc_microseconds(CLOCK)
    ahead, other = found.letters
    assert ahead == {
        "partition": "a.ndjson",
        "position": len(line(1, CLOCK)) + 1,
        "raw": far,
        "reason": "event time 9999-12-31T23:59:59.5Z is further ahead of the epoch's clock, "
        "2026-01-01T00:00:00Z, than `watermark.max.ahead` = '1d' allows",
        "is_whole": True,
    }
    assert other["raw"] == b"nonsense"
    assert (report["read"], report["passed"], report["dead"], report["ahead"]) == (4, 2, 2, 1)


@pytest.mark.parametrize("micros", [0, 1])
def test_a_record_may_be_exactly_as_far_ahead_as_the_bound(tmp_path: Path, micros: int) -> None:
    at = CLOCK + timedelta(days=1, microseconds=micros)
    (tmp_path / "a.ndjson").write_bytes(line(1, at) + b"\n")
    ((reader, ranges),) = epochs(tmp_path, None)
    found = Read()
    read(reader, ranges, found)
    assert len(found.letters) == micros


def test_a_plan_without_a_bound_takes_every_record(tmp_path: Path) -> None:
    """As all plans did before there was one: run again, they must give what they gave."""
    (tmp_path / "a.ndjson").write_bytes(
        b"\n".join([line(1, "9999-12-31T00:00:00Z"), line(2, CLOCK), b""])
    )
    ((reader, ranges),) = epochs(tmp_path, None)
    found = Read()
    read(reader, ranges, found, bound=None)
    assert (found.rows, found.late, found.letters) == ([1], [2], [])


def test_it_stops_the_epoch_where_bad_records_do(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(
        b"\n".join([line(1, CLOCK), line(2, "9999-01-01T00:00:00Z"), b"nonsense", b""])
    )
    ((reader, ranges),) = epochs(tmp_path, None)
    (told,) = read(reader, ranges, Read(), fail_on_bad=True)
    assert told["kind"] == "decode_failed"
    assert "9999-01-01T00:00:00Z is further ahead" in json.dumps(told)


class Changes:
    """A reader of a table's changes: its rows cannot be set aside."""

    def __init__(self, inner: SplitReader) -> None:
        self._inner = inner

    def read(self, split: SourceRange) -> Iterator[Any]:
        for chunk in self._inner.read(split):
            yield replace(chunk, set_aside=None)


def test_a_change_of_a_table_is_kept_and_moves_no_watermark(tmp_path: Path) -> None:
    rows = [line(1, CLOCK), line(2, "9999-01-01T00:00:00Z"), line(3, CLOCK), b""]
    (tmp_path / "a.ndjson").write_bytes(b"\n".join(rows))
    ((reader, ranges),) = epochs(tmp_path, None)
    found = Read()
    read(Changes(reader), ranges, found, fail_on_bad=True)
    assert (found.rows, found.late, found.letters, found.ahead) == ([1, 2, 3], [], [], 1)
    assert found.watermark == to_utc_microseconds(CLOCK)


MINUTES = st.lists(
    st.one_of(
        st.integers(-30, 30),
        # Around the bound, and beyond it.
        st.integers(1435, 1445),
        st.just(60 * 24 * 365 * 5000),
    ),
    max_size=25,
)


@given(MINUTES, st.integers(1, 12), st.booleans())
def test_what_is_too_far_ahead_does_not_depend_on_the_cut(
    tmp_path_factory: pytest.TempPathFactory, minutes: list[int], most: int, by_task: bool
) -> None:
    """In one epoch or many, aggregated by the task or handed on; the clock is the same."""
    root = tmp_path_factory.mktemp("input")
    early = (early_count(tmp_path_factory.mktemp("model")),) if by_task else ()
    with (root / "a.ndjson").open("wb") as file:
        for n, minute in enumerate(minutes):
            file.write(line(n, CLOCK + timedelta(minutes=minute)) + b"\n")
    whole, cut = Read(), Read()
    for found, limit in ((whole, None), (cut, most)):
        for reader, ranges in epochs(root, limit):
            read(reader, ranges, found, delay=5 * 60_000_000, early=early)
    assert cut == whole
    expected = [n for n, minute in enumerate(minutes) if minute > 24 * 60]
    assert [json.loads(each["raw"])["n"] for each in whole.letters] == expected
    assert whole.ahead == len(expected)
    assert sorted([*whole.rows, *whole.late, *expected]) == list(range(len(minutes)))
    assert whole.counted == (len(whole.rows) if by_task else 0)


def test_a_judge_that_has_seen_nothing_but_the_future_knows_no_watermark() -> None:
    judge = LatenessJudge("at", 5, None, None, AheadBound(100, 10))
    rows = pa.record_batch({"at": pa.array([111, 2**62], pa.timestamp("us", "UTC"))})
    assert judge.times_ahead(rows) == {0: 111, 1: 2**62}
    assert judge.lateness(rows).tolist() == [0, 0]
    assert judge.watermark is None


def test_a_bound_beyond_all_times_bounds_nothing() -> None:
    bound = AheadBound(BOUND.clock, 2**63 - 1)
    rows = pa.record_batch({"at": pa.array([2**63 - 1], pa.timestamp("us", "UTC"))})
    assert LatenessJudge("at", 0, None, None, bound).times_ahead(rows) == {}


def test_times_after_the_year_9999_can_be_told() -> None:
    assert BOUND.problem(2**63 - 1).startswith("event time 9223372036854775807 µs since 1970 is")
