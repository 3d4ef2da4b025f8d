"""What was added to a state is never forgotten, and generations never begin again."""

from __future__ import annotations

from msgspec import structs

from laminar_dagster.core.additions import additions_of, newest_additions
from laminar_dagster.core.ids import EpochNumber
from tests.unit.core.test_deployment import OPERATOR

MORE = structs.replace(OPERATOR, partials=(*OPERATOR.partials, "min(n)"), on_added="null")


def test_what_is_missing_is_added_as_the_view_says() -> None:
    (found,) = additions_of(OPERATOR, MORE, (), EpochNumber(7))
    assert (found.partial, found.epoch, found.generation, found.shows) == ("min(n)", 7, 1, "null")
    assert "NULL" in found.meaning
    assert "since" in structs.replace(found, shows="from_now").meaning


def test_without_a_word_of_the_view_nothing_is_added() -> None:
    assert additions_of(OPERATOR, structs.replace(MORE, on_added=None), (), EpochNumber(7)) == ()
    assert additions_of(None, MORE, (), EpochNumber(7)) == ()


def test_what_is_left_out_and_comes_again_is_of_a_new_generation() -> None:
    first = additions_of(OPERATOR, MORE, (), EpochNumber(3))
    without = additions_of(MORE, OPERATOR, first, EpochNumber(4))
    assert without == first
    again = structs.replace(MORE, on_added="from_now")
    found = additions_of(OPERATOR, again, without, EpochNumber(5))
    assert [(each.epoch, each.generation, each.shows) for each in found] == [
        (3, 1, "null"),
        (5, 2, "from_now"),
    ]
    assert newest_additions(found) == {"min(n)": found[1]}
