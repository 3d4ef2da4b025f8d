"""Messages side by side in one buffer, as a Kafka reader hands them to a decoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

from laminar_dagster.sources.formats.records import Outcome, Records

GAP = b"\xff\x80\xff"
FIRST_POSITION = 100


def records_of(messages: Sequence[bytes]) -> Records:
    """Messages with bytes between them that belong to none."""
    lengths = np.array([len(each) for each in messages], np.int64)
    ends = np.cumsum(lengths + len(GAP))
    return Records(
        data=GAP + b"".join(each + GAP for each in messages),
        starts=ends - lengths,
        ends=ends.astype(np.int64),
        positions=np.arange(FIRST_POSITION, FIRST_POSITION + len(messages), dtype=np.int64),
        are_lines=False,
    )


@contextmanager
def few_lanes(module: ModuleType, number: int) -> Iterator[None]:
    """Walk so many records one by one; with 0, all in rounds."""
    usual = module.FEW_LANES
    module.FEW_LANES = number  # type: ignore[attr-defined]
    try:
        yield
    finally:
        module.FEW_LANES = usual  # type: ignore[attr-defined]


def by_place(found: Outcome) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
    """The rows and the reasons, by the place of the message; each message is one of both."""
    places = (found.positions - FIRST_POSITION).tolist()
    rows = dict(zip(places, _python(found.rows), strict=True))
    reasons = {each.position - FIRST_POSITION: each.reason for each in found.bad}
    assert not rows.keys() & reasons.keys()
    found.rows.validate(full=True)
    return rows, reasons


def _python(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    try:
        listed: list[dict[str, Any]] = rows.to_pylist()
        return listed
    except OverflowError:
        # Arrow knows years that Python's datetime does not.
        if rows.num_rows == 1:
            return [{"beyond": "datetime"}]
        return [_python(rows.slice(place, 1))[0] for place in range(rows.num_rows)]


def same(one: Any, two: Any) -> bool:
    """Equality for which NaN is NaN, and zero is not minus zero."""
    return _spelt(one) == _spelt(two)


def _spelt(value: Any) -> str:
    return repr(value).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")
