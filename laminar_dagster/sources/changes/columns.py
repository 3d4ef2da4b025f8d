"""The metadata columns that a change source (CDC) adds to the columns its author declares.

The rows are the same as those of Debezium envelopes over Kafka, so the same views run on either::

    insert    c   one row of ``_weight`` +1
    snapshot  r   one row of ``_weight`` +1
    delete    d   the old row, with ``_weight`` -1
    update    u   the old row with ``_weight`` -1, then the new row with +1
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
    """The fields of the source's tables, without the metadata columns."""
    return [each for each in schema if each.name not in NAMES]
