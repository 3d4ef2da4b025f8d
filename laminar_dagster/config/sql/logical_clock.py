"""``epoch_time()``, the epoch's logical clock: where it may not stand, and what Spark is given.

A row that was put out in one epoch is taken back in a later one, with another time. What is
computed of it by the clock would differ: the row that is taken back would be in another group, or
pass a filter that it did not pass before, and the first would stay for ever. Over records that only
come, and in what is kept of them, the clock stands still.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from sqlglot import TokenType

from laminar_dagster.config.sql.dialect import StreamDialect
from laminar_dagster.config.sql.functions import LOGICAL_CLOCK
from laminar_dagster.config.sql.refusal import Refusal

_WHY: Final = "would have another time when a row is taken back, which would then stay for ever"

CLOCKS: Final[Mapping[str, Refusal]] = {
    "weighed": Refusal(
        "epoch_time() over rows that may be taken back",
        "use it where records come in, before they are grouped or joined; or over the rows that "
        "came alone: FROM (SELECT … WHERE _weight = 1); or over a log of what came and went: FROM "
        "(SELECT …, _weight AS way FROM …)",
        example="SELECT page, n, epoch_time() AS seen, _weight FROM "
        "(SELECT page, COUNT(*) AS n FROM clicks GROUP BY page) "
        "EMIT CHANGES WITH (state.ttl = 'unbounded')",
        why=_WHY,
    ),
    "changing": Refusal(
        "epoch_time() beside groups that change",
        "use it in WHERE, in GROUP BY or inside an aggregate, such as MAX(epoch_time()); what it "
        "is to be compared with, such as MAX(ts), put out, and compare when you read the sink; "
        "state.ttl forgets groups that are old",
        example="SELECT page, COUNT(*) AS n FROM clicks GROUP BY page "
        "HAVING MAX(ts) > epoch_time() - INTERVAL '1' DAY "
        "EMIT CHANGES WITH (state.ttl = 'unbounded')",
        why=_WHY,
    ),
    "pairs": Refusal(
        "epoch_time() in a condition on both sides of a join whose rows may be taken back",
        "use it in a condition on one side, where records come in",
        example="SELECT a.page FROM clicks a JOIN clicks b ON a.user_id = b.user_id "
        "AND a.amount + b.amount > minute(epoch_time()) "
        "EMIT CHANGES WITH (state.ttl = '1d')",
        why=_WHY,
    ),
}


def reads_clock(text: str) -> bool:
    """Whether Spark SQL calls ``epoch_time()``."""
    return next(_calls(text), None) is not None


def with_clock(text: str, value: str) -> str:
    """Spark SQL with a value in place of every ``epoch_time()``; texts in quotes stay."""
    pieces: list[str] = []
    done = 0
    for start, end in _calls(text):
        pieces += [text[done:start], value]
        done = end
    return "".join([*pieces, text[done:]])


def _calls(text: str) -> Iterator[tuple[int, int]]:
    """Where ``epoch_time()`` stands in a text: from, and to."""
    if LOGICAL_CLOCK not in text.lower():
        return
    tokens = StreamDialect().tokenize(text)
    for name, opening, closing in zip(tokens, tokens[1:], tokens[2:], strict=False):
        is_name = name.token_type in (TokenType.VAR, TokenType.IDENTIFIER)
        kinds = opening.token_type, closing.token_type
        if is_name and name.text.lower() == LOGICAL_CLOCK:
            if kinds == (TokenType.L_PAREN, TokenType.R_PAREN):
                yield name.start, closing.end + 1
