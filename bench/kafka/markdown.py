"""The table of a contest, as it stands in the documentation."""

from __future__ import annotations

from collections.abc import Iterator

from bench.kafka.standing import Standing

_HEADINGS = (
    "system",
    "records/s",
    "times the best peer",
    "CPU s per million records",
    "broker's CPU s",
    "whole process, cold",
)


def table(standing: Standing) -> str:
    """Markdown; the fastest first."""
    return "\n".join(_lines(standing)) + "\n"


def _lines(standing: Standing) -> Iterator[str]:
    yield f"**{standing.name}**: {standing.what}"
    yield ""
    yield f"| {' | '.join(_HEADINGS)} |"
    yield f"|---|{'---:|' * (len(_HEADINGS) - 1)}"
    best = standing.best_peer
    for entrant in sorted(standing.turns, key=lambda each: -standing.rate(each).median):
        rate = standing.rate(entrant)
        cells = [
            f"**{entrant.title}**" if entrant.is_own else entrant.title,
            f"{rate.median:,.0f} ± {rate.spread:,.0f}",
            f"{rate.over(standing.rate(best)):.2f}" if best else "-",
            f"{standing.processor(entrant).median:.2f}",
            f"{standing.broker(entrant).median:.2f}",
            f"{standing.whole(entrant).median:.1f} s",
        ]
        yield f"| {' | '.join(cells)} |"
    for entrant in standing.failures:
        yield f"| {entrant.title} | not measured |{' - |' * (len(_HEADINGS) - 2)}"
