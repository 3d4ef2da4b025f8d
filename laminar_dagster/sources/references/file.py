"""A file, or a folder of files, as a reference table: NDJSON, CSV or Parquet.

It is read like a file source, once, from beginning to end; but a bad record is no dead letter: it
fails the read, since the table would be incomplete without it.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import logging
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from laminar_dagster.config.model import Column, ReferenceTable
from laminar_dagster.core.document import encode_part
from laminar_dagster.core.errors import (
    InvalidConfig,
    ReferenceUnavailable,
    RetentionExpired,
    SourceReplaced,
    SourceUnavailable,
)
from laminar_dagster.core.ids import ReferenceId, SourceId
from laminar_dagster.core.ports import Admission, ReferenceFreshness, ReferenceRows
from laminar_dagster.sources.file.directory import Directory, as_named
from laminar_dagster.sources.file.options import FileOptions, read_options
from laminar_dagster.sources.file.source import FileSource
from laminar_dagster.sources.option_values import Mistakes, read_values
from laminar_dagster.sources.references.content import TableShape
from laminar_dagster.sources.references.options import MAX_BYTES, SHARED, freshness_of

log = logging.getLogger(__name__)

# After every file's mtime: a last line without a newline then counts as settled, as a record.
_LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC)
# The options of a file source that only make sense for a stream.
_OF_STREAMS: Final = ("on_gap", "on_vanished", "idle.timeout", "settle", "split.bytes")
# Two writes within this many nanoseconds may leave the same mtime, so that the second goes unseen.
_TICK: Final = 2_000_000_000
_TRIES: Final = 3


class FileReference:
    """Implements ``core.ports.Reference``. Its version is a hash of file names, sizes and times."""

    def __init__(
        self,
        shape: TableShape,
        columns: tuple[Column, ...],
        path: Path,
        options: FileOptions,
        freshness: ReferenceFreshness,
    ) -> None:
        """Describe the table; does no I/O."""
        self._shape = shape
        self._columns = columns
        self._path = Path(os.path.abspath(path))
        self._options = dataclasses.replace(options, settle=timedelta(0))
        self._freshness = freshness

    @classmethod
    def from_table(cls, table: ReferenceTable, project: Path) -> FileReference:
        """Build the reference of a ``CREATE REFERENCE TABLE … WITH (connector = 'file', …)``.

        Raises:
            InvalidConfig: Lists every mistake in the options, or names an unsupported column.
        """
        where = str(table.place)
        mistakes = Mistakes(where)
        own = {name: text for name, text in table.options.items() if name in SHARED}
        values = read_values(own, SHARED, mistakes)
        for name in _OF_STREAMS:
            if name in table.options:
                mistakes.add(f"`{name}` is for sources, which are read bit by bit", "remove it")
        mistakes.raise_if_any()
        others = {name: text for name, text in table.options.items() if name not in SHARED}
        path, options = read_options(others, where)
        freshness = freshness_of(values, timedelta(0))
        shape = TableShape.of(table, values.get("max_bytes", MAX_BYTES))
        try:
            # Built only to check the columns.
            FileSource(SourceId(table.reference_id), project / path, table.columns, options)
        except ValueError as error:
            raise InvalidConfig(where, f"reference table {table.reference_id}: {error}") from None
        return cls(shape, table.columns, project / path, options, freshness)

    @property
    def reference_id(self) -> ReferenceId:
        """The reference table's name within the pipeline."""
        return self._shape.reference_id

    @property
    def address(self) -> str:
        """The folder, or the one file."""
        return f"file://{self._path}"

    @property
    def declaration(self) -> str:
        """See ``Reference.declaration``."""
        return self._shape.declaration

    @property
    def freshness(self) -> ReferenceFreshness:
        """See ``Reference.freshness``."""
        return self._freshness

    def version(self) -> str:
        """A hash of the files' metadata."""
        return self._look()[0]

    def read(self) -> ReferenceRows:
        """All rows, of files that nobody wrote to during the read."""
        for _ in range(_TRIES):
            version, newest = self._look()
            try:
                rows = self._rows()
            except (RetentionExpired, SourceReplaced):
                continue
            except SourceUnavailable as error:
                raise ReferenceUnavailable(self.reference_id, error.reason) from None
            if self._look()[0] != version:
                continue
            if time.time_ns() - newest < _TICK:
                # Written so recently that a further write might not change the version: mark it.
                version += " unsettled"
            return ReferenceRows(version, self._shape.files_of(rows))
        raise ReferenceUnavailable(self.reference_id, f"{self._path} is written to all the time")

    def _place(self) -> tuple[Path, FileOptions]:
        if self._path.is_file():
            # A path to one file is read as its folder with only this file.
            return self._path.parent, dataclasses.replace(self._options, pattern=self._path.name)
        return self._path, self._options

    def _look(self) -> tuple[str, int]:
        """The version of the files, and when the newest was written to."""
        root, options = self._place()
        try:
            paths = Directory(self.reference_id, root, options.pattern).files(options.max_files)
            found = [(path, os.stat(root / path, follow_symlinks=False)) for path in paths]
        except SourceUnavailable as error:
            raise ReferenceUnavailable(self.reference_id, error.reason) from None
        except OSError as error:
            failure = as_named(error, self.reference_id, str(self._path))
            if not isinstance(failure, SourceUnavailable):
                raise failure from None
            raise ReferenceUnavailable(self.reference_id, failure.reason) from None
        if not found:
            reason = f"there is no file {options.pattern} in {root}"
            raise ReferenceUnavailable(self.reference_id, reason)
        looks = [
            [path, about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino]
            for path, about in found
        ]
        digest = hashlib.sha256(encode_part(looks)).hexdigest()
        newest = max(max(about.st_mtime_ns, about.st_ctime_ns) for _, about in found)
        return f"files {digest}", newest

    def _require_columns(self, root: Path, options: FileOptions) -> None:
        """Check that files with column names have all columns: a source would read them as null."""
        for path in Directory(self.reference_id, root, options.pattern).files(options.max_files):
            if options.format == "parquet":
                there = pq.read_schema(root / path).names
            elif options.format == "csv" and options.csv_header:
                with open(root / path, encoding="utf-8-sig", newline="") as file:
                    there = next(csv.reader(file, delimiter=options.csv_delimiter), [])
            else:
                return
            for each in self._shape.schema.names:
                if each not in there:
                    raise self._shape.unfit(f"{path} has no column `{each}`")

    def _rows(self) -> pa.Table:
        root, options = self._place()
        try:
            self._require_columns(root, options)
        except (OSError, pa.ArrowInvalid, ValueError) as error:
            # Replaced just now, or not in the format: reading it raises the right error.
            log.debug("reference table %s: %s", self.reference_id, error)
        source = FileSource(SourceId(self.reference_id), root, self._columns, options)
        batches = [*self._batches(source)]
        return pa.Table.from_batches(batches, source.schema)

    def _batches(self, source: FileSource) -> Iterator[pa.RecordBatch]:
        plan = source.plan(None, (), Admission(), _LATEST)
        reader = source.reader()
        total = 0
        for part in plan.ranges:
            for chunk in reader.read(part):
                if chunk.bad.num_rows:
                    bad = chunk.bad.slice(0, 1).to_pylist()[0]
                    at = f"{bad['partition']}, at {bad['position']}"
                    raise self._shape.unfit(f"{at}: {bad['reason']}")
                total += chunk.rows.nbytes
                self._shape.require_room(total)
                yield chunk.rows
