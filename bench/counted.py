"""Rates of records that were counted: one that is missing, or one too many, is no figure."""

from __future__ import annotations

from bench.measure import Sample


def rate(taken: Sample, rows: int) -> Sample:
    """Records a second, of the seconds that each round took."""
    return Sample(tuple(rows / each for each in taken.values))


def require_count(found: int, rows: int) -> None:
    """Refuse a round that did not see every record once.

    Raises:
        ValueError: It did not.
    """
    if found != rows:
        raise ValueError(f"{found} records, and there are {rows}")
