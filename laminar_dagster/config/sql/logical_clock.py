"""``epoch_time()``, the epoch's logical clock: where it is refused, and its value for Spark.

A row that was emitted in one epoch is retracted in a later one, which has another time. Anything
computed from the row and the clock would differ: the retraction would be in another group, or pass
a filter that the row did not pass, and the row would stay for ever. Without retractions each row is
computed once, in one epoch, so the clock is allowed.
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
    """Spark SQL with every ``epoch_time()`` replaced by a value, except in string literals."""
    pieces: list[str] = []
    done = 0
    for start, end in _calls(text):
        pieces += [text[done:start], value]
        done = end
    return "".join([*pieces, text[done:]])


def _calls(text: str) -> Iterator[tuple[int, int]]:
    """The start and end of every ``epoch_time()`` in a text."""
    if LOGICAL_CLOCK not in text.lower():
        return
    tokens = StreamDialect().tokenize(text)
    for name, opening, closing in zip(tokens, tokens[1:], tokens[2:], strict=False):
        is_name = name.token_type in (TokenType.VAR, TokenType.IDENTIFIER)
        kinds = opening.token_type, closing.token_type
        if is_name and name.text.lower() == LOGICAL_CLOCK:
            if kinds == (TokenType.L_PAREN, TokenType.R_PAREN):
                yield name.start, closing.end + 1
