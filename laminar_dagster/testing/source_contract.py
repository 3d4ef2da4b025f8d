"""The contract of ``Source`` as tests. Subclass it to check an adapter.

::

    class TestMySource(SourceContract):
        @pytest.fixture
        def stream(self) -> SourceStream: ...     # empty, and used by no other test
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import ClassVar, Final, Protocol

import pytest

from laminar_dagster.core.document import FORMAT_VERSION, decode, encode
from laminar_dagster.core.errors import RefusedError
from laminar_dagster.core.ids import CheckpointId, EpochNumber
from laminar_dagster.core.offsets import (
    SourceOffsets,
    SourcePosition,
    SourceRange,
    lane_of,
    position_from_json,
    position_to_json,
    progress_of,
)
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission, DecodedChunk, Source, SplitReader

CLOCK: Final = datetime(2100, 1, 1, tzinfo=UTC)
NO_LIMIT: Final = Admission()

_CHECKPOINT: Final = CheckpointId("01890a5d-ac96-774b-bcce-b302099a8057")


class SourceStream(Protocol):
    """The external system behind a source, as a test controls it. Records carry a number."""

    def open(self) -> Source:
        """A new source on the stream as it is now."""
        ...

    def append(self, numbers: Sequence[int]) -> None:
        """Add whole records, in order, all to one partition or to a new one."""
        ...

    def begin_record(self, number: int) -> bool:
        """Write a part of a record. False if this kind of source cannot have partial records."""
        ...

    def end_record(self) -> None:
        """Write the rest of the record begun by ``begin_record``."""
        ...

    def replace(self) -> None:
        """Replace the stream by another one with the same partitions and sizes."""
        ...

    def numbers(self, chunk: DecodedChunk) -> list[int]:
        """The numbers of the good records of a chunk."""
        ...


class SourceContract:
    """Tests that every source must pass.

    Attributes:
        unit: The largest number of records that this source admits or leaves only together.
    """

    unit: ClassVar[int] = 1

    @pytest.fixture
    def stream(self) -> SourceStream:
        """An empty stream that no other test uses."""
        raise NotImplementedError("a subclass provides the stream")

    # --- planning -----------------------------------------------------------------------------

    def test_an_empty_stream_plans_nothing(self, stream: SourceStream) -> None:
        """Without records, every planned range is empty."""
        assert _is_empty(stream.open().plan(None, (), NO_LIMIT, CLOCK))

    def test_everybody_calls_the_place_the_same(self, stream: SourceStream) -> None:
        """A stable address lets a pipeline that reads a place be linked to one that writes it."""
        assert stream.open().address == stream.open().address
        assert "://" in stream.open().address

    def test_planning_is_repeatable(self, stream: SourceStream) -> None:
        """Two processes that plan from the same state get the same plan."""
        stream.append(range(10))
        first = stream.open().plan(None, (), NO_LIMIT, CLOCK)
        assert stream.open().plan(None, (), NO_LIMIT, CLOCK) == first
        assert not _is_empty(first)

    def test_every_record_is_read_once_and_in_order(self, stream: SourceStream) -> None:
        """Whatever is appended between the epochs, ranges are contiguous."""
        source = stream.open()
        expected: list[int] = []
        found: list[int] = []
        previous: SourcePlan | None = None
        for count in (3, 0, 1, 7, 0, 0, 20):
            numbers = range(len(expected), len(expected) + count)
            if count:
                stream.append(numbers)
            expected.extend(numbers)
            plan = source.plan(previous, _ends(previous), NO_LIMIT, CLOCK)
            _require_contiguous(previous, plan)
            found.extend(_read(stream, source, plan))
            assert found == expected
            previous = plan

    def test_a_row_that_is_set_aside_is_told_as_a_bad_record(self, stream: SourceStream) -> None:
        """A dead letter has the bad records' schema and the reason, if the source supports it."""
        stream.append(range(5))
        source = stream.open()
        plan = source.plan(None, (), NO_LIMIT, CLOCK)
        reader = source.reader()
        for split in (split for part in plan.ranges for split in source.splits(part)):
            for chunk in reader.read(split):
                if chunk.set_aside is not None and chunk.rows.num_rows:
                    letters = chunk.set_aside({0: "no"})
                    assert letters.schema == chunk.bad.schema
                    assert letters.column("reason").to_pylist() == ["no"]

    def test_without_new_records_there_is_nothing_to_read(self, stream: SourceStream) -> None:
        """The partitions stay in the plan, with empty ranges."""
        stream.append(range(5))
        source = stream.open()
        first = source.plan(None, (), NO_LIMIT, CLOCK)
        second = source.plan(first, _ends(first), NO_LIMIT, CLOCK)
        assert _is_empty(second)
        assert _ends(second) == _ends(first)

    def test_a_source_that_was_opened_anew_goes_on(self, stream: SourceStream) -> None:
        """A new instance needs only the previous plan and its end positions to go on."""
        stream.append(range(4))
        first = stream.open().plan(None, (), NO_LIMIT, CLOCK)
        stream.append(range(4, 9))
        source = stream.open()
        second = source.plan(first, _ends(first), NO_LIMIT, CLOCK)
        assert _read(stream, source, second) == list(range(4, 9))

    # --- limits -------------------------------------------------------------------------------

    @pytest.mark.parametrize("limit", [1, 2, 3, 7])
    def test_a_limit_of_records_is_kept(self, stream: SourceStream, limit: int) -> None:
        """An epoch reads at least one record and at most ``limit``, until all are read."""
        for first in range(0, 12, 4):
            stream.append(range(first, first + 4))
        found: list[int] = []
        for numbers in _epochs(stream, Admission(max_records=limit)):
            assert len(numbers) <= max(limit, self.unit)
            found.extend(numbers)
        assert found == list(range(12))

    def test_a_limit_of_bytes_never_stops_progress(self, stream: SourceStream) -> None:
        """Even if every record is larger than the limit, each epoch reads one."""
        for first in range(0, 12, 4):
            stream.append(range(first, first + 4))
        found: list[int] = []
        for numbers in _epochs(stream, Admission(max_bytes=1)):
            assert 1 <= len(numbers) <= self.unit
            found.extend(numbers)
        assert found == list(range(12))

    # --- reading ------------------------------------------------------------------------------

    def test_reading_twice_gives_the_same(self, stream: SourceStream) -> None:
        """Also after the stream has grown, and from another process's reader."""
        stream.append(range(30))
        source = stream.open()
        plan = source.plan(None, (), NO_LIMIT, CLOCK)
        before = _read(stream, source, plan)
        assert before == list(range(30))
        stream.append(range(30, 40))
        assert _read(stream, source, plan) == before
        assert _read(stream, stream.open(), plan) == before

    def test_splits_make_up_the_range(self, stream: SourceStream) -> None:
        """Splits are contiguous, and reading them gives the records of the whole range."""
        stream.append(range(50))
        source = stream.open()
        plan = source.plan(None, (), NO_LIMIT, CLOCK)
        for part in plan.ranges:
            splits = source.splits(part)
            assert splits[0].start == part.start
            assert splits[-1].end == part.end
            for one, two in pairwise(splits):
                assert one.end == two.start
            assert not any(split.is_empty for split in splits)
            reader = source.reader()
            whole = _numbers(stream, reader, [part])
            assert _numbers(stream, reader, splits) == whole

    def test_an_empty_range_holds_nothing(self, stream: SourceStream) -> None:
        """Reading it is no error."""
        stream.append(range(5))
        source = stream.open()
        plan = source.plan(None, (), NO_LIMIT, CLOCK)
        empty = [SourceRange(start=part.end, end=part.end) for part in plan.ranges]
        assert _numbers(stream, source.reader(), empty) == []
        assert [split for part in empty for split in source.splits(part)] == []

    def test_a_reader_pickles(self, stream: SourceStream) -> None:
        """It travels to the executors."""
        stream.append(range(5))
        source = stream.open()
        plan = source.plan(None, (), NO_LIMIT, CLOCK)
        reader: SplitReader = pickle.loads(pickle.dumps(source.reader()))
        assert _numbers(stream, reader, plan.ranges) == list(range(5))

    def test_half_a_record_is_left_for_later(self, stream: SourceStream) -> None:
        """A partial record is read once, when it is complete."""
        stream.append(range(3))
        if not stream.begin_record(3):
            return
        source = stream.open()
        first = source.plan(None, (), NO_LIMIT, CLOCK)
        assert _read(stream, source, first) == [0, 1, 2]
        stream.end_record()
        second = source.plan(first, _ends(first), NO_LIMIT, CLOCK)
        assert _read(stream, source, second) == [3]
        assert _read(stream, source, first) == [0, 1, 2]

    # --- identity and positions ---------------------------------------------------------------

    def test_growth_keeps_the_identity(self, stream: SourceStream) -> None:
        """Appending records does not change the identity that later plans check."""
        stream.append(range(3))
        source = stream.open()
        plan = source.plan(None, (), NO_LIMIT, CLOCK)
        for turn in range(1, 4):
            stream.append(range(turn * 100, turn * 100 + 100))
            plan = source.plan(plan, _ends(plan), NO_LIMIT, CLOCK)
            assert not _is_empty(plan)

    def test_identity_is_stable(self, stream: SourceStream) -> None:
        """Opening the stream again gives the same identity."""
        stream.append(range(3))
        assert stream.open().identity() == stream.open().identity()

    def test_a_look_alike_is_refused(self, stream: SourceStream) -> None:
        """Going on would lose or duplicate records."""
        stream.append(range(10))
        before = stream.open().identity()
        plan = stream.open().plan(None, (), NO_LIMIT, CLOCK)
        stream.replace()
        assert stream.open().identity() != before
        with pytest.raises(RefusedError):
            stream.open().plan(plan, _ends(plan), NO_LIMIT, CLOCK)

    def test_positions_survive_being_stored(self, stream: SourceStream) -> None:
        """Positions survive JSON, singly and in a checkpoint's offsets file."""
        stream.append(range(10))
        source = stream.open()
        plan = source.plan(None, (), NO_LIMIT, CLOCK)
        ends = tuple(position_from_json(position_to_json(end)) for end in _ends(plan))
        assert ends == _ends(plan)
        stored = SourceOffsets(
            version=FORMAT_VERSION,
            source_id=source.source_id,
            epoch=EpochNumber(1),
            checkpoint_id=_CHECKPOINT,
            positions=ends,
        )
        assert decode(encode(stored), SourceOffsets, "offsets").positions == ends
        assert _is_empty(source.plan(plan, ends, NO_LIMIT, CLOCK))

    def test_reading_can_resume_where_a_plan_ends(self, stream: SourceStream) -> None:
        """``check_seek`` accepts the positions of a checkpoint."""
        stream.append(range(10))
        source = stream.open()
        plan = source.plan(None, (), Admission(max_records=3), CLOCK)
        assert _ends(plan)
        for end in _ends(plan):
            source.check_seek(end)

    def test_acknowledging_changes_nothing(self, stream: SourceStream) -> None:
        """Acknowledging, also twice, changes neither the plan nor the records read after it."""
        stream.append(range(10))
        source = stream.open()
        plan = source.plan(None, (), NO_LIMIT, CLOCK)
        source.acknowledge(_ends(plan))
        source.acknowledge(_ends(plan))
        assert _read(stream, source, plan) == list(range(10))
        assert _is_empty(source.plan(plan, _ends(plan), NO_LIMIT, CLOCK))


