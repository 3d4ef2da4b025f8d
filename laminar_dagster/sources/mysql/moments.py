"""Converts dates and times, as the log encodes them, to days and microseconds."""

from __future__ import annotations

from typing import Final

import numpy as np

from laminar_dagster.sources.formats.binary.lanes import Body, Int64s, Mask

_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND


def big_endian(body: Body, starts: Int64s, size: int) -> Int64s:
    """Big-endian numbers of up to seven bytes, or of eight without the highest bit."""
    words = body.words[starts].byteswap() >> np.uint64(64 - 8 * size)
    return words.view(np.int64)


def days_of(body: Body, starts: Int64s) -> tuple[Int64s, Mask]:
    """Decode dates of three bytes: days since 1970, and which of them are zero dates."""
    packed = body.words[starts].view(np.int64) & 0xFFFFFF
    return _days(packed >> 9, packed >> 5 & 15, packed & 31)


def micros_of_datetime(body: Body, starts: Int64s, fraction: int) -> tuple[Int64s, Mask]:
    """Decode DATETIME: microseconds since 1970, and which values are zero dates."""
    packed = big_endian(body, starts, 5) - (1 << 39)
    months, clock = packed >> 22, packed & 0x1FFFF
    days, is_none = _days(months // 13, months % 13, packed >> 17 & 31)
    seconds = (clock >> 12) * 3600 + (clock >> 6 & 63) * 60 + (clock & 63)
    return days * _DAY + seconds * _SECOND + _fraction(body, starts + 5, fraction), is_none


def micros_of_timestamp(body: Body, starts: Int64s, fraction: int) -> tuple[Int64s, Mask]:
    """Decode TIMESTAMP: microseconds since 1970 in UTC, and which values are zero."""
    seconds = big_endian(body, starts, 4)
    micros = seconds * _SECOND + _fraction(body, starts + 4, fraction)
    return micros, micros == 0


def micros_of_time(body: Body, starts: Int64s, fraction: int) -> Int64s:
    """Decode TIME: microseconds, which may be negative."""
    extra = (fraction + 1) // 2
    packed = big_endian(body, starts, 3 + extra) - (0x800000 << 8 * extra)
    size, sign = np.abs(packed), np.sign(packed)
    whole, part = size >> 8 * extra, size & ((1 << 8 * extra) - 1)
    seconds = (whole >> 12 & 1023) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)
    micros: Int64s = sign * (seconds * _SECOND + part * 10 ** (6 - 2 * extra))
    return micros


def _fraction(body: Body, starts: Int64s, fraction: int) -> Int64s | int:
    size = (fraction + 1) // 2
    return big_endian(body, starts, size) * 10 ** (6 - 2 * size) if size else 0


def _days(years: Int64s, months: Int64s, days: Int64s) -> tuple[Int64s, Mask]:
    """Days since 1970 in the Gregorian calendar; zero dates have a month or a day of 0."""
    is_none = (months == 0) | (days == 0)
    # Years begin in March here, so that the leap day is the last one.
    shifted = years - (months <= 2)
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * ((months + 9) % 12) + 2) // 5 + days - 1
    total = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
    return np.where(is_none, 0, total), is_none
