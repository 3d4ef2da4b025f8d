"""The core decides; it reads no clock, rolls no dice, and touches nothing outside."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from laminar_dagster import core
from laminar_dagster.core import protocol

ROOT = Path(core.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
ALLOWED = {
    "__future__",
    "collections",
    "dataclasses",
    "datetime",
    "enum",
    "hashlib",
    "itertools",
    "msgspec",
    "pathlib",
    "re",
    "struct",
    "typing",
    "unicodedata",
    "uuid",
    "zlib",
    "laminar_dagster.core",
}
# Names that reach the world through a module that is allowed.
FORBIDDEN = {
    "now",
    "today",
    "utcnow",
    "fromtimestamp",
    "uuid1",
    "uuid3",
    "uuid4",
    "uuid5",
    "uuid7",
    "getnode",
    "open",
    "print",
    "input",
    "eval",
    "exec",
    "__import__",
    "breakpoint",
    "read_text",
    "read_bytes",
    "write_text",
    "write_bytes",
}


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert node.module
            yield node.module


def calls(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                yield node.func.attr
            elif isinstance(node.func, ast.Name):
                yield node.func.id


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_core_imports_nothing_that_reaches_outside(path: Path) -> None:
    for name in imports(ast.parse(path.read_text())):
        ours = name == "laminar_dagster.core" or name.startswith("laminar_dagster.core.")
        assert ours or name.partition(".")[0] in ALLOWED, name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_core_calls_no_clock_no_dice_and_no_file(path: Path) -> None:
    assert not FORBIDDEN & set(calls(ast.parse(path.read_text())))


def test_there_is_a_core_to_look_at() -> None:
    assert len(FILES) >= 16
    found = {name for path in FILES for name in calls(ast.parse(path.read_text()))}
    assert {"sha256", "timedelta"} <= found


def test_the_protocol_fits_on_a_few_pages() -> None:
    """Somebody who wants to know what happens can read all of it."""
    assert protocol.__file__
    assert len(Path(protocol.__file__).read_text().splitlines()) <= 200
