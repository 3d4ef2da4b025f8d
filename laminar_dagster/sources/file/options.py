"""The options in the ``WITH`` of a file source. Unknown options and bad values are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

import pyarrow as pa

from laminar_dagster.config.max_ahead import MAX_AHEAD
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.sources.file.directory import problem_with_pattern
from laminar_dagster.sources.option_values import (
    Known,
    Mistakes,
    count,
    delimiter,
    duration,
    flag,
    one_of,
    or_never,
    problem_with_delimiter,
    read_values,
    size,
)

Format = Literal["ndjson", "csv", "parquet"]
OnGap = Literal["fail", "earliest"]
OnVanished = Literal["fail", "forget"]

_LARGEST_RECORD: Final = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """How to read a directory of files.

    Attributes:
        pattern: Which files to read: ``*`` within a part of the path, ``**`` for any folders.
        csv_header: Whether each file begins with the names of its columns.
        csv_multiline: Whether quoted fields may hold newlines. Without, a stray quote spoils one
            line and no more.
        csv_null: The unquoted text that stands for null.
        on_gap: Whether a vanished file that was not read to its end stops the pipeline, or is
            recorded as a gap.
        on_vanished: Whether a vanished file that was read to its end stops the pipeline.
        idle_timeout: How long after its last write a file that was read to its end stops holding
            back the watermark. None: never.
        settle: How long after its last write a last line without a newline counts as a record.
            None: never, the line waits for its newline.
        max_record_bytes: A longer record is a bad one, of which the beginning is kept.
        max_files: The most files there may be; each one costs about 300 bytes of every plan.
        split_bytes: Read one file in parallel, in pieces of about that size. None keeps a file
            in one piece, and so in order.
    """

    format: Format
    pattern: str = "*"
    csv_delimiter: str = ","
    csv_header: bool = True
    csv_multiline: bool = True
    csv_null: str = ""
    on_gap: OnGap = "fail"
    on_vanished: OnVanished = "fail"
    idle_timeout: timedelta | None = timedelta(minutes=1)
    settle: timedelta | None = None
    max_record_bytes: int = 16 * 1024 * 1024
    max_files: int = 10_000
    split_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that cannot work.

        Raises:
            ValueError: naming the option.
        """
        problem = problem_with_pattern(self.pattern)
        if problem:
            raise ValueError(f"`pattern` {problem}")
        problem = problem_with_delimiter(self.csv_delimiter)
        if problem:
            raise ValueError(f"`csv.delimiter` {problem}")
        if not 1 <= self.max_record_bytes <= _LARGEST_RECORD:
            raise ValueError(f"`max.record.bytes` must be between 1 and {_LARGEST_RECORD}")
        if self.max_files < 1:
            raise ValueError("`max.files` must be at least 1")
        if self.split_bytes is not None and self.split_bytes < 1:
            raise ValueError("`split.bytes` must be at least 1")


def read_options(options: Mapping[str, str], where: str) -> tuple[str, FileOptions]:
    """The path and the options of a ``WITH``.

    Raises:
        InvalidConfig: Lists every mistake, each with the nearest known spelling.
    """
    mistakes = Mistakes(where)
    values = read_values(options, _OPTIONS, mistakes, ("path", MAX_AHEAD))
    for name in ("path", "format"):
        if not options.get(name):
            mistakes.add(f"`{name}` is missing")
    if values.get("format", "csv") != "csv":
        for name in options:
            if name.startswith("csv.") and name in _OPTIONS:
                kind = values["format"]
                mistakes.add(f"`{name}` is for files of format csv, and these are {kind}")
    mistakes.raise_if_any()
    try:
        return options["path"], FileOptions(**values)
    except ValueError as error:
        raise InvalidConfig(where, str(error)) from None


def require_readable(schema: pa.Schema, options: FileOptions) -> None:
    """Refuse columns of a type that the format cannot hold.

    Raises:
        ValueError: naming the column.
    """
    for each in schema:
        if options.format == "csv" and pa.types.is_nested(each.type):
            raise ValueError(f"column `{each.name}`: a file of format csv holds plain types only")


_OPTIONS: Final[Known] = {
    "format": ("format", one_of(Format)),
    "pattern": ("pattern", str),
    "csv.delimiter": ("csv_delimiter", delimiter),
    "csv.header": ("csv_header", flag),
    "csv.multiline": ("csv_multiline", flag),
    "csv.null": ("csv_null", str),
    "on_gap": ("on_gap", one_of(OnGap)),
    "on_vanished": ("on_vanished", one_of(OnVanished)),
    "idle.timeout": ("idle_timeout", or_never(duration, "never")),
    "settle": ("settle", or_never(duration, "never")),
    "max.record.bytes": ("max_record_bytes", size),
    "max.files": ("max_files", count),
    "split.bytes": ("split_bytes", or_never(size, "never")),
}
