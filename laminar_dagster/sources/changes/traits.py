"""Which metadata columns a change source (CDC) adds, by its options.

``_op`` and ``_weight`` are always there. ``SELECT *`` leaves ``_op`` out: a row's retraction has
another ``_op`` than its insertion, so the two would not cancel out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from laminar_dagster.config.connectors import SourceTraits
from laminar_dagster.config.model import Column
from laminar_dagster.sources.changes.columns import OP, POSITION, TABLE, TIMESTAMP, WEIGHT

CHANGE: Final = (Column(OP, "string"), Column(WEIGHT, "tinyint"))
HIDDEN: Final = frozenset({OP})

_TABLES: Final = (Column(TABLE, "string"),)
_METADATA: Final = (*_TABLES, Column(POSITION, "string"), Column(TIMESTAMP, "timestamp"))


def change_traits(options: Mapping[str, str], lacks_retractions: str = "") -> SourceTraits:
    """The columns that the options of a source of changes add.

    Invalid values are left for the adapter to refuse.

    Args:
        options: Only ``tables`` and ``include.metadata`` decide the columns.
        lacks_retractions: See ``SourceTraits``.
    """
    added: tuple[Column, ...] = ()
    hidden = HIDDEN
    if options.get("include.metadata", "").lower() == "true":
        added, hidden = _METADATA, frozenset()
    elif "," in options.get("tables", ""):
        # Rows of several tables must be distinguishable.
        added = _TABLES
    return SourceTraits(
        columns=(*added, *CHANGE),
        hidden=hidden,
        lacks_retractions=lacks_retractions,
        # A new snapshot after a gap repeats rows that were emitted already.
        replaces_rows=bool(lacks_retractions) or options.get("on_gap", "").lower() == "snapshot",
        enforces_keys=True,
    )
