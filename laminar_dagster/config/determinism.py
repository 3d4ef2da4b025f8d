"""Functions whose result may differ when an epoch is run again.

An epoch that is redone after a crash, or re-run by ``laminar verify``, has to compute the same from
the same input. Three kinds of function break this: those that read the wall clock, those that are
random, and those with side effects or that depend on the surroundings (the session, the partition
a row happens to be in, a Java method). In Python there are two more: state kept between calls, and
functions of several rows, since batches differ from run to run. ``epoch_time()`` is the safe clock:
it returns the epoch's logical time, which is stored in its plan.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

DeterminismKind = Literal["wall_clock", "random", "side_effect", "hidden_state", "other_rows"]

WALL_CLOCK: Final = frozenset(
    {
        "curdate",
        "current_date",
        "current_time",
        "current_timestamp",
        "localtimestamp",
        "now",
    }
)
RANDOM: Final = frozenset(
    {
        "monotonically_increasing_id",
        "rand",
        "randn",
        "random",
        "randstr",
        "shuffle",
        "uniform",
        "uuid",
    }
)
SIDE_EFFECT: Final = frozenset(
    {
        "current_catalog",
        "current_database",
        "current_path",
        "current_schema",
        "current_timezone",
        "current_user",
        "input_file_block_length",
        "input_file_block_start",
        "input_file_name",
        "java_method",
        "reflect",
        "session_user",
        "spark_partition_id",
        "try_reflect",
        "user",
        "version",
    }
)

# Spark reads these texts relative to the current time when it casts a constant to a date or
# timestamp.
MOVING_TIMES: Final = frozenset({"now", "today", "tomorrow", "yesterday"})
# Such a text, with an optional zone: ``today``, ``Today UTC``, ``today+01:00``.
_MOVING_TIME: Final = re.compile(r"([a-z]+)[ \t]*[\w+\-:/]*", re.ASCII | re.IGNORECASE)

_TRIMMED: Final = "".join(map(chr, range(33)))
_WITH_IV: Final = 5

_REASONS: Final[Mapping[DeterminismKind, str]] = {
    "wall_clock": "reads the wall clock",
    "random": "is random",
    "side_effect": "depends or acts on something outside the data",
    "hidden_state": "is kept from one call to the next",
    "other_rows": "depends on which rows come together",
}
_SUGGESTIONS: Final[Mapping[DeterminismKind, str]] = {
    "wall_clock": "use event time, or epoch_time() for the epoch's logical clock",
    "random": "derive it from the data, for example with xxhash64()",
    "side_effect": "move it to a connector, or put what it gives into the data",
    "hidden_state": "keep it in the state of a @keyed_operator",
    "other_rows": "treat each row by itself, or use a @keyed_operator or SQL",
}


@dataclass(frozen=True, slots=True)
class DeterminismWarning:
    """A call that is not deterministic.

    Attributes:
        operator_id: The view it stands in.
        call: The call as written, shortened.
        where: ``file:line:column``.
        instead: A suggestion in place of the general one for its kind.
    """

    kind: DeterminismKind
    operator_id: str
    call: str
    where: str
    instead: str = ""

    @property
    def problem(self) -> str:
        """What is wrong."""
        reason = _REASONS[self.kind]
        return f"`{self.call}` {reason}, so view `{self.operator_id}` is not deterministic"

    @property
    def suggestion(self) -> str:
        """What to write instead."""
        return f"{self.instead or _SUGGESTIONS[self.kind]}; or allow it with `determinism: warn`"


def kind_of_call(name: str, arguments: Collection[str | None]) -> DeterminismKind | None:
    """Why a call is not deterministic; None if it is.

    Args:
        name: The function, in lower case.
        arguments: The value of each argument that is a string literal; None for any other.
    """
    if name in WALL_CLOCK or (name == "unix_timestamp" and not arguments):
        return "wall_clock"
    if name in RANDOM or (name == "aes_encrypt" and _draws_a_vector(arguments)):
        return "random"
    return "side_effect" if name in SIDE_EFFECT else None


def is_moving_time(text: str) -> bool:
    """Whether Spark reads a text as a time relative to now: ``now``, ``today UTC``."""
    # Spark trims like Java: all control characters, not only spaces.
    found = _MOVING_TIME.fullmatch(text.strip(_TRIMMED))
    return found is not None and found[1].lower() in MOVING_TIMES


def _draws_a_vector(arguments: Collection[str | None]) -> bool:
    """Whether ``aes_encrypt`` draws its initialisation vector at random."""
    given = tuple(arguments)
    mode = given[2] if len(given) > 2 else "GCM"
    return len(given) < _WITH_IV and (mode is None or mode.upper() != "ECB")
