"""What stands in ``EMIT CHANGES WITH (…)``."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from laminar_dagster.config.mistakes import Report, listed, nearest
from laminar_dagster.config.sql.syntax import Emit, Options
from laminar_dagster.config.units import parse_duration

EMIT_WORDS: Final = ("ON", "CHANGES", "FINAL", "AFTER", "WITH")
TTL: Final = "state.ttl"
UNBOUNDED: Final = "unbounded"

_KNOWN: Final = (TTL,)


def read_emit_options(where: str, options: Options, report: Report) -> Emit:
    """EMIT CHANGES with its options; notes what is wrong with them."""
    for name in options.values:
        if name not in _KNOWN:
            hint = nearest(name, _KNOWN, listed(_KNOWN, "options"))
            report.add(options.places[name], f"unknown option `{name[:80]}`", hint)
    text = options.values.get(TTL)
    if text is None:
        return Emit(where, changes=True)
    place = options.places[TTL]
    if text.strip().lower() == UNBOUNDED:
        return Emit(where, changes=True, is_unbounded=True, ttl_where=place)
    try:
        length = parse_duration(text)
        if not length:
            raise ValueError("it must be more than nothing")
    except (ValueError, OverflowError) as error:
        report.add(place, f"`{TTL}`: {error}", f"such as '30d', or '{UNBOUNDED}'")
        return Emit(where, changes=True, is_unbounded=True, ttl_where=place)
    micros = length // timedelta(microseconds=1)
    return Emit(where, changes=True, ttl_micros=micros, ttl_where=place)
