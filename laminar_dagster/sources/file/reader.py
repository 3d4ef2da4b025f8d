"""Reads splits of files on executors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from laminar_dagster.core.errors import RetentionExpired, SeekFailed
from laminar_dagster.core.offsets import FilePosition, SourceRange
from laminar_dagster.sources.decoded import BadRecord, PlacedChunk, chunk_of
from laminar_dagster.sources.file.blocks import records_of
from laminar_dagster.sources.file.directory import Directory, OpenFile
from laminar_dagster.sources.file.framing import (
    Framing,
    LineFraming,
    Oversize,
    QuotedFraming,
)
from laminar_dagster.sources.file.options import FileOptions
from laminar_dagster.sources.file.parquet_rows import read_rows
from laminar_dagster.sources.formats.csv_records import CsvDecoder
from laminar_dagster.sources.formats.ndjson import JsonDecoder
from laminar_dagster.sources.formats.records import Outcome


def framing_of(options: FileOptions) -> Framing:
    """Where records end in the text files of a source."""
    if options.format == "csv" and options.csv_multiline:
        return QuotedFraming(options.max_record_bytes)
    return LineFraming(options.max_record_bytes)


def file_range(source_id: str, part: SourceRange) -> tuple[str, int, int]:
    """The path, start and end of a range of a file.

    Raises:
        SeekFailed: The range belongs to another kind of source.
    """
    if not isinstance(part.start, FilePosition) or not isinstance(part.end, FilePosition):
        raise SeekFailed(source_id, f"{type(part.start).__name__} is not a position in a file")
    return part.start.path, part.start.byte_offset, part.end.byte_offset


@dataclass(frozen=True, slots=True)
class FileSplitReader:
    """Decodes a split of a file into the declared columns. Opens the file anew for each split.

    The same split gives the same chunks on any machine, because chunks are cut by bytes.
    """

    source_id: str
    directory: Directory
    schema: pa.Schema
    options: FileOptions

    def read(self, split: SourceRange) -> Iterator[PlacedChunk]:
        """All records of the half-open range, in order; bad ones beside decoded ones.

        Raises:
            RetentionExpired: The file is gone, or shorter than the range.
            SourceUnavailable, AuthFailed: The file cannot be read.
        """
        path, start, end = file_range(self.source_id, split)
        try:
            with self.directory.open(path) as file:
                if file.size < end:
                    wanted = f"bytes {start} to {end} of {path}"
                    raise RetentionExpired(self.source_id, wanted, f"its first {file.size} bytes")
                yield from self._chunks(file, start, end)
        except FileNotFoundError:
            wanted = f"bytes {start} to {end} of {path}"
            raise RetentionExpired(self.source_id, wanted, "nothing: it is gone") from None

    def _chunks(self, file: OpenFile, start: int, end: int) -> Iterator[PlacedChunk]:
        if self.options.format == "parquet":
            for piece in read_rows(file, start, end, self.schema):
                yield chunk_of(
                    file.path,
                    piece.rows,
                    piece.positions,
                    piece.bad,
                    piece.size_bytes,
                    bad_at=piece.bad_at,
                )
            return
        framing = framing_of(self.options)
        decoder = self._decoder(framing, file, end)
        for block in framing.blocks(file, start, end):
            if isinstance(block, Oversize):
                found, bad_at = self._oversize(block), None
            else:
                records = records_of(block)
                found, bad_at = decoder.decode(records), records.bad_at
            positions, size = pa.array(found.positions, pa.int64()), block.end - block.start
            yield chunk_of(file.path, found.rows, positions, found.bad, size, bad_at=bad_at)

    def _decoder(self, framing: Framing, file: OpenFile, end: int) -> CsvDecoder | JsonDecoder:
        if self.options.format == "ndjson":
            return JsonDecoder(self.schema)
        options = self.options
        if not options.csv_header:
            return CsvDecoder(self.schema, options.csv_delimiter, options.csv_null)
        header, header_end = find_header(framing, file, end)
        return CsvDecoder(self.schema, options.csv_delimiter, options.csv_null, header, header_end)

    def _oversize(self, record: Oversize) -> Outcome:
        length = record.end - record.start
        limit = self.options.max_record_bytes
        reason = f"{length} bytes long, more than `max.record.bytes` = {limit}; cut off here"
        nothing = pa.RecordBatch.from_arrays(
            [pa.array([], each.type) for each in self.schema], schema=self.schema
        )
        bad = [BadRecord(record.start, record.head, reason, is_whole=False)]
        return Outcome(nothing, np.empty(0, np.int64), bad)


def find_header(framing: Framing, file: OpenFile, end: int) -> tuple[bytes, int]:
    """The first record of a file that is not blank, and where it ends."""
    for block in framing.blocks(file, 0, end):
        if isinstance(block, Oversize):
            return b"", block.end
        records = records_of(block)
        if len(records):
            return records.text(0), block.start + int(records.ends[0])
    return b"", end
