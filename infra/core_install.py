"""Installs the wheel without extras into an empty environment, and says what that brings.

``python -m infra.core_install [FOLDER]`` makes the environment in a folder, which must not exist;
by default in one that is removed again. Versions are those of the lock.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.environments import find_uv

ROOT: Final = Path(__file__).parents[1]
_MEGABYTE: Final = 10**6


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with the package in it.

    Attributes:
        folder: The environment.
        packages: The distributions in it, with ours.
        size_bytes: Of all their files.
    """

    folder: Path
    packages: tuple[str, ...]
    size_bytes: int

    def describe(self) -> str:
        """The number of packages and their size, in a line."""
        return f"{len(self.packages)} packages, {self.size_bytes / _MEGABYTE:.0f} MB"


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this tree into a folder."""
    _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)])
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Installed:
    """Install a wheel, and nothing but what it depends on, into a new environment.

    Args:
        wheel: The wheel.
        folder: Where the environment is made.
    """
    uv, python = find_uv(), folder / "bin" / "python"
    _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
    constraints = wheel.with_name("constraints.txt")
    constraints.write_text("\n".join(_locked((ROOT / "requirements.lock").read_text())))
    into = ["--python", str(python), "--constraints", str(constraints)]
    _run([uv, "pip", "install", "--quiet", *into, str(wheel)])
    (site,) = folder.glob("lib/python3*/site-packages")
    packages = sorted(each.name.split("-")[0] for each in site.glob("*.dist-info"))
    size = sum(each.stat().st_size for each in site.rglob("*") if each.is_file())
    return Installed(folder, tuple(packages), size)


def _locked(lock: str) -> list[str]:
    """The requirements of a lock, without hashes."""
    lines = (line.removesuffix("\\").strip() for line in lock.splitlines())
    return [line for line in lines if "==" in line and not line.startswith(("#", "--"))]


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """Install, and print what it came to."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else f"{temporary}/core").absolute()
        found = install(build_wheel(Path(temporary)), folder)
        sys.stdout.write(f"{found.describe()}\n")


if __name__ == "__main__":
    main()
