"""A process of its own that looks at both sinks, again and again, while others write to them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.proof.answer import Rows
from tests.integration.proof.processes import forkserver
from tests.integration.proof.published import read_lake, read_minutes


@dataclass(frozen=True)
class Seen:
    """What one look at one sink showed."""

    sink: str
    ledger: int
    rows: str


def digest(rows: Rows) -> str:
    """Of a multiset of rows."""
    return hashlib.sha256("\n".join(sorted(map(repr, rows.elements()))).encode()).hexdigest()


@contextmanager
def watching(root: Path) -> Iterator[list[Seen]]:
    """Look while the block runs; what was seen is in the list when it ends."""
    notes, stop = root / "seen.jsonl", root / "stop"
    process = forkserver().Process(target=_watch, args=(root, notes, stop), daemon=True)
    process.start()
    seen: list[Seen] = []
    try:
        yield seen
        stop.touch()
        process.join(60)
        assert process.exitcode == 0, "the reader has failed"
        seen += [Seen(**json.loads(line)) for line in notes.read_text().splitlines()]
    finally:
        process.kill()


def _watch(root: Path, notes: Path, stop: Path) -> None:
    with notes.open("w") as out:
        while not stop.exists():
            for sink, read in (("minutes", read_minutes), ("lake", read_lake)):
                ledger, rows = read(root)
                note = {"sink": sink, "ledger": ledger, "rows": digest(rows)}
                out.write(json.dumps(note) + "\n")
            time.sleep(0.03)
