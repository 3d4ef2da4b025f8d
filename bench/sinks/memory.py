"""How much memory an epoch takes, in a process of its own: what was used once is seldom given back.

Linux keeps the most that a process has had, and forgets it on request.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from bench.sinks.place import Place
from bench.sinks.rows import flat_rows, staged
from bench.sinks.writer import EpochWriter

_FEW: Final = 1_000
_PROCESS: Final = Path("/proc/self")
_FORGET_THE_MOST: Final = "5"


def bytes_per_row(place: Place, rows: int, *, plain: bool = False) -> float:
    """What an epoch of so many rows adds at the most, for each of them.

    Args:
        place: Where.
        rows: How many.
        plain: Whether the plain client writes them instead of the sink.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_growth, place, rows, plain).result() / rows


def _growth(place: Place, rows: int, plain: bool) -> int:
    tables = flat_rows(_FEW), flat_rows(rows)
    acts: list[Callable[[], object]]
    if plain:
        acts = [place.peers(table)[0].write for table in tables]
    else:
        writer = EpochWriter(place.sink())
        acts = [partial(writer.commit, staged(table)) for table in tables]
    first, second = acts
    # What is loaded with the first epoch is no row's.
    first()
    gc.collect()
    (_PROCESS / "clear_refs").write_text(_FORGET_THE_MOST)
    before = _status("VmRSS")
    second()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", (_PROCESS / "status").read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"the system does not tell {name}")
    return int(found[1]) * 1024
