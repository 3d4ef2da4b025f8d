"""The files of a pipeline's folder, read safely even if a file is hostile.

Only regular files are read, whose path with links resolved is inside the folder, which are UTF-8
and not too large.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from laminar_dagster.config.mistakes import Report
from laminar_dagster.core.errors import InvalidConfig

MAX_FILE_BYTES: Final = 1024 * 1024
MAX_FILES: Final = 2_000


def read_text(path: Path, limit: int = MAX_FILE_BYTES) -> str:
    """The text of a file.

    Raises:
        InvalidConfig: It is no regular file, too large, not readable or not text.
    """
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for its writer.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise InvalidConfig(str(path), "it is not a regular file")
            content = file.read(limit + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidConfig(str(path), f"it cannot be read: {reason}") from None
    if len(content) > limit:
        raise InvalidConfig(str(path), f"it is larger than {limit} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidConfig(f"{path}:{line}", "it is not UTF-8") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InvalidConfig(f"{path}:{line}", "it holds a NUL character, so it is no text")
    return text


@dataclass(frozen=True, slots=True)
class PipelineFiles:
    """What a pipeline's folder holds, in a stable order."""

    folder: Path
    statements: tuple[Path, ...]
    models: tuple[Path, ...]
    python: tuple[Path, ...]
    contracts: tuple[Path, ...]

    @property
    def config(self) -> Path:
        """``pipeline.yml``."""
        return self.folder / "pipeline.yml"


def find_files(folder: Path, report: Report) -> PipelineFiles:
    """List a pipeline's files; what leads out of the folder is a mistake and is left out."""
    return PipelineFiles(
        folder,
        tuple(_inside(folder, folder, (".sql",), report)),
        tuple(_inside(folder, folder / "models", (".sql",), report)),
        tuple(_inside(folder, folder / "models", (".py",), report)),
        tuple(_inside(folder, folder / "contracts", (".yml", ".yaml"), report)),
    )


def leads_outside(folder: Path, path: Path) -> bool:
    """Whether a path, its links followed, is outside a folder."""
    try:
        return not path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):
        return True


def _inside(folder: Path, where: Path, endings: tuple[str, ...], report: Report) -> Iterator[Path]:
    try:
        names = sorted(os.listdir(where)) if where.is_dir() else []
    except OSError as error:
        report.add(str(where), f"it cannot be listed: {error.strerror}")
        return
    chosen = [each for each in names if each.endswith(endings) and not each.startswith(".")]
    if len(chosen) > MAX_FILES:
        report.add(str(where), f"it holds more than {MAX_FILES} files")
    for name in chosen[:MAX_FILES]:
        path = where / name
        if leads_outside(folder, path):
            report.add(
                str(path), "it leads out of the pipeline's folder", "put the file itself here"
            )
        else:
            yield path


def place_of(file: str, project: Path) -> str:
    """The absolute path of a file that an option names."""
    return str((project / Path(file).expanduser()).absolute())
