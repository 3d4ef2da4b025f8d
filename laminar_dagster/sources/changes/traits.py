"""Which columns a source of changes adds, by its options.

``_op`` and ``_weight`` are columns of every one. ``SELECT *`` leaves ``_op`` out: what happened to
a row is no part of it, and a row that is taken back has another ``_op`` than when it came.
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

    Odd values are for the adapter to refuse.

    Args:
        options: ``tables`` and ``include.metadata`` are looked at.
        lacks_retractions: See ``SourceTraits``.
    """
    added: tuple[Column, ...] = ()
    hidden = HIDDEN
    if options.get("include.metadata", "").lower() == "true":
        added, hidden = _METADATA, frozenset()
    elif "," in options.get("tables", ""):
        # Rows of several tables have to be told apart.
        added = _TABLES
    return SourceTraits(
        columns=(*added, *CHANGE),
        hidden=hidden,
        lacks_retractions=lacks_retractions,
        # A new snapshot after a gap has rows that were given out already.
        replaces_rows=bool(lacks_retractions) or options.get("on_gap", "").lower() == "snapshot",
        enforces_keys=True,
    )
