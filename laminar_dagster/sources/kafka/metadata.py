"""The names of the columns that a Kafka source adds to the declared ones."""

from __future__ import annotations

from typing import Final

TOPIC: Final = "_topic"
PARTITION: Final = "_partition"
OFFSET: Final = "_offset"
TIMESTAMP: Final = "_timestamp"
KEY: Final = "_key"
HEADERS: Final = "_headers"

NAMES: Final = (TOPIC, PARTITION, OFFSET, TIMESTAMP, KEY, HEADERS)
