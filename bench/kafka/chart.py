"""Bar charts as SVG, written by hand: no library for a few rectangles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from bench.kafka.standing import Standing

_LETTER: Final = 7
_BARS: Final = 250
_NUMBERS: Final = 80
_ROW: Final = 30
_BAR: Final = 18
_TOP: Final = 84
_MARGIN: Final = 16
_OWN: Final = "#2563eb"
_PEER: Final = "#94a3b8"
_STYLE: Final = (
    "text{font-family:system-ui,sans-serif;font-size:13px;fill:#334155}"
    ".title{font-size:16px;font-weight:600;fill:#0f172a}.quiet{fill:#64748b;font-size:12px}"
)


@dataclass(frozen=True, slots=True)
class Bar:
    """One row: a label, and a number for each panel."""

    label: str
    values: tuple[float, ...]
    is_own: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """A column of bars.

    Attributes:
        heading: With the unit, and whether more is better.
        digits: After the point.
    """

    heading: str
    digits: int = 0


PANELS: Final = (
    Panel("thousand records/s (more is better)"),
    Panel("CPU s per million records (less is better)", digits=1),
)


def draw(title: str, subtitle: str, panels: Sequence[Panel], bars: Sequence[Bar]) -> str:
    """The whole picture: one row for each bar, the panels side by side."""
    left = _MARGIN + _LETTER * max((len(bar.label) for bar in bars), default=0) + _MARGIN
    width = left + len(panels) * (_BARS + _NUMBERS) + _MARGIN
    height = _TOP + len(bars) * _ROW + _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>',
        _text(_MARGIN, 26, title, "title"),
        _text(_MARGIN, 46, subtitle, "quiet"),
        *_panels(left, panels, bars),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def of_standing(standing: Standing, title: str) -> str:
    """Rate and processor time of every entrant, the fastest first."""
    order = sorted(standing.turns, key=lambda each: -standing.rate(each).median)
    bars = [
        Bar(
            each.title,
            (standing.rate(each).median / 1000, standing.processor(each).median),
            each.is_own,
        )
        for each in order
    ]
    return draw(title, standing.what, PANELS, bars)


def _panels(start: int, panels: Sequence[Panel], bars: Sequence[Bar]) -> Iterator[str]:
    for row, bar in enumerate(bars):
        yield _text(_MARGIN, _TOP + row * _ROW + _BAR - 4, bar.label)
    for number, panel in enumerate(panels):
        left = start + number * (_BARS + _NUMBERS)
        yield _text(left, _TOP - 14, panel.heading, "quiet")
        longest = max((bar.values[number] for bar in bars), default=0.0) or 1.0
        for row, bar in enumerate(bars):
            value = bar.values[number]
            length = max(1.0, value / longest * _BARS)
            top = _TOP + row * _ROW
            fill = _OWN if bar.is_own else _PEER
            yield (
                f'<rect x="{left}" y="{top}" width="{length:.1f}" height="{_BAR}" '
                f'rx="2" fill="{fill}"/>'
            )
            yield _text(left + length + 6, top + _BAR - 4, f"{value:,.{panel.digits}f}")


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{attribute}>{escape(text)}</text>'
