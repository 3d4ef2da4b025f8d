"""Describes what an operator uses of its upstream views and queries, and nothing else of them.

An upstream view that gets one more column or aggregate still gives the same rows to an operator
that does not use it, so the operator's state stays valid. That is why unused columns are left out
of the description; views are inlined where they are read, because their names do not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import sqlglot
from sqlglot import exp

from laminar_dagster.config.aggregate import Aggregate
from laminar_dagster.config.fingerprint import (
    canonical_text,
    describe_query,
    describe_reading,
    more_of,
    relations,
)
from laminar_dagster.config.model import SourceTable, View
from laminar_dagster.config.relations import (
    Aggregation,
    KeyedAggregate,
    Projection,
    Relation,
    Select,
    TableInput,
    UnionAll,
    WindowAggregate,
)

# The parts of an aggregation's description that decide which rows it has.
_ROWS: Final = ("window", "keyed", "keys", "where", "weight", "lateness")

# Aggregates whose further arguments are always written, even if there are none. Old digests left
# these arguments out; an empty list tells a removed argument from such a digest.
_ALWAYS_IN_FULL: Final = ("count_distinct", "string_agg")

# Names of columns in lower case; None for all columns.
Names = frozenset[str] | None

_AGGREGATE: Final = re.compile(r"\b_a(\d+)\b")


def words_in(texts: Iterable[str]) -> Names:
    """Every name that occurs in expressions, in lower case; None if one cannot be parsed."""
    found: set[str] = set()
    for text in texts:
        try:
            tree = sqlglot.parse_one(text, dialect="spark")
        except sqlglot.ParseError:
            return None
        found |= {str(each.this).lower() for each in tree.find_all(exp.Identifier)}
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Needs:
    """Describes the parts of a relation that some of its columns depend on."""

    sources: Mapping[str, SourceTable]
    views: Mapping[str, View]

    def describe(self, relation: Relation, wanted: Names) -> Any:
        """Everything on which some columns of a relation, and the number of its rows, depend.

        Args:
            relation: The relation.
            wanted: The names of the columns.
        """
        match relation:
            case TableInput() if relation.name in self.views:
                return self.describe(self.views[relation.name].query, wanted)
            case TableInput():
                return {"read": relation.name, **describe_reading(self.sources[relation.name])}
            case Select():
                columns = _wanted(relation.columns, wanted)
                texts = [each.sql for each in columns]
                return {
                    "select": [[each.name, each.sql] for each in columns],
                    "where": relation.where,
                    "from": self.describe(relation.source, _all_of(texts, relation.where)),
                }
            case WindowAggregate() | KeyedAggregate():
                return self._aggregation(relation, wanted)
            case UnionAll() if (places := _places(relation, wanted)) is not None:
                parts = (self._cut(part, places) for part in relation.parts)
                return {"union_all": [*parts]}
            case _:
                return self._whole(relation)

    def _aggregation(self, query: Aggregation, wanted: Names) -> Any:
        columns = _wanted(query.columns, wanted)
        shown = [each.sql for each in columns] + ([query.having] if query.having else [])
        numbers = {int(each) for text in shown for each in _AGGREGATE.findall(text)}
        named = {f"_a{number}" for number in numbers}
        used = [each for each in query.aggregates if each.name in named]
        held = {each.name: _in_full(each) for each in used}
        below = [text for each in used for text in each.arguments]
        below += [each.sql for each in query.keys]
        window, rest = query.window, describe_query(query)
        times = [window.time] if window else []
        time = query.time if isinstance(query, KeyedAggregate) else None
        times += [text for text in (time, query.weight) if text is not None]
        return {
            **{name: rest[name] for name in _ROWS if name in rest},
            # Aggregates by their text, not as `_a0`: one more aggregate shifts the numbers.
            "select": [[each.name, _spelled(each.sql, held)] for each in columns],
            "having": _spelled(query.having, held) if query.having else None,
            "from": self.describe(query.source, _all_of([*below, *times], query.where)),
        }

    def _cut(self, part: Relation, places: list[int]) -> Any:
        assert isinstance(part, Select | WindowAggregate | KeyedAggregate)
        names = [part.columns[place].name.lower() for place in places]
        return {"columns": names, "of": self.describe(part, frozenset(names))}

    def _whole(self, relation: Relation) -> Any:
        """The whole relation and all its inputs, where dependencies of columns are unknown."""
        names = sorted({each.name for each in relations(relation) if isinstance(each, TableInput)})
        below = {name: self.describe(TableInput(name), None) for name in names}
        return {"whole": describe_query(relation), "reads": below}


def _wanted(columns: tuple[Projection, ...], wanted: Names) -> list[Projection]:
    found = [each for each in columns if wanted is None or each.name.lower() in wanted]
    return sorted(found, key=lambda each: each.name)


def _all_of(texts: Iterable[str], where: str | None) -> Names:
    return words_in([*texts, *([where] if where else [])])


def _in_full(aggregate: Aggregate) -> str:
    """An aggregate with all its arguments; spelled as in old digests where those were complete."""
    text, more = f"{aggregate.function}({aggregate.argument}; {aggregate.by})", more_of(aggregate)
    is_whole = not more and aggregate.function not in _ALWAYS_IN_FULL
    return text if is_whole else f"{text} {canonical_text(more)}"


def _spelled(text: str, held: Mapping[str, str]) -> str:
    return _AGGREGATE.sub(lambda found: f"⟨{held.get(found[0], found[0])}⟩", text)


def _places(union: UnionAll, wanted: Names) -> list[int] | None:
    """The positions of columns of a union; None unless every part lists its columns."""
    first = union.parts[0]
    if wanted is None or not all(
        isinstance(each, Select | WindowAggregate | KeyedAggregate) for each in union.parts
    ):
        return None
    names = [each.name.lower() for each in first.columns]
    return [place for place, name in enumerate(names) if name in wanted]
