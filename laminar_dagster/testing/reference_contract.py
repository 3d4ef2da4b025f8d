"""The contract of ``Reference`` as tests. Subclass it, and provide a place to write tables to.

::

    class TestMyTable(ReferenceContract):
        @pytest.fixture
        def place(self, tmp_path): return MyPlace(tmp_path)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pytest

from laminar_dagster.core.errors import ReferenceUnavailable, ReferenceUnfit
from laminar_dagster.core.ports import Reference

Row = tuple[int, str | None]

FIRST: Sequence[Row] = ((1, "pear"), (2, None), (3, "fig"))
OTHER: Sequence[Row] = ((1, "pear"), (2, "plum"), (3, "fig"))


class ReferencePlace(Protocol):
    """Where a test's table is, with the columns ``id INT NOT NULL`` and ``name STRING``."""

    def table(self, *, has_key: bool = True, column: str = "name") -> Reference:
        """The adapter, with ``id`` as its key or without one; ``column`` is the second one."""
        ...

    def write(self, rows: Sequence[Row]) -> None:
        """Create or overwrite the table with these rows, in this order."""
        ...

    def remove(self) -> None:
        """Remove the table."""
        ...


class ReferenceContract:
    """The promises of ``core.ports.Reference``."""

    def test_the_same_rows_give_the_same_files(self, place: ReferencePlace) -> None:
        """The order in which rows were written makes no difference."""
        place.write(FIRST)
        one = place.table().read()
        place.write(FIRST[::-1])
        assert place.table().read().files == one.files
        assert sum(rows for rows, _ in one.files) == len(FIRST)

    def test_other_rows_give_other_files_and_another_version(self, place: ReferencePlace) -> None:
        """A single value that is no longer null is a change."""
        place.write(FIRST)
        before = place.table().version()
        one = place.table().read()
        place.write(OTHER)
        assert place.table().read().files != one.files
        assert before is None or place.table().version() != before

    def test_a_version_stays_while_nothing_changes(self, place: ReferencePlace) -> None:
        """Reading the table does not change its version."""
        place.write(FIRST)
        before = place.table().version()
        place.table().read()
        assert place.table().version() == before

    def test_a_table_may_be_empty(self, place: ReferencePlace) -> None:
        """It is read as one file without rows."""
        place.write(FIRST)
        place.write(())
        assert [rows for rows, _ in place.table().read().files] == [0]

    def test_two_rows_of_one_key_are_refused_by_name(self, place: ReferencePlace) -> None:
        """Duplicate keys are an error only if a key is declared."""
        place.write((*FIRST, (3, "date")))
        with pytest.raises(ReferenceUnfit, match="PRIMARY KEY is not one: two rows have id = '3'"):
            place.table().read()
        assert sum(rows for rows, _ in place.table(has_key=False).read().files) == 4

    def test_a_missing_table_is_told_and_so_is_one_that_is_gone(
        self, place: ReferencePlace
    ) -> None:
        """A missing table raises; it never reads as an empty one."""
        for _ in range(2):
            with pytest.raises((ReferenceUnavailable, ReferenceUnfit)):
                place.table().read()
            with pytest.raises((ReferenceUnavailable, ReferenceUnfit)):
                place.table().version()
            place.write(FIRST)
            assert place.table().read().files
            place.remove()

    def test_a_missing_column_is_told_by_its_name(self, place: ReferencePlace) -> None:
        """Otherwise the column would read as null in every row."""
        place.write(FIRST)
        with pytest.raises(ReferenceUnfit, match="colour"):
            place.table(column="colour").read()

    def test_another_declaration_is_another_table(self, place: ReferencePlace) -> None:
        """So that a cached copy is not reused after the declaration changed."""
        declared = {
            place.table().declaration,
            place.table(has_key=False).declaration,
            place.table(column="colour").declaration,
        }
        assert len(declared) == 3
        assert place.table().declaration == place.table().declaration
