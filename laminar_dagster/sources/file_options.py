"""What may stand in the ``WITH`` of a file source. Unknown options and odd values are refused."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, TypeVar, get_args

import pyarrow as pa

from laminar_dagster.config.units import parse_duration, parse_size
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.sources.directory import problem_with_pattern

Format = Literal["ndjson", "csv", "parquet"]
OnGap = Literal["fail", "earliest"]
OnVanished = Literal["fail", "forget"]

_LARGEST_RECORD: Final = 1024**3
_ValueT = TypeVar("_ValueT")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """How to read a directory of files.

    Attributes:
        pattern: Which files: ``*`` within a part of the path, ``**`` for any folders.
        csv_header: Whether each file begins with the names of its columns.
        csv_multiline: Whether quoted fields may hold newlines. Without, a stray quote spoils one
            line and no more.
        csv_null: What stands for null where it is not quoted.
        on_gap: Whether a vanished file that was not read to its end stops the pipeline, or is
            recorded as a gap.
        on_vanished: Whether a vanished file that was read to its end stops the pipeline.
        idle_timeout: How long a file that was read to its end must not have been written to
            before it no longer holds the watermark back. None is for ever.
        settle: How long a file must not have been written to before a last line without a newline
            counts as a record. None is for ever: it is left until its newline comes.
        max_record_bytes: A longer record is a bad one, of which the beginning is kept.
        max_files: How many files there may be; each one costs about 300 bytes of every plan.
        split_bytes: Read one file in pieces of about that size, side by side. None keeps a file
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
        """Refuse what cannot work.

        Raises:
            ValueError: naming the option.
        """
        problem = problem_with_pattern(self.pattern)
        if problem:
            raise ValueError(f"`pattern` {problem}")
        if len(self.csv_delimiter) != 1 or not (
            self.csv_delimiter == "\t" or " " <= self.csv_delimiter <= "~"
        ):
            raise ValueError("`csv.delimiter` must be one ASCII character")
        if self.csv_delimiter == '"':
            raise ValueError("`csv.delimiter` must not be the quote")
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
    values: dict[str, Any] = {}
    mistakes: list[tuple[str, str]] = []
    for name, text in options.items():
        if name == "path":
            continue
        if name not in _OPTIONS:
            near = difflib.get_close_matches(name, ("path", *_OPTIONS), n=1)
            known = f"known options: {', '.join(('path', *_OPTIONS))}"
            hint = f"did you mean `{near[0]}`?" if near else known
            mistakes.append((f"unknown option `{name}`", hint))
            continue
        attribute, read = _OPTIONS[name]
        try:
            values[attribute] = read(text)
        except ValueError as error:
            mistakes.append((f"`{name}` {error}", ""))
    mistakes.extend(
        (f"`{name}` is missing", "") for name in ("path", "format") if not options.get(name)
    )
    if values.get("format", "csv") != "csv":
        mistakes.extend(
            (f"`{name}` is for files of format csv, and these are {values['format']}", "")
            for name in options
            if name.startswith("csv.") and name in _OPTIONS
        )
    if not mistakes:
        try:
            return options["path"], FileOptions(**values)
        except ValueError as error:
            mistakes.append((str(error), ""))
    first, *others = mistakes
    shown = [first[0], *(f"{problem} ({hint})" if hint else problem for problem, hint in others)]
    raise InvalidConfig(where, "; ".join(shown), first[1])


def require_readable(schema: pa.Schema, options: FileOptions) -> None:
    """Refuse columns that files of a format cannot hold.

    Raises:
        ValueError: naming the column.
    """
    for each in schema:
        if options.format == "csv" and pa.types.is_nested(each.type):
            raise ValueError(f"column `{each.name}`: a file of format csv holds plain types only")


def _one_of(choices: Any) -> Callable[[str], str]:
    allowed = get_args(choices)

    def read(text: str) -> str:
        if text not in allowed:
            near = difflib.get_close_matches(text, allowed, n=1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"must be one of {', '.join(allowed)}, not {text!r}{hint}")
        return text

    return read


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"must be true or false, not {text!r}")
    return text.lower() == "true"


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError:
        raise ValueError(f"must be a size such as 4096 or 16MiB, not {text!r}") from None


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text.strip()):
        raise ValueError(f"must be a whole number, not {text!r}")
    return int(text)


def _delimiter(text: str) -> str:
    return "\t" if text == r"\t" else text


def _or_never(read: Callable[[str], _ValueT], never: str) -> Callable[[str], _ValueT | None]:
    return lambda text: None if text == never else read(text)


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except (ValueError, OverflowError):
        raise ValueError(f"must be a duration such as 30s or 5m, not {text!r}") from None


_OPTIONS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "format": ("format", _one_of(Format)),
    "pattern": ("pattern", str),
    "csv.delimiter": ("csv_delimiter", _delimiter),
    "csv.header": ("csv_header", _flag),
    "csv.multiline": ("csv_multiline", _flag),
    "csv.null": ("csv_null", str),
    "on_gap": ("on_gap", _one_of(OnGap)),
    "on_vanished": ("on_vanished", _one_of(OnVanished)),
    "idle.timeout": ("idle_timeout", _or_never(_duration, "never")),
    "settle": ("settle", _or_never(_duration, "never")),
    "max.record.bytes": ("max_record_bytes", _size),
    "max.files": ("max_files", _count),
    "split.bytes": ("split_bytes", _or_never(_size, "never")),
}
