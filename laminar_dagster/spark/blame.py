"""Error translation: Spark's errors about a query, as this package's ``InvalidConfig``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.errors import AnalysisException, ParseException

from laminar_dagster.config.model import View
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.spark.aggregate_types import WrongType

# The error class before a message of Spark and the SQLSTATE after it: noise for people.
_CODES: Final = re.compile(r"^\[[A-Z_.0-9]+\] | SQLSTATE: \w+.*$")


@contextmanager
def blaming(view: View) -> Iterator[None]:
    """Raise Spark's errors about a query as ``InvalidConfig`` at the query's place in its file."""
    try:
        yield
    except (AnalysisException, ParseException, WrongType) as error:
        raise InvalidConfig(str(view.place), gist(error), "mend the query") from None


def gist(error: Exception) -> str:
    """The line of Spark's message that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # A traceback of a Python worker ends with the error; Spark's own messages begin with it.
    line = lines[-1] if "Traceback (most recent call last):" in lines else lines[0]
    return _CODES.sub("", line)
