"""A directory of NDJSON, CSV or Parquet files as a source: every file is a partition.

Text files may grow: an epoch reads up to the last complete record, and leaves a torn last line to
the next. An epoch's limits are shared between all files with unread data, so that event time
advances in each of them. Parquet files are taken whole, once they are complete, in the order of
their relative paths.

Bytes that were read must not change. A file that shrank, was replaced or is gone raises an error;
``FileOptions`` says which of these can be allowed.

Every file that holds a record has a range in every plan, even if an empty one: so that its loss is
noticed, and so that an unread file holds back the watermark. A file is idle when all of it was
read before, and its mtime is more than ``idle.timeout`` before the plan's clock. Using the mtime
needs no memory of earlier plans; the plan stores the result.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from msgspec import structs

from laminar_dagster.config.model import Column, SourceTable
from laminar_dagster.core.document import require_utc, to_utc_microseconds
from laminar_dagster.core.errors import InvalidConfig, SeekFailed, SourceReplaced
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import (
    FileIdentity,
    FilePosition,
    SourcePosition,
    SourceRange,
)
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.core.ports import Admission
from laminar_dagster.sources.file.admission import Budget
from laminar_dagster.sources.file.directory import Directory, OpenFile
from laminar_dagster.sources.file.fingerprints import Fingerprint
from laminar_dagster.sources.file.options import FileOptions, read_options, require_readable
from laminar_dagster.sources.file.parquet_rows import is_complete, row_group_starts
from laminar_dagster.sources.file.reader import FileSplitReader, file_range, framing_of
from laminar_dagster.sources.file.replay import replay
from laminar_dagster.sources.file.vanished import gaps_of, range_of, refuse_renamed, vanished
from laminar_dagster.sources.formats.arrow_types import arrow_schema

CONNECTOR = "file"


class FileSource:
    """Implements ``core.ports.Source``."""

    def __init__(
        self,
        source_id: SourceId,
        root: Path,
        columns: Iterable[Column],
        options: FileOptions,
        where: str | None = None,
    ) -> None:
        """Describe the source; does no I/O.

        Args:
            source_id: The source's name within the pipeline.
            root: The folder.
            columns: The columns of a record.
            options: How to read it.
            where: The place in the config that names the folder, for the error if it is missing.

        Raises:
            ValueError: The columns cannot be read from such files.
        """
        self._source_id = source_id
        self._options = options
        self._schema = arrow_schema(columns)
        require_readable(self._schema, options)
        self._directory = Directory(str(source_id), Path(os.path.abspath(root)), options.pattern)
        self._framing = framing_of(options)
        self._where = where

    @classmethod
    def from_table(
        cls, table: SourceTable, project: Path, defaults: Mapping[str, str] = MappingProxyType({})
    ) -> FileSource:
        """Build the source of a ``CREATE SOURCE TABLE … WITH (connector = 'file', …)``.

        Args:
            table: The statement.
            project: The folder that a relative ``path`` starts from.
            defaults: Options from the pipeline, for those that the source does not set itself.

        Raises:
            InvalidConfig: Lists every mistake in the options, or names an unsupported column.
        """
        where = str(table.place)
        path, options = read_options({**defaults, **table.options}, where)
        try:
            return cls(table.source_id, project / path, table.columns, options, where)
        except ValueError as error:
            raise InvalidConfig(where, f"source {table.source_id}: {error}") from None

    @property
    def source_id(self) -> SourceId:
        """The source's name within the pipeline."""
        return self._source_id

    @property
    def address(self) -> str:
        """The folder, or the one file."""
        return f"file://{self._directory.root}"

    @property
    def schema(self) -> pa.Schema:
        """The declared columns, as the reader's chunks have them."""
        return self._schema

    def plan(
        self,
        previous: SourcePlan | None,
        start: tuple[SourcePosition, ...],
        limits: Admission,
        clock: datetime,
    ) -> SourcePlan:
        """Choose how far to read each file.

        At least one record is admitted if there is one, whatever the limits are.

        Raises:
            SourceReplaced: A file shrank, or the bytes that were read have changed.
            RetentionExpired: A file that was read is gone.
            SourceUnavailable, AuthFailed: The directory or a file cannot be read.
            InvalidConfig: A link leads out of the directory, or there are too many files, or the
                directory does not exist at the first epoch.
        """
        require_utc("clock", clock)
        if self._where is not None and previous is None and not start:
            self._directory.require_folder(self._where)
        known = self._offsets(start)
        pinned = self._pinned(previous)
        listed = self._directory.files(self._options.max_files)
        order, waiting = self._order({*listed, *known}, known)
        budget = Budget(limits, waiting)
        lanes: dict[str, _Lane] = {}
        gone: list[str] = []
        for path in order:
            try:
                with self._directory.open(path) as file:
                    lane = self._plan_file(file, known.get(path), pinned.get(path), budget, clock)
            except FileNotFoundError:
                if path in known:
                    gone.append(path)
                continue
            if lane:
                lanes[path] = lane
        new = [path for path in listed if path not in known]
        if gone:
            refuse_renamed(self._directory, self._source_id, pinned, gone, new)
        gaps = gaps_of(self._source_id, self._options, sorted(gone, key=str.encode), known, pinned)
        paths = sorted(lanes, key=str.encode)
        return SourcePlan(
            source_id=self._source_id,
            identity=FileIdentity(fingerprints={p: str(lanes[p].fingerprint) for p in paths}),
            ranges=tuple(lanes[path].range for path in paths),
            idle=tuple(lanes[path].range.end for path in paths if lanes[path].idle),
            gaps=gaps,
        )

    def pin_held(self, plan: SourcePlan, previous: SourcePlan | None) -> SourcePlan:
        """See ``PinsItsEnd``: pin held back files as not read to their end."""
        pinned, before = self._pinned(plan), self._pinned(previous)
        ranges = []
        for part in plan.ranges:
            path, start, end = file_range(self._source_id, part)
            if pinned[path].end != end:
                held = pinned[path].held_at(before.get(path), start)
                part = part if held else range_of(path, start, pinned[path].end)
                pinned[path] = held or pinned[path]
            ranges.append(part)
        identity = FileIdentity(fingerprints={path: str(each) for path, each in pinned.items()})
        return structs.replace(plan, ranges=tuple(ranges), identity=identity)

    def _order(self, paths: set[str], known: dict[str, int]) -> tuple[list[str], int]:
        """The order in which files get their share of an epoch, and how many have unread data.

        Files with little unread data come first: what they leave of their share goes to the others.
        """
        by_path = sorted(paths, key=str.encode)
        sizes = {path: self._directory.size(path) - known.get(path, 0) for path in by_path}
        waiting = sum(size > 0 for size in sizes.values())
        if self._options.format == "parquet":
            return by_path, max(1, waiting)
        return sorted(by_path, key=lambda path: sizes[path]), max(1, waiting)

    def identity(self) -> FileIdentity:
        """The fingerprints of all files as they are now, up to their last complete record."""
        prints: dict[str, str] = {}
        for path in self._directory.files(self._options.max_files):
            try:
                with self._directory.open(path) as file:
                    end = self._available(file, 0, None, None)
                    if end:
                        prints[path] = str(Fingerprint.of(file, end, end))
            except FileNotFoundError:
                continue
        return FileIdentity(fingerprints=prints)

    def verify(self, plan: SourcePlan) -> None:
        """Check that the files still match the plan's fingerprints, before a retry reads them.

        Raises:
            SourceReplaced, RetentionExpired: as ``plan`` does.
        """
        pinned = self._pinned(plan)
        for part in plan.ranges:
            path, start, end = file_range(self._source_id, part)
            try:
                with self._directory.open(path) as file:
                    if path not in pinned:
                        raise SourceReplaced(self._source_id, f"a fingerprint of {path}", "none")
                    pinned[path].require(file)
            except FileNotFoundError:
                if start < end:
                    raise vanished(self._source_id, path, start) from None

    def splits(self, part: SourceRange) -> tuple[SourceRange, ...]:
        """Cut a range at record boundaries (Parquet: at row groups) into ``split.bytes``."""
        path, start, end = file_range(self._source_id, part)
        size = self._options.split_bytes
        if start == end:
            return ()
        if size is None or end - start <= size:
            return (part,)
        try:
            with self._directory.open(path) as file:
                cuts = self._cuts(file, start, end, size)
        except FileNotFoundError:
            raise vanished(self._source_id, path, start) from None
        edges = [start, *cuts, end]
        return tuple(range_of(path, one, two) for one, two in pairwise(edges))

    def reader(self) -> FileSplitReader:
        """A reader for the executors, which must see the directory under the same path."""
        return FileSplitReader(str(self._source_id), self._directory, self._schema, self._options)

    def check_seek(self, position: SourcePosition) -> None:
        """Find out whether reading can resume at a position.

        Raises:
            RetentionExpired: The file is gone.
            SourceReplaced: The file is shorter than that.
            SeekFailed: No record ends there.
        """
        ((path, offset),) = self._offsets((position,)).items()
        try:
            with self._directory.open(path) as file:
                if file.size < offset:
                    expected = f"{path} with {offset} bytes or more"
                    raise SourceReplaced(self._source_id, expected, f"{file.size} bytes")
                if self._options.format == "parquet":
                    if offset not in (0, file.size):
                        raise SeekFailed(self._source_id, f"{path}: a Parquet file is read whole")
                else:
                    self._require_record_end(file, offset)
        except FileNotFoundError:
            raise vanished(self._source_id, path, offset) from None

    def acknowledge(self, positions: tuple[SourcePosition, ...]) -> None:
        """Do nothing: files stay where they are."""

    def replay(self, batch: str, letters: Any) -> tuple[str, ...]:
        """Write dead letters back as new files, which the next epoch reads."""
        return replay(self._directory, self._options, str(self._source_id), batch, letters)

    # --- one file ---------------------------------------------------------------------------------

    def _plan_file(
        self,
        file: OpenFile,
        offset: int | None,
        pin: Fingerprint | None,
        budget: Budget,
        clock: datetime,
    ) -> _Lane | None:
        start = offset or 0
        if pin:
            pin.require(file)
        if file.size < start:
            expected = f"{file.path} with {start} bytes or more"
            raise SourceReplaced(self._source_id, expected, f"{file.size} bytes: it was cut off")
        available = self._available(file, start, budget.enough(start), clock)
        if not available:
            # Nothing read before and no complete record: not a partition yet.
            return None
        if self._options.format == "parquet":
            end = budget.take_whole(file, start, available)
        else:
            end = budget.take(self._framing, file, start, available)
        timeout = self._options.idle_timeout
        idle = timeout is not None and start == available and _rested(file, clock, timeout)
        return _Lane(range_of(file.path, start, end), Fingerprint.of(file, end, available), idle)

    def _available(
        self, file: OpenFile, start: int, enough: int | None, clock: datetime | None
    ) -> int:
        """The end of the last complete record, or any record's end at or after ``enough``."""
        if self._options.format == "parquet":
            if start:
                if file.size != start:
                    expected = f"{file.path} with {start} bytes"
                    found = f"{file.size}: a Parquet file must not change"
                    raise SourceReplaced(self._source_id, expected, found)
                return start
            return file.size if is_complete(file) else 0
        self._require_record_end(file, start)
        end = self._framing.complete_end(file, start, enough)
        settle = self._options.settle
        if (
            settle is not None
            and clock is not None
            and end < file.size
            and (enough is None or end < enough)
            and _rested(file, clock, settle)
        ):
            return file.size
        return end

    def _require_record_end(self, file: OpenFile, offset: int) -> None:
        """Refuse to resume in the middle of a record, such as a settled line that was continued."""
        if offset == 0 or offset == file.size or file.read(offset - 1, 1) == b"\n":
            return
        following = file.read(offset, min(2, file.size - offset))
        if not (following.startswith(b"\n") or b"\r\n".startswith(following)):
            reason = f"{file.path} goes on after byte {offset}, where its last record had ended"
            raise SeekFailed(self._source_id, f"{reason}; was it written to after `settle`?")

    def _cuts(self, file: OpenFile, start: int, end: int, size: int) -> list[int]:
        cuts: list[int] = []
        place = start
        if self._options.format == "parquet":
            for group in row_group_starts(file)[1:]:
                if place + size <= group < end:
                    cuts.append(group)
                    place = group
            return cuts
        while end - place > size:
            cut, _ = self._framing.cut(file, place, end, size, None)
            place = cut if cut > place else self._framing.first_end(file, place, end)
            if place < end:
                cuts.append(place)
        return cuts

    # --- reading plans ----------------------------------------------------------------------------

    def _offsets(self, positions: tuple[SourcePosition, ...]) -> dict[str, int]:
        offsets: dict[str, int] = {}
        for position in positions:
            if not isinstance(position, FilePosition):
                kind = type(position).__name__
                raise SeekFailed(self._source_id, f"{kind} is not a position in a file")
            offsets[position.path] = position.byte_offset
        return offsets

    def _pinned(self, plan: SourcePlan | None) -> dict[str, Fingerprint]:
        if plan is None:
            return {}
        if not isinstance(plan.identity, FileIdentity):
            raise SourceReplaced(self._source_id, type(plan.identity).__name__, "files")
        return {
            path: Fingerprint.parse(self._source_id, path, text)
            for path, text in plan.identity.fingerprints.items()
        }


@dataclass(frozen=True, slots=True)
class _Lane:
    """What a plan holds of one file."""

    range: SourceRange
    fingerprint: Fingerprint
    idle: bool


def _rested(file: OpenFile, clock: datetime, wait: timedelta) -> bool:
    """Whether a file's last write was at least ``wait`` before ``clock``."""
    age = to_utc_microseconds(clock) - file.modified_ns // 1000
    return age >= wait // timedelta(microseconds=1)
