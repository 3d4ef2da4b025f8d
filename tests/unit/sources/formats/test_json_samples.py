"""What columns messages of JSON seem to have."""

from __future__ import annotations

from typing import Any

import pytest

from laminar_dagster.sources.formats.json_samples import guess_columns, object_in


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], "bigint"),
        ([1, None], "bigint"),
        ([1, 2**63], "decimal(38, 0)"),
        ([10**38], "double"),
        ([1, 1.5], "double"),
        ([True], "boolean"),
        ([True, 1], ""),
        (["a"], "string"),
        (["a", 1], ""),
        (["2026-01-01T10:00:00Z", "2026-01-01 10:00:00.123456+02:00"], "timestamp"),
        (["2026-01-01T10:00:00"], "timestamp_ntz"),
        (["2026-01-01"], "date"),
        (["2026-01-01", "later"], "string"),
        (["2026-01-01T10:00:00Z", "2026-01-01T10:00:00"], "string"),
        ([[1], [2.5]], "array<double>"),
        ([[]], ""),
        ([{"a": 1}, {"b": {"c": "x"}}], "struct<a: bigint, b: struct<c: string>>"),
        ([{"a": None}], ""),
        ([{"a": 1}, [1]], ""),
        ([None], ""),
    ],
)
def test_a_type_that_holds_all_that_was_seen(values: list[Any], kind: str) -> None:
    (found,) = guess_columns({"x": each} for each in values)
    assert (found.name, found.type, found.nullable) == ("x", kind, True)


def test_members_keep_the_order_in_which_they_came() -> None:
    found = guess_columns([{"b": 1}, {"a": 1, "b": 2}])
    assert [each.name for each in found] == ["b", "a"]


@pytest.mark.parametrize("message", [b"", b"1", b"[1]", b"{", b"\x00\x00\x00\x00\x01{}", b"\xff"])
def test_what_is_no_object_is_none(message: bytes) -> None:
    assert object_in(message) is None


def test_what_no_standard_allows_is_none() -> None:
    assert object_in(b'{"a": NaN}') is None
    assert object_in(b"[" * 100_000) is None
    assert object_in(b'{"a": 1}') == {"a": 1}
