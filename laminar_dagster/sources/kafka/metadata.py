"""The names of the columns that a Kafka source adds to the declared ones."""

from __future__ import annotations

from typing import Final

TOPIC: Final = "_topic"
PARTITION: Final = "_partition"
OFFSET: Final = "_offset"
TIMESTAMP: Final = "_timestamp"
KEY: Final = "_key"
HEADERS: Final = "_headers"
# Of a stream of changes: 1 for a row that came, -1 for one that is taken back.
WEIGHT: Final = "_weight"

NAMES: Final = (TOPIC, PARTITION, OFFSET, TIMESTAMP, KEY, HEADERS)
