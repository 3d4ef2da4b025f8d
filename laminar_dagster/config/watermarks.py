"""Reads the watermark of a source: its column, delay (or the connector's default), and bound."""

from __future__ import annotations

from collections.abc import Sequence

from laminar_dagster.config.connectors import SourceTraits
from laminar_dagster.config.max_ahead import DEFAULT_MAX_AHEAD, MAX_AHEAD, read_max_ahead
from laminar_dagster.config.mistakes import Report, nearest
from laminar_dagster.config.model import Column, WatermarkSpec
from laminar_dagster.config.sql.intervals import spelled
from laminar_dagster.config.sql.syntax import CreateSource, Options
from laminar_dagster.config.sql.types import TIMESTAMPS


def read_watermark(
    found: CreateSource, columns: Sequence[Column], traits: SourceTraits, report: Report
) -> WatermarkSpec | None:
    """The watermark of a source; notes what is wrong with it.

    Args:
        found: The statement.
        columns: The source's columns, with those that its connector adds.
        traits: The connector's traits with these options.
        report: Where mistakes go.
    """
    wanted, source = found.watermark, found.name.text
    option = traits.delay_option
    place = found.options.places.get(option, found.options.where)
    max_ahead = _max_ahead(found.options, report)
    if wanted is None:
        hint = "add WATERMARK FOR and the column of event time"
        for name in (option, MAX_AHEAD):
            if name and name in found.options.values:
                where = found.options.places.get(name, found.options.where)
                report.add(where, f"`{name}` is given, and `{source}` has no watermark", hint)
        return None
    by_name = {each.name.lower(): each for each in columns}
    column = by_name.get(wanted.column.text.lower())
    if column is None:
        name = wanted.column.text[:80]
        problem = f"the watermark of `{source}` is for `{name}`, no column of it"
        hint = nearest(wanted.column.text, [each.name for each in columns])
        report.add(wanted.column.where, problem, hint)
        return None
    if column.type not in TIMESTAMPS:
        problem = f"event time `{column.name}` of `{source}` is of type {column.type}"
        report.add(wanted.column.where, problem, "it has to be TIMESTAMP")
    delay = wanted.delay_micros
    if delay is None:
        delay = traits.delay_micros
    elif option and delay != traits.delay_micros:
        problem = (
            f"the watermark of `{source}` lags by {spelled(delay)}, "
            f"and `{option}` says {spelled(traits.delay_micros)}"
        )
        report.add(place, problem, "leave one of the two out")
    return WatermarkSpec(column.name, delay, max_ahead)


def _max_ahead(options: Options, report: Report) -> int | None:
    try:
        return read_max_ahead(options.values.get(MAX_AHEAD))
    except ValueError as error:
        report.add(options.places.get(MAX_AHEAD, options.where), str(error))
        return DEFAULT_MAX_AHEAD
