"""The compiled part of a wheel: there with a compiler, and no obstacle without one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from infra import native_build
from tests.services.compiled import require_compiled

ROOT = Path(native_build.__file__).parent.parent
LIBRARY = f"{native_build.FOLDER}/{native_build.LIBRARY}"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """As much of this project as it takes to build it, without what was compiled here."""
    root = tmp_path / "project"
    for name in ("pyproject.toml", "README.md", "LICENSE", "infra/native_build.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    shutil.copytree(
        ROOT / native_build.FOLDER,
        root / native_build.FOLDER,
        ignore=shutil.ignore_patterns("*.so", "__pycache__"),
    )
    return root


def wheel_of(project: Path, **variables: str) -> tuple[str, set[str], str]:
    """The name of the wheel, what it holds, and what was said while it was built."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
        cwd=project,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = (project / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return wheel.name, set(archive.namelist()), done.stdout + done.stderr


def test_with_a_compiler_the_wheel_is_of_the_platform_and_of_no_version_of_python(
    project: Path,
) -> None:
    require_compiled()
    name, files, _ = wheel_of(project)
    assert "-py3-none-" in name
    assert not name.endswith("-any.whl")
    assert LIBRARY in files
    assert not any(each.endswith((".c", ".h")) for each in files)


@pytest.mark.parametrize("compiler", ["/no/such/compiler", "false"])
def test_without_one_that_works_the_wheel_is_for_everybody(project: Path, compiler: str) -> None:
    """One that an earlier build has left is not taken for one of these sources."""
    (project / LIBRARY).write_bytes(b"older")
    name, files, said = wheel_of(project, CC=compiler)
    assert name.endswith("-py3-none-any.whl")
    assert LIBRARY not in files
    assert f"{native_build.FOLDER}/library.py" in files
    assert "Nothing was compiled" in said


def test_the_sources_give_no_warning(project: Path) -> None:
    require_compiled()
    assert native_build.build(project, ("-Werror", "-Wconversion", "-Wshadow")) is None
