"""What a PostgreSQL source of changes adds to the columns that its author declares."""

from __future__ import annotations

from collections.abc import Mapping

from laminar_dagster.config.connectors import SourceTraits
from laminar_dagster.sources.changes.traits import change_traits


def postgres_cdc_traits(options: Mapping[str, str]) -> SourceTraits:
    """The columns that its options add."""
    is_whole = options.get("before") == "required"
    return change_traits(options, "" if is_whole else "before = 'required'")
