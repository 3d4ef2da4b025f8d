"""Replays dead letters of a file source: writes them back into the directory as new files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core.errors import AlreadyReplayed, InvalidConfig, SourceUnavailable
from laminar_dagster.sources.file.directory import Directory, as_named
from laminar_dagster.sources.file.options import FileOptions
from laminar_dagster.sources.file.reader import find_header, framing_of

_PREFIX: Final = "replayed"


def replay(
    directory: Directory, options: FileOptions, source_id: str, batch: str, letters: Any
) -> tuple[str, ...]:
    """Write the records of each file to a new one beside it. See ``core.ports.Replayable``."""
    if options.format == "parquet":
        problem = "rows of a Parquet file cannot be written back"
        raise InvalidConfig(f"source {source_id}", problem, "write a new file with good ones")
    written, is_new = [], False
    origins = pc.unique(letters.column("partition")).to_pylist()
    for number, origin in enumerate(sorted(origins)):
        name = f"{_PREFIX}-{batch}-{number}{Path(origin).suffix}"
        path = (Path(origin).parent / name).as_posix()
        if not directory.takes(path):
            problem = f"`pattern` = {options.pattern!r} does not take a file named {path}"
            raise InvalidConfig(f"source {source_id}", problem, "make the pattern wider")
        mine = letters.filter(pc.equal(letters.column("partition"), origin))
        content = _content(directory, options, source_id, origin, mine)
        is_new |= _write(directory, source_id, path, content)
        written.append(path)
    if not is_new:
        raise AlreadyReplayed(source_id, ", ".join(written))
    return tuple(written)


def _content(
    directory: Directory, options: FileOptions, source_id: str, origin: str, letters: pa.Table
) -> bytes:
    lines = letters.sort_by("position").column("raw").to_pylist()
    if options.format == "csv" and options.csv_header:
        try:
            with directory.open(origin) as file:
                header, _ = find_header(framing_of(options), file, file.size)
        except FileNotFoundError:
            reason = f"{origin} is gone, and with it the names of its columns"
            raise SourceUnavailable(source_id, reason) from None
        lines.insert(0, header.rstrip(b"\r\n"))
    return b"".join(line + b"\n" for line in lines)


def _write(directory: Directory, source_id: str, path: str, content: bytes) -> bool:
    """Write the file atomically unless one of the name exists; return whether it was written.

    An existing file may be left from a replay that was cut short, so the caller goes on.
    """
    target = directory.root / path
    hidden = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with hidden.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(hidden, target)
    except FileExistsError:
        return False
    except OSError as error:
        raise as_named(error, source_id, path) from None
    finally:
        hidden.unlink(missing_ok=True)
    return True
