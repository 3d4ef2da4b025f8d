"""Committing, being refused, and what is to be found afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pytest

from infra.load import Deadline
from laminar_dagster.core.errors import WriteFailed
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import FileEntry
from laminar_dagster.core.ports import Sink, StagedOutput
from laminar_dagster.testing.sink_contract import Mode
from tests.integration.sinks.databases.place import DatabasePlace
from tests.unit.sinks.staging import staged

UPSERT: Final[dict[str, Any]] = {"mode": "upsert", "key": ("k",)}
WRITES: Final[dict[Mode, dict[str, Any]]] = {"append": {}, "upsert": UPSERT}
BOTH_MODES: Final = pytest.mark.parametrize("mode", [*WRITES])
ROWS: Final = pa.table({"k": pa.array([1, 2]), "v": pa.array(["a", "b"])})
QUICK: Final = {"lock": 1}
PATIENT: Final = {"lock": 20}


def sink_at(place: DatabasePlace, table: str = "t", **options: Any) -> Sink:
    """One that does not wait for a lock for long."""
    return place.sink(table, limits=QUICK, **options)


def commit(sink: Sink, epoch: int, *tables: pa.Table) -> None:
    sink.commit(EpochNumber(epoch), staged(*tables))


def refusal(sink: Sink, rows: pa.Table = ROWS, epoch: int = 1) -> str:
    """What a commit is refused with; nothing of it is there."""
    before = sink.ledger()
    with pytest.raises(WriteFailed) as caught:
        commit(sink, epoch, rows)
    assert sink.ledger() == before
    return str(caught.value)


def commit_numbered(sink: Sink, epoch: int) -> None:
    """An epoch whose rows tell its number."""
    sink.commit(EpochNumber(epoch), output(epoch))


def output(epoch: int) -> StagedOutput:
    """Four rows that tell their epoch, in three files."""
    return staged(
        *(
            pa.table({"k": [epoch * 10 + row for row in rows], "v": [str(epoch)] * len(rows)})
            for rows in ([0, 1], [2], [3])
        )
    )


def interrupted(epoch: int, act: Callable[[], object]) -> StagedOutput:
    """The same, with something that happens when the last file is wanted for the first time."""
    good = output(epoch)
    left = [act]

    def read(file: FileEntry) -> bytes:
        if file == good.entry.files[-1] and left:
            left.pop()()
        return good.read(file)

    return StagedOutput(good.entry, read)


def write_every_file_by_itself(patch: pytest.MonkeyPatch) -> None:
    """A file is written before the next but one is read."""
    patch.setattr("laminar_dagster.sinks.portions._BYTES_PER_STATEMENT", 1)


def expected(epochs: int) -> list[tuple[int, str]]:
    """All rows up to an epoch."""
    return [(epoch * 10 + row, str(epoch)) for epoch in range(1, epochs + 1) for row in range(4)]


def rows_in(place: DatabasePlace) -> list[tuple[Any, ...]]:
    return place.query("SELECT k, v FROM t ORDER BY k, v")


def until(holds: Callable[[], bool]) -> None:
    deadline = Deadline(30)
    while not holds():
        assert not deadline.is_over
        # Who looks at InnoDB's transactions more often is shown the same again.
        time.sleep(0.15)
