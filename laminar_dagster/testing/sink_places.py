"""Test fixtures of the ``Sink`` contract: the place under test, and staged output to commit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol

from laminar_dagster.core import layout
from laminar_dagster.core.errors import RetryError, UnknownOutcome
from laminar_dagster.core.ids import EpochNumber, FileName, SinkId
from laminar_dagster.core.manifest import FileEntry, SinkEntry
from laminar_dagster.core.ports import ArrowSchema, Sink, StagedOutput
from laminar_dagster.testing.crash import Crash

Row = tuple[int, str]
# The key may be null, which a view can produce by mistake.
StagedRow = tuple[int | None, str]
Mode = Literal["append", "upsert"]
Files = tuple[bytes, ...]

TABLE: Final = SinkId("table")
OTHER: Final = SinkId("other")


class SinkPlace(Protocol):
    """Where a test's sinks write: a database, a folder. Empty at first; pickles."""

    def open(self, sink_id: SinkId, mode: Mode) -> Sink:
        """A new instance that shares nothing with others but the place.

        Its rows have the columns ``key`` (a 64-bit integer) and ``value`` (text); ``key`` is the
        key of mode upsert. It should not wait for a lock for more than a few seconds.
        """
        ...

    def read(self, sink_id: SinkId) -> list[Row]:
        """All rows of a sink at one moment, in any order, as an independent client sees them.

        Empty while there is no table.
        """
        ...

    def encode(self, rows: Sequence[StagedRow], weights: Sequence[int] | None) -> bytes:
        """A staged file; with weights, it has a column ``_weight``. A key may be null."""
        ...

    def columns(self) -> ArrowSchema:
        """The columns of such a file, without ``_weight``."""
        ...


def staged(
    place: SinkPlace,
    *files: Sequence[StagedRow],
    sink: SinkId = TABLE,
    joined_at: int = 1,
    weights: Sequence[Sequence[int]] | None = None,
) -> StagedOutput:
    """Staged output for a sink to commit: one file per sequence of rows."""
    each_weights: Sequence[Sequence[int] | None] = weights or [None] * len(files)
    data = tuple(place.encode(rows, each) for rows, each in zip(files, each_weights, strict=True))
    return staged_bytes(data, [len(rows) for rows in files], sink, joined_at)


def staged_bytes(
    files: Files, rows: Sequence[int], sink: SinkId = TABLE, joined_at: int = 1
) -> StagedOutput:
    """Staged output of files that are encoded already, with the row count of each."""
    entries = tuple(
        FileEntry(
            path=layout.staged_path(sink, FileName(f"part-{number:05d}")),
            size_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            rows=count,
        )
        for number, (data, count) in enumerate(zip(files, rows, strict=True))
    )
    contents = {entry.path: data for entry, data in zip(entries, files, strict=True)}
    digest = hashlib.sha256(b"".join(files)).hexdigest()
    entry = SinkEntry(
        sink_id=sink, joined_at=EpochNumber(joined_at), files=entries, output_sha256=digest
    )
    return StagedOutput(entry, lambda file: contents[file.path])


def crash_at(output: StagedOutput, place: int) -> Callable[[FileEntry], bytes]:
    """A ``read`` for ``StagedOutput`` that raises ``Crash`` at the file with index ``place``."""

    def read(file: FileEntry) -> bytes:
        if file == output.entry.files[place]:
            raise Crash
        return output.read(file)

    return read


def epoch_output(place: SinkPlace, epoch: int, rows: int) -> StagedOutput:
    """Staged output of two files, whose rows hold the number of their epoch."""
    made = [(epoch * 1_000_000 + number, str(epoch)) for number in range(rows)]
    return staged(place, made[: rows // 2], made[rows // 2 :])


def epochs_of(found: Sequence[Row], rows: int) -> list[int]:
    """The epochs found in a table; asserts that each is complete and not duplicated."""
    by_epoch: dict[int, list[int]] = {}
    for key, value in found:
        by_epoch.setdefault(int(value), []).append(key)
    for epoch, keys in by_epoch.items():
        assert sorted(keys) == [epoch * 1_000_000 + number for number in range(rows)]
    return sorted(by_epoch)


def insist(open_sink: Callable[[], Sink], epoch: EpochNumber, output: StagedOutput) -> None:
    """Commit as the runtime does, with retries after retryable errors and unknown outcomes."""
    for _ in range(50):
        try:
            open_sink().commit(epoch, output)
        except (RetryError, UnknownOutcome):
            continue
        return
    raise AssertionError("fifty tries were not enough")
