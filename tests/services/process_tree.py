"""The processes of a machine, as every account of it can see them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

PROCESSES: Final = Path("/proc")


def descendants(*roots: int) -> set[int]:
    """All processes below some, and the processes below those."""
    parents: dict[int, int] = {}
    for process in PROCESSES.glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            parents[int(process.name)] = int(fields[1])
    found = set(roots)
    while grown := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= grown
    return found - set(roots)


def command_line(pid: int) -> str:
    """What anybody can read; empty for a process that is gone."""
    return _text(pid, "cmdline")


def environment_of(pid: int) -> str:
    """What a process was started with, for the same account to read."""
    return _text(pid, "environ")


def _text(pid: int, name: str) -> str:
    try:
        return (
            (PROCESSES / str(pid) / name)
            .read_bytes()
            .replace(b"\0", b"\n")
            .decode(errors="replace")
        )
    except (FileNotFoundError, ProcessLookupError):
        return ""
