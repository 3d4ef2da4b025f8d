"""The input: what four web servers logged, the same for the same seed, made without a loop.

Clicks of a server come up to eight seconds out of order, which its watermark allows. Besides, there
are stragglers that come too late, lines that were sent twice, and lines that are no clicks at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

SERVERS: Final = ("a", "b", "c", "d")
FEWEST_EVENTS: Final = 10_000
# A server's file is made in memory, with 32-bit offsets.
MOST_EVENTS: Final = 50_000_000

_BEGIN: Final = np.datetime64("2026-01-01T09:00:00", "us")
# A million events are two hours.
_MICROS_APART: Final = 28_800
_MOST_DISORDER: Final = 8_000_000
# Beyond the ten seconds of the watermark, from whatever the clicks before were displaced by.
_STRAGGLER: Final = (30_000_000, 600_000_000)
# Nobody can be late as long as there is nobody before.
_ORDERLY_BEGINNING: Final = 500
_MOST_LINES_TO_REPEAT: Final = 50

_STRAGGLERS_IN: Final = 200
_REPEATED_IN: Final = 250
_BROKEN_IN: Final = 1_000

# `/Sale` and `/sale` are one page to the pipeline.
_PAGES: Final = (
    "/", "/search", "/sale", "/Sale", "/cart", "/checkout", "/help", "/login",
    *(f"/product/{number}" for number in range(1, 33)),
)  # fmt: skip
_CHECKOUT: Final = _PAGES.index("/checkout")
_AGENTS: Final = ("browser", "app", "bot")
_BOT: Final = _AGENTS.index("bot")
_BROKEN: Final = (
    '{"user_id":17,"page":"/cart","agent":"brow',
    '203.0.113.9 - - "GET /cart HTTP/1.1" 200 5316',
    '["/cart", 17]',
    '{"user_id":"nobody","page":"/","agent":"app","load_ms":80,"ts":"2026-01-01T09:30:00Z"}',
    '{"user_id":17,"page":null,"agent":"app","load_ms":80,"ts":"2026-01-01T09:30:00Z"}',
    '{"user_id":17,"page":"/help","agent":"app","load_ms":80,"ts":"yesterday"}',
    '{"user_id":17,"page":"/help","agent":"app","load_ms":80}',
)

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Written:
    """What the generator knows of the lines that it wrote.

    Attributes:
        repeated: Lines that are copies of an earlier one. Each is an event like any other.
        filtered: On time, and of a crawler.
        late: Stragglers.
        broken: Lines that are no clicks.
    """

    events: int
    repeated: int
    filtered: int
    late: int
    broken: int

    @property
    def processed(self) -> int:
        """On time, and of a person."""
        return self.events - self.filtered - self.late - self.broken

    def __add__(self, other: Written) -> Written:
        """Both together."""
        return Written(
            *(getattr(self, each.name) + getattr(other, each.name) for each in fields(self))
        )


def write(
    folder: Path, events: int, seed: int = 7, progress: Callable[[str], None] = lambda _server: None
) -> Written:
    """Write a file for each server, and tell what is in them.

    Args:
        folder: Where; it is made.
        events: How many lines, over all servers.
        seed: Of all that is random.
        progress: Told the name of each server before its file is written.
    """
    folder.mkdir(parents=True)
    total = Written(0, 0, 0, 0, 0)
    for place, server in enumerate(SERVERS):
        progress(server)
        # Equal to within a line, so that all come to their ends in the same epoch.
        count = (events + place) // len(SERVERS)
        lines, written = _server(np.random.default_rng((seed, place)), count)
        _, offsets, text = lines.buffers()
        end = int(np.frombuffer(offsets, np.int32)[count])
        (folder / f"server-{server}.ndjson").write_bytes(memoryview(text)[:end])
        total += written
    return total


def _server(chance: np.random.Generator, count: int) -> tuple[pa.Array, Written]:
    late, repeated, broken = _odd_places(chance, count)
    micros = np.arange(count) * _MICROS_APART - chance.integers(0, _MOST_DISORDER, count)
    micros[late] -= chance.integers(*_STRAGGLER, len(late))
    agents = chance.choice(len(_AGENTS), count, p=(0.7, 0.24, 0.06))
    clicks = _clicks(chance, micros, agents)

    # Each line is one of these: a click, or one of the broken ones after them.
    pool = pa.concat_arrays([clicks, pa.array([f"{line}\n" for line in _BROKEN])])
    chosen = np.arange(count)
    originals = repeated - chance.integers(1, _MOST_LINES_TO_REPEAT, len(repeated))
    is_ordinary = np.ones(count, bool)
    is_ordinary[np.concatenate([late, repeated, broken])] = False
    repeated, originals = repeated[is_ordinary[originals]], originals[is_ordinary[originals]]
    chosen[repeated] = originals
    is_on_time = np.ones(count, bool)
    is_on_time[np.concatenate([late, broken])] = False
    bots = int(np.count_nonzero(agents[chosen[is_on_time]] == _BOT))
    chosen[broken] = count + np.arange(len(broken)) % len(_BROKEN)
    return pool.take(pa.array(chosen)), Written(count, len(repeated), bots, len(late), len(broken))


def _odd_places(chance: np.random.Generator, count: int) -> tuple[Places, Places, Places]:
    """Where stragglers, repeated lines and broken ones stand. No place is two of them."""
    places = _ORDERLY_BEGINNING + chance.permutation(count - _ORDERLY_BEGINNING)
    sizes = [count // each for each in (_STRAGGLERS_IN, _REPEATED_IN, _BROKEN_IN)]
    late, repeated, broken, _ = np.split(places, np.cumsum(sizes))
    return np.sort(late), np.sort(repeated), np.sort(broken)


def _clicks(chance: np.random.Generator, micros: Places, agents: Places) -> pa.Array:
    count = len(micros)
    pages = (len(_PAGES) * chance.random(count) ** 2).astype(np.int64)
    cents = chance.integers(100, 20_000, count)
    amounts = pc.if_else(
        pa.array(pages == _CHECKOUT),
        pc.binary_join_element_wise(
            _text(cents // 100), pc.utf8_lpad(_text(cents % 100), 2, "0"), "."
        ),
        "null",
    )
    return pc.binary_join_element_wise(
        '{"user_id":',
        _text(chance.integers(1, 50_000, count)),
        ',"page":"',
        pa.array(_PAGES).take(pa.array(pages)),
        '","agent":"',
        pa.array(_AGENTS).take(pa.array(agents)),
        '","load_ms":',
        _text(chance.gamma(2, 60, count).astype(np.int64)),
        ',"amount":',
        amounts,
        ',"ts":"',
        _timestamps(micros),
        'Z"}\n',
        "",
    )


def _timestamps(micros: Places) -> pa.Array:
    millis = (_BEGIN + micros.astype("timedelta64[us]")).astype("datetime64[ms]")
    # As `strftime` would spell them, in a sixth of the time.
    return pc.replace_substring(pa.array(millis).cast(pa.string()), " ", "T")


def _text(numbers: Places) -> pa.Array:
    return pa.array(numbers).cast(pa.string())
