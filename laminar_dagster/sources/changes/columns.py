"""The columns that a source of changes adds to those that its author declares.

The rows are those of Debezium's envelopes over Kafka, so the same views run on either::

    insert    c   one row of ``_weight`` +1
    snapshot  r   one row of ``_weight`` +1
    delete    d   the row as it was, of ``_weight`` -1
    update    u   the row as it was with -1, then the row as it is with +1
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from laminar_dagster.config.connectors import SourceTraits
from laminar_dagster.config.model import Column

WEIGHT: Final = "_weight"
OP: Final = "_op"
TABLE: Final = "_table"
POSITION: Final = "_position"
TIMESTAMP: Final = "_timestamp"

ADDED: Final = (
    Column(OP, "string"),
    Column(TABLE, "string"),
    Column(POSITION, "string"),
    Column(TIMESTAMP, "timestamp"),
)
NAMES: Final = frozenset({WEIGHT, *(each.name for each in ADDED)})

_WEIGHTS: Final = (Column(WEIGHT, "tinyint"),)
_TABLES: Final = (Column(TABLE, "string"),)


def change_traits(options: Mapping[str, str], lacks_retractions: str = "") -> SourceTraits:
    """The columns that the options of a source of changes add.

    Odd values are for the adapter to refuse.

    Args:
        options: ``tables`` and ``include.metadata`` are looked at.
        lacks_retractions: See ``SourceTraits``.
    """
    added: tuple[Column, ...] = ()
    if options.get("include.metadata", "").lower() == "true":
        added = ADDED
    elif "," in options.get("tables", ""):
        # Rows of several tables have to be told apart.
        added = _TABLES
    return SourceTraits(columns=(*added, *_WEIGHTS), lacks_retractions=lacks_retractions)


def declared(schema: pa.Schema) -> list[pa.Field]:
    """The columns of the tables themselves."""
    return [each for each in schema if each.name not in NAMES]
