"""The options of ``EMIT … WITH (…)``."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from laminar_dagster.config.mistakes import Report, listed, nearest
from laminar_dagster.config.sql.syntax import Emit, Options
from laminar_dagster.config.units import parse_duration
from laminar_dagster.core.definition import OnAdded

EMIT_WORDS: Final = ("ON", "CHANGES", "FINAL", "AFTER", "WITH")
TTL: Final = "state.ttl"
UNBOUNDED: Final = "unbounded"
ADDED: Final = "state.added"

LATENESS: Final = "allowed.lateness"

_KNOWN: Final = (TTL, ADDED, LATENESS)
_ADDED: Final[dict[str, OnAdded]] = {"null": "null", "from_now": "from_now"}


def read_emit_options(emit: Emit, options: Options, report: Report) -> Emit:
    """EMIT with its options; notes what is wrong with them."""
    for name in options.values:
        if name not in _KNOWN:
            hint = nearest(name, _KNOWN, listed(_KNOWN, "options"))
            report.add(options.places[name], f"unknown option `{name[:80]}`", hint)
    emit = _with_lateness(_with_ttl(emit, options, report), options, report)
    return _with_added(emit, options, report)


def _with_ttl(emit: Emit, options: Options, report: Report) -> Emit:
    text = options.values.get(TTL)
    if text is None:
        return emit
    place = options.places[TTL]
    if not emit.changes:
        problem = f"`{TTL}` is for EMIT CHANGES"
        report.add(place, problem, "leave it out: a window ends by itself")
        return emit
    if text.strip().lower() == UNBOUNDED:
        return replace(emit, is_unbounded=True, ttl_where=place)
    micros = _duration(TTL, text, place, f"such as '30d', or '{UNBOUNDED}'", report)
    if micros is None:
        return replace(emit, is_unbounded=True, ttl_where=place)
    return replace(emit, ttl_micros=micros, ttl_where=place)


def _with_lateness(emit: Emit, options: Options, report: Report) -> Emit:
    text = options.values.get(LATENESS)
    if text is None:
        return emit
    place = options.places[LATENESS]
    micros = _duration(LATENESS, text, place, "such as '1m'", report)
    return replace(emit, lateness_micros=micros or 0, lateness_where=place)


def _with_added(emit: Emit, options: Options, report: Report) -> Emit:
    text = options.values.get(ADDED)
    if text is None:
        return emit
    found = _ADDED.get(text.strip().lower())
    if found is None:
        hint = "'null': rows that are there show NULL; 'from_now': they count what is to come"
        report.add(options.places[ADDED], f"`{ADDED}` cannot be '{text[:40]}'", hint)
    return replace(emit, on_added=found)


def _duration(name: str, text: str, place: str, hint: str, report: Report) -> int | None:
    try:
        length = parse_duration(text)
        if not length:
            raise ValueError("it must be more than nothing")
    except (ValueError, OverflowError) as error:
        report.add(place, f"`{name}`: {error}", hint)
        return None
    return length // timedelta(microseconds=1)
