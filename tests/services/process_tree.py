"""The processes of a machine, as every account of it can see them."""

from __future__ import annotations

import os
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Final

PROCESSES: Final = Path("/proc")
_LISTENS: Final = "0A"


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


def listening(pid: int) -> set[str]:
    """The addresses at which a process waits for connections; without ports."""
    with suppress(FileNotFoundError, ProcessLookupError):
        held = {os.readlink(each) for each in (PROCESSES / str(pid) / "fd").iterdir()}
        tables = [(PROCESSES / str(pid) / "net" / name).read_text() for name in ("tcp", "tcp6")]
        rows = [line.split() for table in tables for line in table.splitlines()[1:]]
        return {
            _address(row[1].partition(":")[0])
            for row in rows
            if row[3] == _LISTENS and f"socket:[{row[9]}]" in held
        }
    return set()


def _address(text: str) -> str:
    """As the kernel shows it: words of four bytes, each with its last byte first."""
    words = [bytes.fromhex(text[place : place + 8])[::-1] for place in range(0, len(text), 8)]
    found = ip_address(b"".join(words))
    return str(getattr(found, "ipv4_mapped", None) or found)


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
