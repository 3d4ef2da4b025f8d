"""A name is refused where it is made, or is safe as one segment of a key."""

from __future__ import annotations

import pickle
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from laminar_dagster.core.errors import InvalidName
from laminar_dagster.core.ids import (
    GENESIS,
    MAX_EPOCH,
    MAX_NAME_BYTES,
    BranchName,
    CheckpointId,
    EpochNumber,
    FileName,
    OperatorId,
    PartitionId,
    PipelineName,
    SinkId,
    SourceId,
    is_identifier,
)
from tests.unit.core.strategies import is_good_name, names

KINDS = (SourceId, OperatorId, SinkId, PipelineName, BranchName, FileName)

# From Unicode's list of confusable characters, and what NFKC folds into a separator.
LOOK_ALIKES = (
    "\u1735\u2041\u2044\u2215\u2571\u27cb\u29f8\u31d3\u2f03\uff0f\U0001d23a"  # as /
    "\u2216\u27cd\u29f5\u29f9\u31d4\u2f02\ufe68\uff3c\u20e5"  # as \
    "\u2024\u2025\u2026\u0701\u0702\ua60e\u3002\uff0e\uff61\ufe52\u00b7\U00010a50"  # as .
)
INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff\u00ad\u180e\u115f\u1160\u3164\uffa0"
BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"

HOSTILE = [
    "",
    ".",
    "..",
    "...",
    "../etc/passwd",
    "a/../b",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "C:\\x",
    "C:",
    "\\\\host\\share",
    "~root",
    "a b",
    " a",
    "a\n",
    "\na",
    "a\0",
    "\0",
    "\x1b[31m",
    "a\x7f",
    "a%2Fb",
    "a?b",
    "a#b",
    "a*",
    "a:b",
    "${HOME}",
    ".hidden",
    "end.",
    "\ud800",
    "a\udfff",
    "x" * (MAX_NAME_BYTES + 1),
    "ä" * (MAX_NAME_BYTES // 2 + 1),
    "e\u0301",  # decomposed
    "\ufb01",  # a ligature that NFKC takes apart
    "\u2460",  # a digit in a circle
    "\uff41",  # a full-width letter
    "\u212a",  # the Kelvin sign
    "\u212b",  # the Ångström sign
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_a_hostile_name_is_refused(kind: type[SourceId], text: str) -> None:
    with pytest.raises(InvalidName) as caught:
        kind(text)
    assert caught.value.noun == kind.noun
    # Whatever was in the name, the message can be shown and written to a log.
    str(caught.value).encode()
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("character", LOOK_ALIKES + BIDI, ids=ascii)
@pytest.mark.parametrize("form", ["{}", "a{}b", "{}{}", "..{}", "{}etc"])
def test_what_looks_like_a_separator_or_turns_the_text_is_refused(
    character: str, form: str
) -> None:
    with pytest.raises(InvalidName):
        SourceId(form.replace("{}", character))


@pytest.mark.parametrize("character", INVISIBLE, ids=ascii)
def test_what_cannot_be_seen_is_refused(character: str) -> None:
    with pytest.raises(InvalidName):
        SourceId(f"a{character}")


@given(
    st.text(max_size=8),
    st.sampled_from([*"/\\\0\n\x1b\u202e:*?", "\ud800", "\u2215"]),
    st.text(max_size=8),
)
def test_no_surroundings_make_a_bad_character_good(before: str, bad: str, after: str) -> None:
    with pytest.raises(InvalidName):
        FileName(before + bad + after)


@given(st.text(max_size=30))
@example("a" * 200)
@example("a.b")
@example("\u30ce\u4e36\u0660")  # letters that resemble separators, and are letters
def test_any_text_is_refused_or_taken_unchanged(text: str) -> None:
    try:
        name = SinkId(text)
    except InvalidName:
        return
    assert name == text
    assert is_good_name(text)
    for character in text:
        category = unicodedata.category(character)
        assert category[0] in "LN" or character in "_-.", f"{category} {character!r}"


@pytest.mark.parametrize("kind", KINDS)
@given(text=names)
def test_a_good_name_is_taken(kind: type[SourceId], text: str) -> None:
    name = kind(text)
    assert name == text
    assert hash(name) == hash(text)
    assert kind(name) is name
    again = pickle.loads(pickle.dumps(name))
    assert again == name
    assert type(again) is kind


def test_a_name_of_another_kind_is_taken_over() -> None:
    name = OperatorId(SourceId("clicks"))
    assert type(name) is OperatorId


@pytest.mark.parametrize("value", [None, 7, b"clicks", ["a"]])
def test_what_is_no_text_is_no_name(value: str) -> None:
    with pytest.raises(InvalidName, match="must be a string"):
        SourceId(value)


# --- numbers ------------------------------------------------------------------------------------


@given(st.integers(0, MAX_EPOCH))
def test_an_epoch_is_its_number(number: int) -> None:
    epoch = EpochNumber(number)
    assert epoch == number
    assert EpochNumber(epoch) is epoch
    assert len(epoch.key) == 20
    assert int(epoch.key) == number
    again = pickle.loads(pickle.dumps(epoch))
    assert again == epoch
    assert type(again) is EpochNumber


@given(st.lists(st.integers(0, MAX_EPOCH), min_size=2))
def test_keys_of_epochs_sort_as_the_numbers_do(numbers: list[int]) -> None:
    keys = [EpochNumber(number).key for number in numbers]
    assert sorted(keys) == [EpochNumber(number).key for number in sorted(numbers)]


def test_the_epochs_around_an_epoch() -> None:
    assert EpochNumber(4).next() == 5
    assert EpochNumber(4).previous() == 3
    assert type(EpochNumber(4).next()) is EpochNumber
    with pytest.raises(InvalidName):
        GENESIS.previous()
    with pytest.raises(InvalidName):
        EpochNumber(MAX_EPOCH).next()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (EpochNumber, -1),
        (EpochNumber, MAX_EPOCH + 1),
        (EpochNumber, True),
        (EpochNumber, 1.0),
        (EpochNumber, "1"),
        (EpochNumber, None),
        (EpochNumber, 10**100_000),
        (PartitionId, -1),
        (PartitionId, 2**32),
        (PartitionId, False),
    ],
    ids=lambda value: str(value)[:30] if not isinstance(value, int) else f"{value.bit_length()}bit",
)
def test_what_is_no_such_number_is_refused(kind: type[EpochNumber], value: int) -> None:
    with pytest.raises(InvalidName) as caught:
        kind(value)
    assert len(str(caught.value)) < 300


def test_the_largest_numbers() -> None:
    assert PartitionId(2**32 - 1) == 2**32 - 1
    assert EpochNumber(MAX_EPOCH) == 2**63 - 1


def test_which_types_are_identifiers() -> None:
    identifiers = (*KINDS, EpochNumber, PartitionId, CheckpointId)
    assert all(is_identifier(kind) for kind in identifiers)
    assert not any(is_identifier(kind) for kind in (str, int, bytes, object))
