"""The columns that a source of changes adds to those that its author declares.

The rows are those of Debezium's envelopes over Kafka, so the same views run on either::

    insert    c   one row of ``_weight`` +1
    snapshot  r   one row of ``_weight`` +1
    delete    d   the row as it was, of ``_weight`` -1
    update    u   the row as it was with -1, then the row as it is with +1
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

WEIGHT: Final = "_weight"
OP: Final = "_op"
TABLE: Final = "_table"
POSITION: Final = "_position"
TIMESTAMP: Final = "_timestamp"

NAMES: Final = frozenset({OP, TABLE, POSITION, TIMESTAMP, WEIGHT})


def declared(schema: pa.Schema) -> list[pa.Field]:
    """The columns of the tables themselves."""
    return [each for each in schema if each.name not in NAMES]
