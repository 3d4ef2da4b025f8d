"""What the contract of ``Sink`` says of what a sink tells: before a commit, and during it."""

from __future__ import annotations

import pytest

from laminar_dagster.core.errors import ChecksumMismatch
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import FileEntry
from laminar_dagster.core.ports import StagedOutput
from laminar_dagster.testing.sink_places import TABLE, Mode, SinkPlace, staged


class _Told:
    """Remembers what it is told."""

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
    """Of looking before, and of being watched."""

    @pytest.mark.parametrize("mode", ["append", "upsert"])
    def test_a_check_makes_nothing_and_passes_what_can_be_committed(
        self, place: SinkPlace, mode: Mode
    ) -> None:
        """Before the first epoch, and when there is a table."""
        sink = place.open(TABLE, mode)
        output = staged(place, [(1, "a")])
        sink.check(place.columns())
        sink.check(place.columns(), output.entry)
        assert sink.ledger() is None
        assert place.read(TABLE) == []
        sink.commit(EpochNumber(1), output)
        sink.check(place.columns(), staged(place, [(2, "b")]).entry)
        assert sink.ledger() == 1
        assert place.read(TABLE) == [(1, "a")]

    @pytest.mark.parametrize("mode", ["append", "upsert"])
    def test_a_commit_tells_its_begin_its_rows_and_its_end(
        self, place: SinkPlace, mode: Mode
    ) -> None:
        """One transaction an epoch; with the epoch there already, none."""
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
        """So that nobody takes it for one whose reply was lost."""
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
