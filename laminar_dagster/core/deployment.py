"""What a changed pipeline does to its existing state: keep, migrate, rescale or rebuild.

Pure: two definitions in, a verdict with reasons for each operator out.

*Keep*: the stored rows are still valid; changes that a refresh of a reference table could also have
made are only reported. *Migrate*: the rows can be read as the new definition wants, by dropping or
widening columns, or by adding columns that miss the past, if the view says what they show of it.
*Rescale*: they can, after an epoch of upkeep has spread them over another number of buckets.
*Rebuild*: they cannot, so the state would have to be computed again from the beginning; going on
would publish wrong windows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from laminar_dagster.core.definition import OperatorDefinition, PipelineDefinition
from laminar_dagster.core.ids import OperatorId

Verdict = Literal["keep", "migrate", "rescale", "rebuild", "new", "drop"]

_WIDER: Final = (("tinyint", "smallint", "int", "bigint"), ("float", "double"))
# Arrow's names for the types of Spark SQL that can be widened.
_SPELLED: Final = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
}
_DECIMAL: Final = re.compile(r"decimal\((\d+), ?(\d+)\)")
_LONGEST: Final = 200


@dataclass(frozen=True, slots=True)
class OperatorChange:
    """What happens to the state of one operator, and why."""

    operator_id: OperatorId
    verdict: Verdict
    reasons: tuple[str, ...] = ()


def compare_definitions(
    old: PipelineDefinition, new: PipelineDefinition
) -> tuple[OperatorChange, ...]:
    """What happens to every operator of either definition, sorted by name."""
    before = {each.operator_id: each for each in old.operators}
    after = {each.operator_id: each for each in new.operators}
    changes = []
    for operator in sorted({*before, *after}):
        if operator not in before:
            reason = "it begins with the next epoch; windows open now will miss what came before"
            changes.append(OperatorChange(operator, "new", (reason,)))
        elif operator not in after:
            changes.append(OperatorChange(operator, "drop", ("no view needs it any more",)))
        else:
            changes.append(_compare(before[operator], after[operator], old.buckets, new.buckets))
    return tuple(changes)


def _compare(
    old: OperatorDefinition, new: OperatorDefinition, buckets: int, wanted: int
) -> OperatorChange:
    against, steps = (*_obstacles(old, new),), (*_conversions(old, new),)
    moved = tuple(_moved_tables(old, new))
    # Without keys all rows are in the first bucket, so the number of buckets does not matter.
    if new.keys and buckets != wanted:
        spread = f"its state is spread over {buckets} buckets, not {wanted}"
        if not against:
            return OperatorChange(new.operator_id, "rescale", (spread, *steps, *moved))
        against = (spread, *against)
    if against:
        return OperatorChange(new.operator_id, "rebuild", against)
    return OperatorChange(new.operator_id, "migrate" if steps else "keep", (*steps, *moved))


def _obstacles(old: OperatorDefinition, new: OperatorDefinition) -> Iterator[str]:
    if old.kept_as != new.kept_as:
        yield f"its state was kept {_kept(old)}, and is to be kept {_kept(new)}"
    if old.time != new.time:
        yield f"event time was {_listed((old.time,))}, and is {_listed((new.time,))}"
    if _edges(old) != _edges(new):
        yield f"the window was {_window(old)}, and is {_window(new)}"
    if old.gap_micros != new.gap_micros:
        yield f"rows were kept {_gap(old)}, and are to be kept {_gap(new)}"
    if old.lateness_micros != new.lateness_micros:
        before, after = old.lateness_micros / 1e6, new.lateness_micros / 1e6
        yield f"records were taken up to {before:g} s late, and are to be up to {after:g} s"
    if old.weight != new.weight:
        yield f"rows were weighed by {_listed((old.weight,))}, and are by {_listed((new.weight,))}"
    if old.keys != new.keys:
        yield f"the keys were {_listed(old.keys)}, and are {_listed(new.keys)}"
    if old.where != new.where:
        yield (
            f"the state was filtered by {_listed((old.where,))}, "
            f"and the filter is {_listed((new.where,))}"
        )
    yield from _lost_state(old, new)
    missing = _missing(old, new)
    if missing and (why := _cannot_add(new)):
        holds = "its state holds" if new.kept_as else "open windows hold"
        yield f"{holds} no {_listed(missing)}{why}"
    yield from _changed_input(old, new)
    for name, kind in new.columns.items():
        was = old.columns.get(name, kind)
        if was != kind and not (name in new.arguments and is_wider(was, kind)):
            yield f"`{name}` was {was.upper()}, and is {kind.upper()}"


def _lost_state(old: OperatorDefinition, new: OperatorDefinition) -> Iterator[str]:
    """Why the state of an operator in Python can no longer be read."""
    if old.version_of_state != new.version_of_state:
        was, now = _listed((old.version_of_state,)), _listed((new.version_of_state,))
        yield f"its version was {was}, and is {now}"
    for name, kind in new.state.items():
        was = old.state.get(name, kind)
        if was != kind and not is_wider(_SPELLED.get(was, was), _SPELLED.get(kind, kind)):
            yield f"`{name}` of its state was {was}, and is {kind}"


def _kept_state(old: OperatorDefinition, new: OperatorDefinition) -> Iterator[str]:
    """How the state of an operator in Python is read differently from now on."""
    if old.code != new.code and old.kept_as == new.kept_as:
        yield "its code has changed, and goes on with the state that is there"
    added = [each for each in new.state if each not in old.state]
    if added and old.state:
        yield f"{_listed(added)} is added to its state, null for keys that are there"
    left = [each for each in old.state if each not in new.state]
    if left and new.state:
        yield f"{_listed(left)} is left out of its state"
    for name, kind in new.state.items():
        was = old.state.get(name, kind)
        if was != kind:
            yield f"`{name}` of its state is widened from {was} to {kind}"


def _missing(old: OperatorDefinition, new: OperatorDefinition) -> list[str]:
    return [each for each in new.partials if each not in old.partials]


def _cannot_add(new: OperatorDefinition) -> str:
    """Why partials cannot be added to existing state; empty if they can."""
    if new.kept_as in ("rank", "join", "operator"):
        return ", and what was left out of them cannot be had back"
    if new.on_added is None:
        return (
            ": with `state.added = 'null'` after EMIT … WITH rows that are there show NULL for it, "
            "with 'from_now' what comes from the next epoch on"
        )
    if new.on_added == "from_now" and new.weight is not None:
        return ", and would take back what it never had: set `state.added = 'null'`"
    return ""


def _changed_input(old: OperatorDefinition, new: OperatorDefinition) -> Iterator[str]:
    """Changes upstream that may have changed the rows of the operator's input."""
    if old.input is None or old.input != new.input:
        for name in sorted({*old.reads, *new.reads}):
            is_table = name in new.references and name in old.reads
            if old.reads.get(name) != new.reads.get(name) and not is_table:
                yield f"`{name}`, which it reads, {_how_changed(name, old, new)}"
    for name in new.fixed:
        if _is_declared_otherwise(name, old, new):
            yield (
                f"`{name}` is declared otherwise, and would be copied anew; but what is taken back "
                "has to meet the rows that it met when it came. Undo that, or accept it with "
                "on_retraction = 'join_current'"
            )


