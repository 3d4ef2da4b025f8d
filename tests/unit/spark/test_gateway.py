"""The file of properties through which Spark is told its settings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.spark.gateway import properties

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def read(text: str) -> dict[str, str]:
    """As Java reads a file of properties in which whatever has a meaning is escaped."""
    lines = (line.partition("=") for line in text.split("\n") if line)
    return {_plain(key): _plain(value) for key, _, value in lines}


def _plain(text: str) -> str:
    codes = text.encode("ascii").decode("unicode_escape")
    return codes.encode("utf-16-be", "surrogatepass").decode("utf-16-be")


@given(st.dictionaries(_TEXT.map("spark.".__add__), _TEXT))
def test_any_value_comes_through(settings: dict[str, str]) -> None:
    text = properties(settings)
    assert read(text) == settings
    # Nothing but letters, digits, escapes and the two separators.
    assert not set(" :#!\t\r\f") & set(text)
