"""The metadata columns that a PostgreSQL change source (CDC) adds, by its options."""

from __future__ import annotations

from collections.abc import Mapping

from laminar_dagster.config.connectors import SourceTraits
from laminar_dagster.sources.changes.traits import change_traits


def postgres_cdc_traits(options: Mapping[str, str]) -> SourceTraits:
    """The metadata columns that the options add."""
    is_whole = options.get("before") == "required"
    return change_traits(options, "" if is_whole else "before = 'required'")