def _is_declared_otherwise(name: str, old: OperatorDefinition, new: OperatorDefinition) -> bool:
    if name in old.references:
        return old.references[name] != new.references[name]
    return _is_moved(name, old, new)


def _is_moved(name: str, old: OperatorDefinition, new: OperatorDefinition) -> bool:
    return name in old.reads and old.reads[name] != new.reads[name]


def _moved_tables(old: OperatorDefinition, new: OperatorDefinition) -> Iterator[str]:
    """Changes of reference tables that are reported, but do not invalidate state."""
    for name in new.references:
        if name not in new.fixed and _is_moved(name, old, new):
            yield (
                f"`{name}` is declared otherwise: records meet its new rows from the next epoch "
                "on, as after a refresh"
            )


def _conversions(old: OperatorDefinition, new: OperatorDefinition) -> Iterator[str]:
    yield from _kept_state(old, new)
    missing = _missing(old, new)
    if missing and new.on_added == "null":
        yield f"{_listed(missing)} is added: NULL in rows that are there, exact in all that begin"
    elif missing:
        yield f"{_listed(missing)} is added: counted from the next epoch on, also in rows there are"
    unwanted = [each for each in old.partials if each not in new.partials]
    if unwanted:
        yield f"{_listed(unwanted)} is left out"
    for name, kind in new.columns.items():
        was = old.columns.get(name, kind)
        if was != kind:
            yield f"`{name}` is widened from {was.upper()} to {kind.upper()}"


def is_wider(old: str, new: str) -> bool:
    """Whether a type of Spark SQL can be widened to another without loss."""
    before, after = old.lower(), new.lower()
    for family in _WIDER:
        if before in family and after in family:
            return family.index(before) <= family.index(after)
    digits, wanted = _DECIMAL.fullmatch(before), _DECIMAL.fullmatch(after)
    if digits and wanted:
        return digits[2] == wanted[2] and int(digits[1]) <= int(wanted[1])
    return before == after


def _how_changed(name: str, old: OperatorDefinition, new: OperatorDefinition) -> str:
    if name not in old.reads:
        return "was not read before"
    return "is no longer read" if name not in new.reads else "has changed"


def _edges(operator: OperatorDefinition) -> tuple[int, int, int, bool]:
    return operator.size_micros, operator.slide_micros, operator.offset_micros, operator.grows


def _window(operator: OperatorDefinition) -> str:
    size, slide, offset, grows = _edges(operator)
    if not size:
        return "none"
    text = f"{size / 1e6:g} s"
    if slide != size:
        text += f" in steps of {slide / 1e6:g} s" if grows else f" every {slide / 1e6:g} s"
    return f"{text}, shifted by {offset / 1e6:g} s" if offset else text


def _kept(operator: OperatorDefinition) -> str:
    if operator.kept_as is None:
        return "until windows close"
    return f"by key, as {'an' if operator.kept_as == 'operator' else 'a'} {operator.kept_as}"


def _gap(operator: OperatorDefinition) -> str:
    if operator.gap_micros is None:
        return "for ever"
    return f"for {operator.gap_micros / 1e6:g} s after the last event"


def _listed(texts: tuple[str | None, ...] | tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"`{_short(each)}`" for each in texts if each) or "nothing"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
