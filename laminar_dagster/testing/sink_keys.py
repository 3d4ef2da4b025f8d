"""The contract of upsert sinks, as tests over every type of key.

::

    @dataclass(frozen=True)
    class MyKeyPlace:
        folder: Path
        def open_keyed(self, key): ...
        def read_keyed(self, kind): ...

    class TestMyKeys(KeyContract):
        refused = {"float64": "does not compare well"}

        @pytest.fixture
        def key_place(self, tmp_path: Path) -> KeyPlace:
            return MyKeyPlace(tmp_path)

A key type that a sink does not support is an entry of ``refused``, with a pattern of the error
message: the sink must refuse it by name, before anything is written.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

import pyarrow as pa
import pytest

from laminar_dagster.core.errors import InvalidConfig, WriteFailed
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.ports import Searchable, Sink, StagedOutput
from laminar_dagster.testing.key_kinds import KEY_KINDS, Key, KeyKind
from laminar_dagster.testing.sink_places import staged_bytes

__all__ = ["Key", "KeyContract", "KeyKind", "KeyPlace"]

VALUE = "value"
_WEIGHT = "_weight"
# Epochs after which adjacent keys were upserted (4) and deleted (7).
_LOOKED_AT = (4, 7)
# A key and its new value; None deletes the row.
_Change = tuple[Key, str | None]


class KeyPlace(Protocol):
    """Where a test's upsert sink writes. Empty at first."""

    def open_keyed(self, key: tuple[str, ...]) -> Sink:
        """A new instance in mode upsert, always of the same table.

        Args:
            key: The key columns. The rows have one more column, the string ``value``.
        """
        ...

    def read_keyed(self, kind: KeyKind) -> list[tuple[Key, str]]:
        """Every row of the table as an independent client sees it: its key, and ``value``.

        Keys are returned as the Python values of ``kind.keys``. Empty while there is no table.
        """
        ...


class KeyContract:
    """An upserted table holds the same rows as a dictionary with the same changes.

    Attributes:
        refused: The kinds of keys that the sink refuses, with a pattern of the error message.
        looks_after_every_epoch: Whether to compare after each epoch, not after a few only.
    """

    refused: ClassVar[Mapping[str, str]] = {}
    looks_after_every_epoch: ClassVar[bool] = True

    @pytest.fixture
    def key_place(self) -> KeyPlace:
        """An empty place that no other test uses."""
        raise NotImplementedError("a subclass provides the place")

    @pytest.mark.parametrize("name", KEY_KINDS)
    def test_rows_by_key_are_those_of_a_dictionary(self, key_place: KeyPlace, name: str) -> None:
        """Over epochs of inserts, updates and deletes of adjacent keys."""
        kind = KEY_KINDS[name]
        if said := self.refused.get(name):
            self._refuses(key_place, kind, said)
            return
        model: dict[Key, str] = {}
        for number, files in enumerate(_history(kind), 1):
            output = _staged(kind, files)
            sink = key_place.open_keyed(kind.columns)
            sink.check(kind.schema(VALUE), output)
            sink.commit(EpochNumber(number), output)
            _apply(model, files)
            if self.looks_after_every_epoch or number in _LOOKED_AT:
                _compare(key_place, kind, model)
        _compare(key_place, kind, model)
        sink = key_place.open_keyed(kind.columns)
        if isinstance(sink, Searchable):
            _search(sink, kind, model)

    def _refuses(self, place: KeyPlace, kind: KeyKind, said: str) -> None:
        output = _staged(kind, [[(key, "put") for key in kind.keys]])
        sink = place.open_keyed(kind.columns)
        with pytest.raises(InvalidConfig, match=said):
            sink.check(kind.schema(VALUE), output)
        with pytest.raises(WriteFailed, match=said):
            sink.commit(EpochNumber(1), output)
        assert place.read_keyed(kind) == []
        assert place.open_keyed(kind.columns).ledger() is None

    def test_every_refusal_is_of_a_kind_that_is_tried(self) -> None:
        """A misspelt name in ``refused`` would test nothing."""
        assert {*self.refused} <= {*KEY_KINDS}
        for said in self.refused.values():
            re.compile(said)


def _history(kind: KeyKind) -> list[list[list[_Change]]]:
    """The changes of a test: epochs, of files, of changes."""
    dice = random.Random(kind.name)
    keys, first, second = kind.keys, kind.keys[0], kind.keys[1]
    # Two adjacent keys come in epochs of their own, so that a sink that stores files has each in
    # its own file, whose key bounds (minimum and maximum) hold nothing else.
    epochs: list[list[list[_Change]]] = [
        [[(first, "1")]],
        [[(second, "2")]],
        [[(key, "3") for key in keys[2::2]], [(key, "3") for key in keys[3::2]]],
        [[(second, "4")]],
        [[(key, "5") for key in keys[::2]]],
        [[(first, None)]],
        [[(first, "7"), (second, None)], [(second, "7")]],
        [[(key, None) for key in keys]],
        [[(key, "9")] for key in keys],
    ]
    for turn in range(3):
        chosen = [dice.choice(keys) for _ in range(2 * len(keys))]
        changes: list[_Change] = [
            (key, None if dice.random() < 0.4 else f"{turn}-{place}")
            for place, key in enumerate(chosen)
        ]
        cut = dice.randrange(len(changes))
        epochs.append([changes[:cut], changes[cut:]])
    return epochs


def _staged(kind: KeyKind, files: Sequence[Sequence[_Change]]) -> StagedOutput:
    data = [_file_bytes(kind, changes) for changes in files]
    return staged_bytes(tuple(data), [len(changes) for changes in files])


def _file_bytes(kind: KeyKind, changes: Sequence[_Change]) -> bytes:
    rows = kind.table([key for key, _ in changes])
    rows = rows.append_column(VALUE, pa.array([value for _, value in changes], pa.string()))
    weights = [1 if value is not None else -1 for _, value in changes]
    rows = rows.append_column(_WEIGHT, pa.array(weights, pa.int8()))
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_file(buffer, rows.schema) as writer:
        writer.write_table(rows)
    data: bytes = buffer.getvalue().to_pybytes()
    return data


def _apply(model: dict[Key, str], files: Sequence[Sequence[_Change]]) -> None:
    for changes in files:
        for key, value in changes:
            if value is None:
                model.pop(key, None)
            else:
                model[key] = value


def _compare(place: KeyPlace, kind: KeyKind, model: Mapping[Key, str]) -> None:
    rows = place.read_keyed(kind)
    assert dict(rows) == model
    assert len(rows) == len(model)


def _search(sink: Searchable, kind: KeyKind, model: Mapping[Key, str]) -> None:
    schema = kind.schema(VALUE)
    assert sink.held_keys(schema, kind.table(kind.keys)).count == len(model)
    for key in kind.keys:
        assert sink.held_keys(schema, kind.table([key])).count == (key in model)
