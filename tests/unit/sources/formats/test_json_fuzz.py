"""The fate of a record depends on its bytes alone: records by chance, read in every way there is.

A seed is some columns and 2,000 records of ``json_grammar``. Each record has one fate, a row or the
reason why it is bad: alone, in batches of any size and order, with the compiled library and
without, from a file, from Kafka, in an envelope of Debezium. A hunt through many:

    LAMINAR_PROOF_SEED=0-4999 python -m pytest tests/unit/sources/formats/test_json_fuzz.py
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pytest

from laminar_dagster.sources.decoded import BadRecord
from laminar_dagster.sources.formats import ndjson
from laminar_dagster.sources.formats.columns import holds
from laminar_dagster.sources.formats.csv_records import CsvDecoder
from laminar_dagster.sources.formats.debezium import DebeziumDecoder
from laminar_dagster.sources.formats.json_columns import JsonColumns
from laminar_dagster.sources.formats.ndjson import JsonDecoder
from laminar_dagster.sources.formats.records import Offsets, Outcome, Records
from laminar_dagster.sources.kafka.value_decoders import CsvValues, JsonValues
from tests.services.compiled import require_compiled, without_compiled
from tests.unit.sources.formats.json_grammar import KINDS, Grammar

VARIABLE: Final = "LAMINAR_PROOF_SEED"
RECORDS: Final = 2_000
# Of which so many are drawn from the grammar, and the others are near to these.
DRAWN: Final = 500
# So many are read alone, too.
ALONE: Final = 10
USUAL_SEEDS: Final = 32
# Bad times cost ten times what other bad values do, and there is less to them.
_WEIGHTS: Final = [0.2 if holds(each, pa.types.is_temporal) else 1 for each in KINDS]
_WEIGHT: Final = pa.field("_weight", pa.int8())

Read = Callable[[list[bytes], Offsets], Outcome]


def seeds() -> list[int]:
    """A number, a range such as ``100-199``, or else the usual ones."""
    first, _, last = os.environ.get(VARIABLE, f"0-{USUAL_SEEDS - 1}").partition("-")
    return list(range(int(first), int(last or first) + 1))


@dataclass(frozen=True, slots=True)
class Fates:
    """What became of records: which rows they are, by place, and why the others are none."""

    places: Offsets
    rows: pa.RecordBatch
    bad: dict[int, str]

    def of(self, place: int) -> str:
        """What became of one."""
        if place in self.bad:
            return f"bad: {self.bad[place]}"
        found = self.rows.take(pa.array(np.flatnonzero(self.places == place)))
        return str([list(map(str, each.to_pandas())) for each in found.columns])


def fates(outcomes: Sequence[Outcome], schema: pa.Schema) -> Fates:
    """Put together, in order, what became of batches, whose positions are places."""
    batches = [pa.RecordBatch.from_arrays([], names=[])] if not outcomes else []
    batches += [each.rows for each in outcomes]
    places = np.concatenate([each.positions for each in outcomes])
    order = np.argsort(places, kind="stable")
    rows = pa.concat_batches(batches).take(pa.array(order))
    assert rows.schema == schema
    bad: dict[int, str] = {}
    for each in (one for outcome in outcomes for one in outcome.bad):
        assert each.position not in bad
        bad[each.position] = each.reason
    return Fates(places[order], rows, bad)


def differing(one: Fates, other: Fates, count: int) -> list[int]:
    """The places of which two ways to read say different things."""
    if one.bad == other.bad and np.array_equal(one.places, other.places):
        if all(map(_are_same, one.rows.columns, other.rows.columns)):
            return []
    return [place for place in range(count) if one.of(place) != other.of(place)]


def _are_same(one: pa.Array, other: pa.Array) -> bool:
    if not holds(one.type, pa.types.is_floating):
        return bool(one.equals(other))
    if not one.is_valid().equals(other.is_valid()):
        return False
    if pa.types.is_floating(one.type):
        # To Arrow a zero equals one of the other sign, and NaN not even itself.
        return bool(np.array_equal(_bits(one), _bits(other)))
    if pa.types.is_struct(one.type):
        return all(map(_are_same, one.flatten(), other.flatten()))
    # Lists, and maps, which are lists of pairs.
    if not np.array_equal(np.diff(one.offsets.to_numpy()), np.diff(other.offsets.to_numpy())):
        return False
    if pa.types.is_map(one.type):
        return bool(one.keys.equals(other.keys)) and _are_same(one.items, other.items)
    return _are_same(one.flatten(), other.flatten())


def _bits(numbers: pa.Array) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    found = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    return np.where(np.isnan(found), np.nan, found).astype(np.float64).view(np.uint8)


def records_of(lines: Sequence[bytes], places: Offsets) -> Records:
    """Lines side by side, each with its place for a position."""
    lengths = np.array([len(line) + 1 for line in lines], np.int64)
    ends = np.cumsum(lengths)
    return Records(b"".join(line + b"\n" for line in lines), ends - lengths, ends, places)


def cut(count: int, chance: random.Random, size: int) -> Iterator[Offsets]:
    """Places in any order, in batches of up to some size; within a batch they ascend."""
    order = np.array(chance.sample(range(count), count), np.int64)
    while len(order):
        batch, order = np.split(order, [min(len(order), chance.randint(1, size))])
        yield np.sort(batch)


def read_in(
    batches: Iterator[Offsets], lines: list[bytes], read: Callable[[], Read], schema: pa.Schema
) -> Fates:
    """Read some lines in batches, with decoders that have read others before or have not."""
    outcomes: list[Outcome] = []
    one = read()
    for number, places in enumerate(batches):
        one = read() if number % 3 == 0 else one
        outcomes.append(one([lines[place] for place in places.tolist()], places))
    return fates(outcomes, schema)


def require_same(lines: list[bytes], ways: dict[str, Fates]) -> None:
    """All ways say the same of each line."""
    (first, expected), *others = ways.items()
    for name, found in others:
        for place in differing(expected, found, len(lines))[:3]:
            pytest.fail(
                f"{lines[place]!r}\n{first}: {expected.of(place)}\n{name}: {found.of(place)}\n"
                f"columns: {expected.rows.schema}"
            )


def drawn(grammar: Grammar, draw: Callable[[], bytes]) -> list[bytes]:
    """The records of a seed."""
    lines = [draw() for _ in range(DRAWN)]
    lines += [grammar.near(lines[place % DRAWN]) for place in range(RECORDS - DRAWN)]
    grammar.chance.shuffle(lines)
    return lines


def grammar_of(seed: int, newline: bytes = b"") -> Grammar:
    chance = random.Random(seed)
    return Grammar(chance, chance.choice((0.01, 0.03, 0.15)), newline)


def columns_of(chance: random.Random) -> dict[str, pa.DataType]:
    names = ["x", "ä y", "z"][: chance.choice((1, 1, 1, 2, 3))]
    return dict(zip(names, chance.choices(KINDS, _WEIGHTS, k=len(names)), strict=True))


def schema_of(columns: dict[str, pa.DataType], chance: random.Random) -> pa.Schema:
    return pa.schema(
        [pa.field(name, kind, chance.random() < 0.8) for name, kind in columns.items()]
    )


def from_file(schema: pa.Schema) -> Callable[[], Read]:
    def made() -> Read:
        decoder = JsonDecoder(schema)
        return lambda lines, places: decoder.decode(records_of(lines, places))

    return made


def from_kafka(schema: pa.Schema) -> Callable[[], Read]:
    def made() -> Read:
        decoder = JsonValues(JsonDecoder(schema))
        return lambda lines, places: decoder.decode(pa.array(lines, pa.binary()), places)

    return made


def one_by_one(schema: pa.Schema) -> Callable[[], Read]:
    def made() -> Read:
        decoder = JsonDecoder(schema)
        return lambda lines, places: decoder.decode_one_by_one(records_of(lines, places))

    return made


def compiled_first(schema: pa.Schema) -> Callable[[], Read]:
    """Beside as many plain records, so that the compiled library is never passed by."""

    def made() -> Read:
        decoder = JsonDecoder(schema)
        plain = JsonColumns.of(schema)

        def read(lines: list[bytes], places: Offsets) -> Outcome:
            padded = records_of([*lines, *[b"{}"] * len(lines)], np.arange(2 * len(lines)))
            if plain is not None:
                assert plain.read(padded) is not None
            found = decoder.decode(padded)
            return _without(found, len(lines), places)

        return read

    return made


def _without(outcome: Outcome, count: int, places: Offsets) -> Outcome:
    """An outcome of the first records alone, at their places."""
    is_one = outcome.positions < count
    bad = [
        BadRecord(int(places[each.position]), each.raw, each.reason)
        for each in outcome.bad
        if each.position < count
    ]
    rows = outcome.rows.filter(pa.array(is_one))
    return Outcome(rows, places[outcome.positions[is_one]], bad)


def alone(count: int) -> Iterator[Offsets]:
    return (np.array([place], np.int64) for place in range(count))


@pytest.mark.proof("fates of JSON records", seed_in=VARIABLE)
@pytest.mark.parametrize("seed", seeds())
def test_lines(seed: int) -> None:
    require_compiled()
    grammar = grammar_of(seed)
    chance = grammar.chance
    columns = columns_of(chance)
    schema = schema_of(columns, chance)
    lines = drawn(grammar, lambda: grammar.record(columns))
    lines = [line.replace(b"\n", b" ") for line in lines]
    batches = cut(len(lines), chance, chance.choice((60, 250, 250, 2000)))
    ways = {"one by one": read_in(iter([np.arange(len(lines))]), lines, one_by_one(schema), schema)}
    match seed % 8:
        case 0:
            ways["parser first"] = _parser_first(batches, lines, schema)
        case 1 | 2:
            ways["Kafka"] = read_in(batches, lines, from_kafka(schema), schema)
        case 3:
            ways["file"] = read_in(batches, lines, from_file(schema), schema)
        case 4:
            with without_compiled():
                ways["not compiled"] = read_in(batches, lines, from_file(schema), schema)
        case _:
            ways["compiled"] = read_in(batches, lines, compiled_first(schema), schema)
    require_same(lines, ways)
    some = lines[:ALONE]
    require_same(
        some,
        {
            "one by one": read_in(iter([np.arange(ALONE)]), some, one_by_one(schema), schema),
            "alone": read_in(alone(ALONE), some, from_file(schema), schema),
        },
    )


@pytest.mark.proof("fates of JSON records", seed_in=VARIABLE)
@pytest.mark.parametrize("seed", seeds()[::6])
def test_messages_of_several_lines(seed: int) -> None:
    require_compiled()
    grammar = grammar_of(seed, b"\n")
    chance = grammar.chance
    columns = columns_of(chance)
    schema = schema_of(columns, chance)
    lines = drawn(grammar, lambda: grammar.record(columns))
    ways = {"Kafka": read_in(cut(len(lines), chance, 900), lines, from_kafka(schema), schema)}
    with without_compiled():
        ways["not compiled"] = read_in(
            cut(len(lines), chance, 50), lines, from_kafka(schema), schema
        )
    require_same(lines, ways)


@pytest.mark.proof("fates of JSON records", seed_in=VARIABLE)
@pytest.mark.parametrize("seed", seeds()[::6])
def test_envelopes(seed: int) -> None:
    grammar = grammar_of(seed)
    chance = grammar.chance
    columns = columns_of(chance) | {"text": pa.string(), "at": pa.timestamp("us", tz="UTC")}
    fields = [pa.field(name, kind) for name, kind in columns.items()]
    schema = pa.schema([*fields, _WEIGHT])

    def made() -> Read:
        decoder = DebeziumDecoder(schema, decimal_mode="string")
        return lambda lines, places: decoder.decode(records_of(lines, places))

    lines = [_envelope(grammar, columns).replace(b"\n", b" ") for _ in range(DRAWN)]
    ways = {
        "together": read_in(iter([np.arange(len(lines))]), lines, made, schema),
        "in batches": read_in(cut(len(lines), chance, 6), lines, made, schema),
        "alone": read_in(alone(len(lines)), lines, made, schema),
    }
    require_same(lines, ways)


def _parser_first(batches: Iterator[Offsets], lines: list[bytes], schema: pa.Schema) -> Fates:
    """The parser is asked of each line that is bad alone, and of the others side by side."""
    with without_compiled(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(ndjson, "_LINE_BY_LINE", 1)
        return read_in(batches, lines, from_file(schema), schema)


def _envelope(grammar: Grammar, columns: dict[str, pa.DataType]) -> bytes:
    chance = grammar.chance
    before = grammar.record(columns) if chance.random() < 0.4 else b"null"
    after = grammar.record(columns) if chance.random() < 0.9 else b"null"
    if chance.random() < 0.2:
        time = chance.choice((b"1700000000000", b"-1", b"9" * 18, b"1.5", b"Inf", b"1e3"))
        after = b'{"at":%s}' % time
    if chance.random() < 0.1:
        unsent = b"__debezium_unavailable_value"
        spelt = chance.choice((unsent, unsent.replace(b"_", rb"\u005f"), b"x"))
        after = b'{"text":"%s"}' % spelt
    op = b"c" if chance.random() < 0.3 else chance.choice((b"u", b"r", b"d", b"t", b"m", b"?"))
    record = b'"op":"%s","before":%s,"after":%s' % (op, before, after)
    if chance.random() < 0.2:
        record += b',"schema":' + chance.choice((b"null", b'{"fields":[]}', b"5", b'"x"'))
    if chance.random() < 0.2:
        record = b'"payload":{%s},"schema":%s' % (record, chance.choice((b"null", b"{}", b"5")))
    return b"{%s}" % record


@pytest.mark.proof("fates of CSV records", seed_in=VARIABLE)
@pytest.mark.parametrize("seed", seeds()[::6])
def test_values_of_csv(seed: int) -> None:
    grammar = grammar_of(seed)
    chance = grammar.chance
    kind = chance.choice([each for each in KINDS if not pa.types.is_nested(each)])
    schema = pa.schema([("x", kind), ("y", pa.string())])

    def made() -> Read:
        decoder = CsvValues(CsvDecoder(schema, ",", ""))
        return lambda lines, places: decoder.decode(pa.array(lines, pa.binary()), places)

    lines = drawn(grammar, lambda: grammar.value(kind).strip(b'"') + b",a")
    ways = {
        "together": read_in(iter([np.arange(len(lines))]), lines, made, schema),
        "in batches": read_in(cut(len(lines), chance, 300), lines, made, schema),
        "alone": read_in(alone(len(lines)), lines, made, schema),
    }
    require_same(lines, ways)
