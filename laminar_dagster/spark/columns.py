"""The columns that the engine adds to those of a relation.

They begin with an underscore, as an author's columns do not. Those that a connector adds do, and
have other names than these.
"""

from __future__ import annotations

from typing import Final

# Which partition of a source, or bucket of a state, a row belongs to.
PART: Final = "_part"
# Not null: no record, but a report on its way to the driver.
CONTROL: Final = "_control"
# False: a filter dropped it; it travels on to be counted.
KEEP: Final = "_keep"
# How late a record is, in microseconds, in a scan that hands on late ones.
LATE: Final = "_late"
# Event time, and the end of a window, in microseconds.
TIME: Final = "_time"
END: Final = "_end"
# The bucket of a key, and the order of the partials of one partition.
BUCKET: Final = "_bucket"
SEQUENCE: Final = "_sequence"
# The hash of a key, by which its state is found, and the times of its first and its last event.
HASH: Final = "_hash"
FIRST: Final = "_first"
LAST: Final = "_last"
# Of which side of a join a row is: 0 for the left, 1 for the right; and of which sides one that
# comes out has columns: 1 for the left, 2 for the right, 3 for both.
SIDE: Final = "_side"
SIDES: Final = "_sides"
# The generation in which a row of a state began: see ``core.additions``.
SINCE: Final = "_since"
# Not null: a partial that was made where the record was read, of the operator of that number.
EARLY: Final = "_early"


def quoted(name: str) -> str:
    """A column's name for Spark SQL, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def unquoted(text: str) -> str:
    """The name of a column that stands alone in Spark SQL, quoted or not."""
    return text[1:-1].replace("``", "`") if text.startswith("`") else text
