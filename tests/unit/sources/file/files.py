"""Directories of files for tests."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from laminar_dagster.config.model import Column
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import FilePosition, SourcePosition, SourceRange
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission, DecodedChunk
from laminar_dagster.sources.decoded import PlacedChunk
from laminar_dagster.sources.file.options import FileOptions
from laminar_dagster.sources.file.source import FileSource

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NO_LIMIT = Admission()
N = (Column("n", "bigint", nullable=False),)


def file_source(
    root: Path, columns: Iterable[Column | tuple[str, str]] = N, **options: Any
) -> FileSource:
    declared = [each if isinstance(each, Column) else Column(*each) for each in columns]
    options.setdefault("format", "ndjson")
    return FileSource(SourceId("clicks"), root, declared, FileOptions(**options))


def plan(
    source: FileSource,
    previous: SourcePlan | None = None,
    limits: Admission = NO_LIMIT,
    clock: datetime = NOW,
) -> SourcePlan:
    return source.plan(previous, ends(previous), limits, clock)


def ends(planned: SourcePlan | None) -> tuple[SourcePosition, ...]:
    return tuple(part.end for part in planned.ranges) if planned else ()


def extents(planned: SourcePlan) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for part in planned.ranges:
        assert isinstance(part.start, FilePosition) and isinstance(part.end, FilePosition)
        found[part.start.path] = part.start.byte_offset, part.end.byte_offset
    return found


def whole(path: str, end: int, start: int = 0) -> SourceRange:
    return SourceRange(
        start=FilePosition(path=path, byte_offset=start),
        end=FilePosition(path=path, byte_offset=end),
    )


def chunks(source: FileSource, ranges: Iterable[SourceRange]) -> Iterator[PlacedChunk]:
    reader = source.reader()
    for part in ranges:
        for split in source.splits(part):
            yield from reader.read(split)


@dataclass
class Result:
    """Everything a reader said."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    bad: list[tuple[int, bytes, str]] = field(default_factory=list)
    bytes: int = 0
    records: int = 0


def read(source: FileSource, ranges: Iterable[SourceRange]) -> Result:
    result = Result()
    for chunk in chunks(source, ranges):
        chunk.rows.validate(full=True)
        assert chunk.rows.schema == source.schema
        result.rows.extend(chunk.rows.to_pylist())
        result.positions.extend(chunk.positions.to_pylist())
        for each in chunk.bad.to_pylist():
            result.bad.append((each["position"], each["raw"], each["reason"]))
        result.bytes += chunk.size_bytes
        result.records += chunk.records
    return result


def decode(
    root: Path, data: bytes, columns: Iterable[Column | tuple[str, str]], **options: Any
) -> Result:
    """Decode a whole file."""
    (root / "data").write_bytes(data)
    source = file_source(root, columns, pattern="data", **options)
    return read(source, [whole("data", len(data))])


def set_age(path: Path, seconds: float, clock: datetime = NOW) -> None:
    moment = clock.timestamp() - seconds
    os.utime(path, (moment, moment))


class FileStream:
    """A ``SourceStream`` over files of any format."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.root = root
        self.options = options
        self._parts = itertools.count()

    def open(self) -> FileSource:
        return file_source(self.root, **self.options)

    def append(self, numbers: Sequence[int]) -> None:
        if self.options["format"] == "parquet":
            self._write_parquet(self.root / f"{next(self._parts):03d}.parquet", numbers)
            return
        with (self.root / "data").open("ab") as file:
            file.write(self._header(file.tell()))
            file.write(b"".join(self._record(number) for number in numbers))

    def begin_record(self, number: int) -> bool:
        if self.options["format"] == "parquet":
            path = self.root / f"{next(self._parts):03d}.parquet"
            self._write_parquet(path, [number])
            self._torn = path.read_bytes()[-20:]
            path.write_bytes(path.read_bytes()[:-20])
            self._path = path
        else:
            record = self._record(number)
            self._path, self._torn = self.root / "data", record[3:]
            with self._path.open("ab") as file:
                file.write(record[:3])
        return True

    def end_record(self) -> None:
        with self._path.open("ab") as file:
            file.write(self._torn)

    def replace(self) -> None:
        paths = list(self.root.iterdir())
        for path in paths:
            if self.options["format"] == "parquet":
                rows = pyarrow.parquet.read_table(path).num_rows
                self._write_parquet(path, range(1000, 1000 + rows))
            else:
                path.write_bytes(path.read_bytes().replace(b"5", b"6"))

    def numbers(self, chunk: DecodedChunk) -> list[int]:
        numbers: list[int] = chunk.rows.column("n").to_pylist()
        return numbers

    def _header(self, place: int) -> bytes:
        has_header = self.options["format"] == "csv" and self.options.get("csv_header", True)
        return b"n,note\n" if has_header and place == 0 else b""

    def _record(self, number: int) -> bytes:
        if self.options["format"] == "ndjson":
            return b'{"n": %d, "extra": "\\n"}\n' % number
        return (
            b'%d,"a ""note"""\n' % number
            if self.options.get("csv_header", True)
            else b"%04d\n" % number
        )

    def _write_parquet(self, path: Path, numbers: Sequence[int]) -> None:
        table = pa.table({"n": pa.array(numbers, pa.int64())})
        pyarrow.parquet.write_table(table, path, row_group_size=3)
