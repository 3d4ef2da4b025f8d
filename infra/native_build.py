"""Compiles the package's C library when it is installed, and never keeps it from being installed.

Hatchling calls `NativeBuildHook`, for a wheel and for an editable install. The library knows
nothing of Python, so a wheel that holds it serves every version of Python on its platform. Where
there is no C compiler, the wheel is the one for every platform, and the package does without.

This file imports nothing of the project: it is run before that is installed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER: Final = "laminar_dagster/sources/native"
LIBRARY: Final = "laminar_native.so"
_FLAGS: Final = (
    *("-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-strict-aliasing"),
    *("-Wall", "-Wextra", "-fstack-protector-strong"),
)
_SECONDS: Final = 300


class NativeBuildHook(BuildHookInterface[Any]):
    """Builds the library beside its sources, and puts it into the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; called before anything is packed."""
        if self.target_name != "wheel":
            return
        problem = build(Path(self.root))
        if problem is not None:
            self.app.display_warning(f"Nothing was compiled, readers will be slower: {problem}")
            return
        build_data["artifacts"].append(f"/{FOLDER}/{LIBRARY}")
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"


def build(root: Path, flags: tuple[str, ...] = ()) -> str | None:
    """Compile the library.

    Args:
        root: Of the project.
        flags: Of the compiler, after its own.

    Returns:
        Why there is no library, or None when there is.
    """
    library = root / FOLDER / LIBRARY
    problem = _compile(library, flags)
    if problem is not None:
        # One of older sources is worse than none. Until here it stays: others may be loading it.
        library.unlink(missing_ok=True)
    return problem


def _compile(library: Path, flags: tuple[str, ...]) -> str | None:
    compiler = _compiler()
    if compiler is None:
        return "there is no C compiler (CC, cc, gcc, clang)"
    if os.name != "posix":
        return "it takes a POSIX system"
    unfinished = library.with_suffix(f".{os.getpid()}")
    command = [*compiler, *_FLAGS, *flags, *map(str, sorted(library.parent.glob("*.c")))]
    try:
        done = subprocess.run(
            [*command, "-o", str(unfinished)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode:
            return f"{compiler[0]} failed:\n{done.stderr.strip()}"
        # A process that has the old one loaded keeps it.
        unfinished.replace(library)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    finally:
        unfinished.unlink(missing_ok=True)
    return None


def _compiler() -> list[str] | None:
    named = shlex.split(os.environ.get("CC", ""))
    if named:
        return named if shutil.which(named[0]) else None
    found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    return None if found is None else [found]


if __name__ == "__main__":
    trouble = build(Path(__file__).parent.parent, tuple(sys.argv[1:]))
    sys.exit(trouble and f"Nothing was compiled: {trouble}")
