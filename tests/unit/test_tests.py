"""A test that cannot fail proves nothing: each has to assert something, or call what does.

What only calls the package does not count: that it raises nothing is to be said, such as by
comparing what it returns.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests", "laminar_dagster/testing")
# Of pytest, of its fixture `pytester`, and of Dagster: they raise.
FAILING = frozenset(
    {
        *("raises", "warns", "fail", "assert_outcomes", "fnmatch_lines", "no_fnmatch_line"),
        "validate_loadable",
    }
)
# A method is known by its name alone, and many classes have a `run`: these names promise something.
PROMISING = ("assert", "check", "error", "finish", "must", "wait")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Found:
    """A function of the tests, or of what they use.

    Attributes:
        place: Its module and line.
        name: As a test names it that calls it: by its module, or ``.name`` of a method.
        says: Whether it can fail by itself.
        calls: The names of what it calls.
    """

    place: str
    name: str
    says: bool
    calls: set[str]


def functions(module: str, tree: ast.Module) -> Iterator[Found]:
    """All of a module, methods included; a function within another belongs to that."""
    origins = dict(_imported(tree.body))
    for node in tree.body:
        is_class = isinstance(node, ast.ClassDef)
        for each in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(each, Function):
                name = f".{each.name}" if is_class else f"{module}.{each.name}"
                yield _function(f"{module}:{each.lineno}", name, each, module, origins)


def _function(
    place: str, name: str, function: Function, module: str, imported: dict[str, str]
) -> Found:
    nodes = list(ast.walk(function))
    origins = {**imported, **dict(_imported(nodes))}
    called: set[str] = set()
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name(id=callee)):
                called.add(origins.get(callee, f"{module}.{callee}"))
            case ast.Call(func=ast.Attribute(value=value, attr=attribute)):
                if attribute.startswith(PROMISING):
                    called.add(f".{attribute}")
                if isinstance(value, ast.Name) and value.id in origins:
                    called.add(f"{origins[value.id]}.{attribute}")
    return Found(place, name, any(map(_says, nodes)), called)


def _imported(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Where names come from, such as ``tests.unit.config.folders.load``."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _says(node: ast.AST) -> bool:
    match node:
        case ast.Assert(test=test):
            return not isinstance(test, ast.Constant | ast.Tuple)
        case ast.Raise():
            return True
        case ast.Call(func=ast.Attribute(attr=attribute), keywords=keywords):
            return attribute in FAILING or any(
                each.arg == "check" and ast.unparse(each.value) == "True" for each in keywords
            )
    return False


def that_cannot_fail(modules: Iterable[tuple[str, ast.Module]]) -> list[str]:
    """The tests of some modules that neither say anything nor call what does."""
    found = [each for module, tree in modules for each in functions(module, tree)]
    failing = {each.name for each in found if each.says}
    silent = [each for each in found if not each.says]
    while more := [each for each in silent if each.calls & failing]:
        failing |= {each.name for each in more}
        silent = [each for each in silent if not each.calls & failing]
    return [each.place for each in silent if each.name.rpartition(".")[2].startswith("test_")]


def test_every_test_can_fail() -> None:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(paths) > 300
    named = (".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths)
    trees = (ast.parse(path.read_text()) for path in paths)
    assert that_cannot_fail(zip(named, trees, strict=True)) == []


@pytest.mark.parametrize(
    ("body", "can_fail"),
    [
        ("pass", False),
        ("product()", False),
        ("helper.product()", False),
        ("assert True", False),
        ("assert (product(), 'said')", False),
        ("assert product()", True),
        ("with pytest.raises(ValueError): product()", True),
        ("silent()", False),
        ("checking()", True),
        ("through()", True),
        ("Thing().must_hold()", True),
        ("Thing().run()", False),
        ("Thing().must_not()", False),
        ("subprocess.run(['x'], check=True)", True),
        ("subprocess.run(['x'])", False),
    ],
)
def test_a_test_that_cannot_fail_is_found(body: str, *, can_fail: bool) -> None:
    helper = """
def checking(): assert product()
def through(): checking()
def silent(): product()
class Thing:
    def must_hold(self): raise ValueError
    def run(self): raise ValueError
    def must_not(self): product()
"""
    test = f"from helper import checking, through, silent, Thing\ndef test_it():\n    {body}\n"
    modules = [("helper", ast.parse(helper)), ("it", ast.parse(test))]
    assert that_cannot_fail(modules) == ([] if can_fail else ["it:2"])