def _epochs(stream: SourceStream, limits: Admission) -> Iterator[list[int]]:
    """The numbers that each epoch reads, until the stream is exhausted."""
    source = stream.open()
    previous: SourcePlan | None = None
    for _ in range(100):
        plan = source.plan(previous, _ends(previous), limits, CLOCK)
        _require_contiguous(previous, plan)
        if _is_empty(plan):
            return
        yield _read(stream, source, plan)
        previous = plan
    pytest.fail("it does not come to an end")


def _is_empty(plan: SourcePlan) -> bool:
    return all(part.is_empty for part in plan.ranges)


def _ends(plan: SourcePlan | None) -> tuple[SourcePosition, ...]:
    return tuple(part.end for part in plan.ranges) if plan else ()


def _require_contiguous(previous: SourcePlan | None, plan: SourcePlan) -> None:
    before = {lane_of(end): progress_of(end) for end in _ends(previous)}
    after = {lane_of(part.start): progress_of(part.start) for part in plan.ranges}
    assert before == {lane: start for lane, start in after.items() if lane in before}


def _read(stream: SourceStream, source: Source, plan: SourcePlan) -> list[int]:
    splits = [split for part in plan.ranges for split in source.splits(part)]
    return _numbers(stream, source.reader(), splits)


def _numbers(stream: SourceStream, reader: SplitReader, splits: Iterable[SourceRange]) -> list[int]:
    found: list[int] = []
    for split in splits:
        for chunk in reader.read(split):
            numbers = stream.numbers(chunk)
            # No test here writes bad records, so all records of the chunk are good ones.
            assert chunk.records == len(numbers)
            found.extend(numbers)
    return found
