"""The processor time and the memory of a process and all that descend from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.spark_watch import Process, parse_stat


def seconds_of(root: int) -> float:
    """Processor seconds of a process, its descendants, and those of them that have ended."""
    return sum_up(_processes(), root)


def sum_up(processes: Mapping[int, Process], root: int) -> float:
    """The same, of processes that were looked at before."""
    tree: set[int] = set()
    found = {root} & processes.keys()
    while found:
        tree |= found
        found = {number for number, each in processes.items() if each.parent in found} - tree
    # A process that was waited for is in the time of whoever waited.
    return sum(processes[number].own + processes[number].ended_children for number in tree)


def _processes() -> dict[int, Process]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(path.parent.name)] = parse_stat(path.read_text())
        except OSError:
            # It has ended meanwhile.
            continue
    return found
