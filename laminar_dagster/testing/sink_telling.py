"""The part of the ``Sink`` contract about ``check`` before a commit and progress during it."""

from __future__ import annotations

import pytest

from laminar_dagster.core.errors import ChecksumMismatch, InvalidConfig, WriteFailed
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import FileEntry
from laminar_dagster.core.ports import StagedOutput
from laminar_dagster.testing.sink_places import (
    OTHER,
    TABLE,
    Mode,
    Row,
    SinkPlace,
    staged,
)


class _Told:
    """A progress listener that records its calls."""

    def __init__(self) -> None:
        self.states: list[str] = []
        self.rows = 0

    def begun(self) -> None:
        self.states.append("begun")

    def wrote(self, rows: int) -> None:
        assert self.states == ["begun"], "rows belong between begin and commit"
        self.rows += rows

    def committing(self) -> None:
        self.states.append("committing")

    def aborted(self) -> None:
        self.states.clear()
        self.rows = 0


class TellingContract:
    """Tests of ``Sink.check`` and of the progress calls of ``Sink.commit``."""

    @pytest.mark.parametrize("mode", ["append", "upsert"])
    def test_a_check_makes_nothing_and_passes_what_can_be_committed(
        self, place: SinkPlace, mode: Mode
    ) -> None:
        """Both before the first epoch and when the table exists."""
        sink = place.open(TABLE, mode)
        output = staged(place, [(1, "a")])
        sink.check(place.columns())
        sink.check(place.columns(), output)
        assert sink.ledger() is None
        assert place.read(TABLE) == []
        sink.commit(EpochNumber(1), output)
        sink.check(place.columns(), staged(place, [(2, "b")]))
        assert sink.ledger() == 1
        assert place.read(TABLE) == [(1, "a")]

    @pytest.mark.parametrize("first", [True, False])
    def test_a_check_refuses_a_key_that_is_null(self, place: SinkPlace, first: bool) -> None:
        """A check must find null keys: at the commit it is too late to compute the epoch again."""
        sink = place.open(TABLE, "upsert")
        if not first:
            sink.commit(EpochNumber(1), staged(place, [(1, "a")]))
        output = staged(place, [(2, "b")], [(3, "c"), (None, "d")])
        with pytest.raises(InvalidConfig, match="`key` is null in 1 rows"):
            sink.check(place.columns(), output)
        with pytest.raises(WriteFailed, match="`key` is null in 1 rows"):
            sink.commit(EpochNumber(1 if first else 2), output)
        assert place.read(TABLE) == ([] if first else [(1, "a")])
        # In append mode there is no key, so a null is fine.
        place.open(OTHER, "append").check(place.columns(), output)

    @pytest.mark.parametrize(
        ("mode", "weights"),
        [("append", [1, -1]), ("append", [2, 1]), ("upsert", [1, 0]), ("upsert", [-2, 1])],
    )
    def test_a_check_refuses_a_weight_that_cannot_be_applied(
        self, place: SinkPlace, mode: Mode, weights: list[int]
    ) -> None:
        """A bad weight is found in any of the staged files."""
        sink = place.open(TABLE, mode)
        rows: list[Row] = [(1, "a"), (2, "b")]
        sink.check(place.columns(), staged(place, rows, weights=[[1, 1]]))
        with pytest.raises(InvalidConfig, match="_weight"):
            sink.check(place.columns(), staged(place, [], rows, weights=[[], weights]))
        assert sink.ledger() is None

    @pytest.mark.parametrize("mode", ["append", "upsert"])
    def test_a_commit_tells_its_begin_its_rows_and_its_end(
        self, place: SinkPlace, mode: Mode
    ) -> None:
        """One transaction per epoch; none if the epoch is committed already."""
        sink = place.open(TABLE, mode)
        for epoch, files in ((1, [[(1, "a"), (2, "b")], [(3, "c")]]), (2, [])):
            output, told = staged(place, *files), _Told()
            sink.commit(EpochNumber(epoch), StagedOutput(output.entry, output.read, told))
            assert told.states == ["begun", "committing"]
            assert told.rows == sum(len(rows) for rows in files)
            again = _Told()
            sink.commit(EpochNumber(epoch), StagedOutput(output.entry, output.read, again))
            assert "committing" not in again.states
            assert again.rows == 0

    def test_a_commit_that_fails_before_its_end_does_not_tell_one(self, place: SinkPlace) -> None:
        """Otherwise it would be mistaken for a commit whose reply was lost."""
        output, told = staged(place, [(1, "a")], [(2, "b")]), _Told()

        def read(file: FileEntry) -> bytes:
            if file == output.entry.files[1]:
                raise ChecksumMismatch(file.path, file.sha256, "0" * 64)
            return output.read(file)

        with pytest.raises(ChecksumMismatch):
            place.open(TABLE, "upsert").commit(
                EpochNumber(1), StagedOutput(output.entry, read, told)
            )
        assert "committing" not in told.states
