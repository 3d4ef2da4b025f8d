"""The columns that the engine adds to those of a relation.

They begin with an underscore; columns of authors must not. Columns that a connector adds begin with
one too, and their names differ from these.
"""

from __future__ import annotations

from typing import Final

# The number of the source partition, or of the state bucket, that a row belongs to.
PART: Final = "_part"
# Not null: the row is no record, but a report (JSON) on its way to the driver.
CONTROL: Final = "_control"
# False: a filter dropped the record; it stays in the frame so that it is counted.
KEEP: Final = "_keep"
# How late a record is, in microseconds; only in scans that hand on late records.
LATE: Final = "_late"
# Event time, and the end of a window, in microseconds.
TIME: Final = "_time"
END: Final = "_end"
# The bucket of a key, and the position of a batch of partials within its partition.
BUCKET: Final = "_bucket"
SEQUENCE: Final = "_sequence"
# The hash of a key, by which its state is found, and the times of its first and its last event.
HASH: Final = "_hash"
FIRST: Final = "_first"
LAST: Final = "_last"
# The side of a join that a state row belongs to: 0 for the left, 1 for the right; and the sides
# that an output row has columns of: 1 for the left, 2 for the right, 3 for both.
SIDE: Final = "_side"
SIDES: Final = "_sides"
# The schema generation in which a state row began: see ``core.additions``.
SINCE: Final = "_since"
# Not null: the row is pre-aggregated by the scan, for the operator of that number.
EARLY: Final = "_early"


def quoted(name: str) -> str:
    """A column's name for Spark SQL, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def unquoted(text: str) -> str:
    """The name of a column that stands alone in Spark SQL, quoted or not."""
    return text[1:-1].replace("``", "`") if text.startswith("`") else text
