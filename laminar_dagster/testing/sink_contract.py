"""The contract of ``Sink`` as tests. Subclass it to check an adapter.

::

    @dataclass(frozen=True)
    class MyPlace:                       # pickles; see ``SinkPlace``
        folder: Path
        def open(self, sink_id, mode): ...
        def read(self, sink_id): ...
        def encode(self, rows, weights): ...
        def columns(self): ...

    class TestMySink(SinkContract):
        @pytest.fixture
        def place(self, tmp_path: Path) -> SinkPlace:
            return MyPlace(tmp_path)

Tests that kill a committer open the sink in a child process, so the module that defines the place
must be importable.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from laminar_dagster.core.errors import ChecksumMismatch, LaminarError, LedgerMismatch, WriteFailed
from laminar_dagster.core.ids import EpochNumber, SinkId
from laminar_dagster.core.manifest import FileEntry
from laminar_dagster.core.ports import Attesting, Published, StagedOutput
from laminar_dagster.testing.sink_committers import CommittersContract
from laminar_dagster.testing.sink_places import (
    OTHER,
    TABLE,
    Mode,
    Row,
    SinkPlace,
    StagedRow,
    insist,
    staged,
    staged_bytes,
)
from laminar_dagster.testing.sink_telling import TellingContract

__all__ = ["Mode", "Row", "SinkContract", "SinkPlace", "StagedRow"]


class SinkContract(CommittersContract, TellingContract):
    """Tests that every sink must pass; see ``CommittersContract`` for how many repetitions."""

    @pytest.fixture
    def place(self) -> SinkPlace:
        """An empty place that no other test uses."""
        raise NotImplementedError("a subclass provides the place")

    # --- the ledger -------------------------------------------------------------------------------

    def test_a_new_sink_has_no_ledger_and_makes_nothing(self, place: SinkPlace) -> None:
        """Opening a sink and reading its ledger write nothing."""
        sink = place.open(TABLE, "append")
        assert sink.sink_id == TABLE
        assert "://" in sink.address
        assert sink.address == place.open(TABLE, "append").address
        assert sink.ledger() is None
        assert sink.ledger() is None
        assert place.read(TABLE) == []

    def test_what_was_committed_is_there_for_everybody(self, place: SinkPlace) -> None:
        """This instance and one opened later see the same rows and ledger."""
        sink = place.open(TABLE, "append")
        for epoch, rows in ((1, [(1, "a"), (2, "b")]), (2, [(3, "c")])):
            sink.commit(EpochNumber(epoch), staged(place, rows))
            assert sink.ledger() == place.open(TABLE, "append").ledger() == epoch
        assert sorted(place.read(TABLE)) == [(1, "a"), (2, "b"), (3, "c")]

    def test_committing_again_changes_nothing(self, place: SinkPlace) -> None:
        """A commit is idempotent, repeated by the same instance or by another."""
        for epoch in (1, 2):
            for _ in range(2):
                place.open(TABLE, "append").commit(EpochNumber(epoch), staged(place, [(epoch, "")]))
            sink = place.open(TABLE, "append")
            sink.commit(EpochNumber(epoch), staged(place, [(epoch, "")]))
            sink.commit(EpochNumber(epoch), staged(place, [(epoch, "")]))
        assert sorted(place.read(TABLE)) == [(1, ""), (2, "")]
        assert place.open(TABLE, "append").ledger() == 2

    def test_the_ledger_tells_what_was_put_out(self, place: SinkPlace) -> None:
        """The output digest distinguishes two different epochs with the same number."""
        sink = place.open(TABLE, "append")
        assert isinstance(sink, Attesting)
        assert sink.published() is None
        for epoch, rows in ((1, [(1, "a")]), (2, [(2, "b")]), (3, [])):
            output = staged(place, rows)
            sink.commit(EpochNumber(epoch), output)
            again = place.open(TABLE, "append")
            assert isinstance(again, Attesting)
            assert again.published() == Published(EpochNumber(epoch), output.entry.output_sha256)

    @pytest.mark.parametrize("wrong", [1, 2, 3, 4, 7, 8, 1000])
    def test_another_epoch_than_the_next_is_refused(self, place: SinkPlace, wrong: int) -> None:
        """A sink neither skips an epoch nor commits an earlier one again."""
        sink = place.open(TABLE, "append")
        for epoch in (3, 4, 5):
            sink.commit(EpochNumber(epoch), staged(place, [(epoch, "")], joined_at=3))
        with pytest.raises(LedgerMismatch) as caught:
            sink.commit(EpochNumber(wrong), staged(place, [(99, "")], joined_at=3))
        assert (caught.value.epoch, caught.value.ledger) == (wrong, 5)
        assert sink.ledger() == 5
        assert sorted(place.read(TABLE)) == [(3, ""), (4, ""), (5, "")]

    @pytest.mark.parametrize("joined_at", [1, 7])
    def test_the_first_epoch_is_the_one_in_which_the_sink_joined(
        self, place: SinkPlace, joined_at: int
    ) -> None:
        """Any other epoch is refused, so that a lost ledger does not look like a new sink."""
        sink = place.open(TABLE, "append")
        for wrong in (joined_at + 1, joined_at + 2, joined_at - 1):
            with pytest.raises(LedgerMismatch):
                sink.commit(EpochNumber(wrong), staged(place, [(0, "")], joined_at=joined_at))
            assert sink.ledger() is None
            assert place.read(TABLE) == []
        sink.commit(EpochNumber(joined_at), staged(place, [(1, "a")], joined_at=joined_at))
        assert sink.ledger() == joined_at
        assert place.read(TABLE) == [(1, "a")]

    @pytest.mark.parametrize("mode", ["append", "upsert"])
    @pytest.mark.parametrize("files", [0, 1, 2])
    def test_an_epoch_without_rows_moves_the_ledger(
        self, place: SinkPlace, mode: Mode, files: int
    ) -> None:
        """Also the first epoch, whose columns are unknown if it has no files."""
        sink = place.open(TABLE, mode)
        nothing = staged(place, *[[]] * files)
        for epoch in (1, 2):
            sink.commit(EpochNumber(epoch), nothing)
            assert sink.ledger() == epoch
        assert place.read(TABLE) == []
        sink.commit(EpochNumber(3), staged(place, [(1, "a")]))
        sink.commit(EpochNumber(4), nothing)
        sink.commit(EpochNumber(4), nothing)
        assert sink.ledger() == 4
        assert place.read(TABLE) == [(1, "a")]

    def test_sinks_in_one_place_do_not_disturb_each_other(self, place: SinkPlace) -> None:
        """Each has its own ledger and rows, also when both commit concurrently."""
        place.open(TABLE, "append").commit(EpochNumber(1), staged(place, [(1, "a")]))
        other = place.open(OTHER, "append")
        assert other.ledger() is None
        other.commit(EpochNumber(9), staged(place, [(2, "b")], sink=OTHER, joined_at=9))
        assert place.open(TABLE, "append").ledger() == 1

        def go_on(sink_id: SinkId, first: int) -> None:
            for epoch in range(first, first + 5):
                output = staged(place, [(epoch, "more")], sink=sink_id, joined_at=first - 1)
                insist(lambda: place.open(sink_id, "append"), EpochNumber(epoch), output)

        with ThreadPoolExecutor(2) as pool:
            for each in (pool.submit(go_on, TABLE, 2), pool.submit(go_on, OTHER, 10)):
                each.result()
        more = [(epoch, "more") for epoch in range(2, 15)]
        assert sorted(place.read(TABLE)) == [(1, "a"), *more[:5]]
        assert sorted(place.read(OTHER)) == [(2, "b"), *more[8:]]
        assert place.open(TABLE, "append").ledger() == 6
        assert place.open(OTHER, "append").ledger() == 14

    # --- rows -------------------------------------------------------------------------------------

    def test_appended_rows_are_never_taken_together(self, place: SinkPlace) -> None:
        """Equal rows are not deduplicated: within a file, across files or across epochs."""
        sink = place.open(TABLE, "append")
        sink.commit(EpochNumber(1), staged(place, [(1, "a"), (1, "a")], [(1, "a")]))
        sink.commit(EpochNumber(2), staged(place, [(1, "a"), (1, "b")]))
        assert sorted(place.read(TABLE)) == [(1, "a")] * 4 + [(1, "b")]

    def test_upsert_replaces_by_key(self, place: SinkPlace) -> None:
        """The last row of a key wins: within a file, across files in order, across epochs."""
        sink = place.open(TABLE, "upsert")
        sink.commit(EpochNumber(1), staged(place, [(1, "a"), (2, "b"), (1, "c")], [(3, "d")]))
        assert sorted(place.read(TABLE)) == [(1, "c"), (2, "b"), (3, "d")]
        sink.commit(EpochNumber(2), staged(place, [(3, "x"), (4, "y")], [(3, "z")], [(1, "w")]))
        assert sorted(place.read(TABLE)) == [(1, "w"), (2, "b"), (3, "z"), (4, "y")]
        sink.commit(EpochNumber(2), staged(place, [(1, "never")]))
        assert sorted(place.read(TABLE)) == [(1, "w"), (2, "b"), (3, "z"), (4, "y")]

    def test_a_negative_weight_deletes_by_key(self, place: SinkPlace) -> None:
        """The last row of a key decides; deleting a key that does not exist is no error."""
        sink = place.open(TABLE, "upsert")
        before = [(key, "old") for key in range(6)]
        sink.commit(EpochNumber(1), staged(place, before, weights=[[1] * 6]))
        changes = [(0, "old"), (1, "old"), (1, "new"), (2, "x"), (2, "x"), (7, "n"), (8, "?")]
        weights = [-1, -1, 1, 1, -1, 1, -1]
        later = [(7, "n"), (3, "b")]
        output = staged(place, changes, later, weights=[weights, [-1, 1]])
        sink.commit(EpochNumber(2), output)
        assert sorted(place.read(TABLE)) == [(1, "new"), (3, "b"), (4, "old"), (5, "old")]
        gone = staged(place, [(77, ""), (78, "")], weights=[[-1, -1]])
        sink.commit(EpochNumber(3), gone)
        assert sink.ledger() == 3
        assert len(place.read(TABLE)) == 4
        sink.commit(EpochNumber(4), staged(place, [(1, ""), (3, "")], weights=[[-1, -1]]))
        assert sorted(place.read(TABLE)) == [(4, "old"), (5, "old")]

    @pytest.mark.parametrize("weights", [[1, -1], [1, 0], [2, 1]])
    def test_a_weight_that_cannot_be_applied_publishes_nothing(
        self, place: SinkPlace, weights: list[int]
    ) -> None:
        """An append sink cannot apply a retraction, and must not drop it silently."""
        sink = place.open(TABLE, "append")
        sink.commit(EpochNumber(1), staged(place, [(1, "a")], weights=[[1]]))
        with pytest.raises(WriteFailed, match="_weight"):
            sink.commit(EpochNumber(2), staged(place, [(2, "b"), (3, "c")], weights=[weights]))
        assert sink.ledger() == 1
        assert place.read(TABLE) == [(1, "a")]

    # --- damaged staged files ---------------------------------------------------------------------

    @pytest.mark.parametrize("mode", ["append", "upsert"])
    @pytest.mark.parametrize("first", [True, False])
    def test_a_damaged_file_publishes_nothing(
        self, place: SinkPlace, mode: Mode, first: bool
    ) -> None:
        """The read error is raised unchanged, and the epoch can be committed later."""
        sink = place.open(TABLE, mode)
        expected: list[Row] = []
        if not first:
            sink.commit(EpochNumber(1), staged(place, [(0, "0")]))
            expected = [(0, "0")]
        epoch = EpochNumber(1 if first else 2)
        good = staged(place, [(1, "a")], [(2, "b")], [(3, "c")])

        def read(file: FileEntry) -> bytes:
            if file == good.entry.files[2]:
                raise ChecksumMismatch(file.path, file.sha256, "0" * 64)
            return good.read(file)

        with pytest.raises(ChecksumMismatch) as caught:
            sink.commit(epoch, StagedOutput(good.entry, read))
        assert caught.value.path == good.entry.files[2].path
        assert sink.ledger() == (None if first else 1)
        assert place.read(TABLE) == expected
        sink.commit(epoch, good)
        assert sorted(place.read(TABLE)) == [*expected, (1, "a"), (2, "b"), (3, "c")]

    @pytest.mark.parametrize("kind", ["garbage", "empty", "cut", "fewer rows", "more rows"])
    def test_a_file_that_is_not_what_was_staged_publishes_nothing(
        self, place: SinkPlace, kind: str
    ) -> None:
        """A file that does not decode to its declared rows is refused, though its checksum fits."""
        sink = place.open(TABLE, "append")
        sink.commit(EpochNumber(1), staged(place, [(1, "a")]))
        whole = place.encode([(2, "b"), (3, "c")], None)
        data, rows = {
            "garbage": (b"garbage" * 99, 2),
            "empty": (b"", 0),
            "cut": (whole[:-30], 2),
            "fewer rows": (whole, 3),
            "more rows": (whole, 1),
        }[kind]
        output = staged_bytes((place.encode([(9, "z")], None), data), (1, rows))
        with pytest.raises(LaminarError):
            sink.commit(EpochNumber(2), output)
        assert sink.ledger() == 1
        assert place.read(TABLE) == [(1, "a")]
