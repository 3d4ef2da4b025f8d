"""What sessions are called: never cut off, and never like another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.clients.identifiers import session_name
from laminar_dagster.core.errors import InvalidName
from laminar_dagster.core.ids import SinkId

NAMES = st.text(max_size=200).filter(lambda text: "~" not in text)


@pytest.mark.parametrize("name", ["laminar shop/orders", "a" * 63, ""])
def test_a_name_that_fits_stays(name: str) -> None:
    assert session_name(name, 63) == name


@given(NAMES, NAMES, st.sampled_from([63, 64]))
def test_names_differ_as_what_they_stand_for(one: str, another: str, longest: int) -> None:
    shown = [session_name(each, longest) for each in (one, another)]
    assert (shown[0] == shown[1]) == (one == another)
    for each in shown:
        assert each.isascii()
        assert each.isprintable()
        assert len(each) <= longest


def test_the_beginning_stays_readable() -> None:
    shown = session_name("laminar shop/" + "x" * 100, 63)
    assert shown.startswith("laminar shop/xxx")
    assert len(shown) == 63


def test_no_sink_is_called_what_another_is_shortened_to() -> None:
    with pytest.raises(InvalidName):
        SinkId("a~0123456789abcdef")
