"""A worker must notice every change of its code, and none that is not one."""

import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from laminar_dagster.orchestration.warm.stamp import CodeStamp


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "models").mkdir(parents=True)
    (folder / "pipeline.py").write_text("a = 1\n")
    (folder / "models" / "clicks.sql").write_text("SELECT 1\n")
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A module that is loaded from outside the code's folder."""
    path = tmp_path / "warm_stamp_elsewhere.py"
    path.write_text("a = 1\n")
    yield path
    sys.modules.pop(path.stem, None)


def load(path: Path) -> None:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[path.stem] = module


def test_nothing_changed(code: Path) -> None:
    stamp = CodeStamp.take(code)
    assert stamp.change() is None


@pytest.mark.parametrize(
    "name", ["pipeline.py", "models/clicks.sql", "new.py", "models/new.yml", "a.yaml", ".env"]
)
def test_a_file_that_is_written_is_a_change(code: Path, name: str) -> None:
    stamp = CodeStamp.take(code)
    (code / name).write_text("b = 22\n")
    assert stamp.change() == str(code / name)


def test_a_file_of_the_same_size_and_time_is_a_change_when_it_is_another(code: Path) -> None:
    path = code / "pipeline.py"
    stamp = CodeStamp.take(code)
    before = path.stat()
    draft = code / "draft"
    draft.write_text("a = 2\n")
    os.utime(draft, ns=(before.st_atime_ns, before.st_mtime_ns))
    draft.replace(path)
    assert stamp.change() == str(path)


def test_a_file_that_is_removed_is_a_change(code: Path) -> None:
    stamp = CodeStamp.take(code)
    (code / "models" / "clicks.sql").unlink()
    assert stamp.change() == str(code / "models" / "clicks.sql")


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "data.parquet",
        ".git/hooks/x.py",
        ".venv/lib/x.py",
        "venv/x.py",
        "__pycache__/x.py",
        "node_modules/x.yml",
        "target/compiled/x.sql",
        "home/storage/x.py",
    ],
)
def test_what_is_not_code_is_no_change(code: Path, name: str) -> None:
    stamp = CodeStamp.take(code, [str(code / "home")])
    (code / name).parent.mkdir(parents=True, exist_ok=True)
    (code / name).write_text("b = 22\n")
    assert stamp.change() is None


def test_the_env_file_of_the_current_folder_counts(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stamp = CodeStamp.take(code)
    (tmp_path / ".env").write_text("DATABASE=another\n")
    assert stamp.change() == str(tmp_path / ".env")


def test_a_loaded_module_counts_wherever_it_lies(code: Path, elsewhere: Path) -> None:
    load(elsewhere)
    stamp = CodeStamp.take(code)
    assert stamp.change() is None
    elsewhere.write_text("a = 22\n")
    assert stamp.change() == str(elsewhere)


def test_a_module_loaded_later_counts_from_then_on(code: Path, elsewhere: Path) -> None:
    hour_ago = time.time() - 3600
    os.utime(elsewhere, (hour_ago, hour_ago))
    stamp = CodeStamp.take(code)
    load(elsewhere)
    assert stamp.change() is None
    elsewhere.write_text("a = 22\n")
    assert stamp.change() == str(elsewhere)


def test_a_module_loaded_later_and_written_later_is_not_trusted(
    code: Path, elsewhere: Path
) -> None:
    stamp = CodeStamp.take(code)
    load(elsewhere)
    later = time.time() + 1
    os.utime(elsewhere, (later, later))
    assert stamp.change() == str(elsewhere)


def test_a_look_at_two_thousand_files_is_cheap(tmp_path: Path) -> None:
    for number in range(2000):
        folder = tmp_path / f"f{number % 50}"
        folder.mkdir(exist_ok=True)
        (folder / f"m{number}.py").touch()
    stamp = CodeStamp.take(tmp_path)
    before = time.process_time()
    assert stamp.change() is None
    assert time.process_time() - before < 0.5
