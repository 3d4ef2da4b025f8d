"""Name resolution for a model's text, by Python's own rules: which scope binds a name, and where.

A scope is a module, a function, the body of a class, or a comprehension. A name that no scope
around it binds is a builtin such as ``open``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Place = tuple[int, int]

_FROM_THE_BEGINNING: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class Binding:
    """The binding of a name in a scope.

    Attributes:
        kind: An import, a function or class, or any other value.
        stands_for: The imported name, with its module; empty for other kinds.
        since: The position in the text from which on it is bound.
    """

    kind: Literal["import", "definition", "value"]
    stands_for: str
    since: Place


@dataclass
class Scope:
    """A part of a file that has names of its own.

    Attributes:
        names: The names that it binds.
        elsewhere: The names that it declares ``global``.
        sets: The names to which a set is assigned somewhere.
    """

    kind: Literal["module", "function", "class", "comprehension"]
    names: dict[str, Binding] = field(default_factory=dict)
    elsewhere: set[str] = field(default_factory=set)
    sets: set[str] = field(default_factory=set)


def scope_of_module(tree: ast.Module) -> Scope:
    """The scope of a file."""
    return _collected(Scope("module"), tree.body)


def scope_of_class(node: ast.ClassDef) -> Scope:
    """The scope of a class body, without its functions."""
    return _collected(Scope("class"), node.body)


def scope_of_function(node: Function) -> Scope:
    """The scope of a function: its arguments, and the names that its body binds."""
    arguments = node.args
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    given += [each for each in (arguments.vararg, arguments.kwarg) if each]
    found = Scope("function")
    for each in given:
        found.names[each.arg] = Binding("value", "", _FROM_THE_BEGINNING)
    return _collected(found, node.body if isinstance(node.body, list) else [node.body])


def scope_of_comprehension(node: Comprehension) -> Scope:
    """The scope of a comprehension: its loop variables."""
    return _collected(Scope("comprehension"), [each.target for each in node.generators])


def found_in(scopes: Sequence[Scope], name: ast.Name) -> tuple[Scope, Binding] | None:
    """Resolve a name to its scope and binding; None if it is a builtin.

    Args:
        scopes: The scopes around the name, the module first.
        name: The use of the name.
    """
    module, runs_later = scopes[0], False
    for scope in reversed(scopes):
        if name.id in scope.elsewhere:
            found = module.names.get(name.id)
            return (module, found) if found else None
        # Names of a class body are not visible in scopes nested in it.
        is_hidden = scope.kind == "class" and scope is not scopes[-1]
        # Module and class bodies run from top to bottom: before its binding, a name is the builtin.
        # In a function it would be unbound.
        in_order = scope.kind in ("module", "class") and not runs_later
        found = None if is_hidden else scope.names.get(name.id)
        if found and not (in_order and (name.lineno, name.col_offset) < found.since):
            return scope, found
        runs_later |= scope.kind == "function"
    return None


def is_set(node: ast.expr | None) -> bool:
    """Whether an expression is a set literal, a set comprehension, ``set()`` or ``frozenset()``."""
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("set", "frozenset")
    )


def _collected(scope: Scope, nodes: Iterable[ast.AST]) -> Scope:
    collector = _Collector(scope)
    for each in nodes:
        collector.visit(each)
    return scope


@dataclass
class _Collector(ast.NodeVisitor):
    """Collects the names that one scope binds; does not enter nested scopes."""

    scope: Scope
    _in_comprehension: int = 0
    # The current assignment: its targets are bound where it ends.
    _assignment: ast.stmt | None = None
    _of_others: set[str] = field(default_factory=set)

    def _bind(
        self, name: str, node: ast.AST, kind: Literal["definition", "value"] = "value"
    ) -> None:
        # The first binding of a name wins; only imports override it, see below.
        if name not in self._of_others and name not in self.scope.names:
            self.scope.names[name] = Binding(kind, "", _end_of(node))

    # --- values ----------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load) and not self._in_comprehension:
            self._bind(node.id, self._assignment or node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._assigned(node, node.targets, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._assigned(node, [node.target], node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._assigned(node, [node.target], None)

    def _assigned(self, node: ast.stmt, targets: list[ast.expr], value: ast.expr | None) -> None:
        if is_set(value):
            self.scope.sets |= {each.id for each in targets if isinstance(each, ast.Name)}
        self._assignment = node
        self.generic_visit(node)
        self._assignment = None

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        # In a comprehension, too, `:=` binds a name of the scope around it.
        self._bind(node.target.id, node)
        self.visit(node.value)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name and node.type:
            self._bind(node.name, node.type)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self._matched(node, node.name)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        self._matched(node, node.name)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self._matched(node, node.rest)

    def _matched(self, node: ast.pattern, name: str | None) -> None:
        if name:
            self._bind(name, node)
        self.generic_visit(node)

    # --- imports, and names of others ------------------------------------------------------------

    # Imports override other bindings of a name: they are what can make a model impure.

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            name = each.name if each.asname else each.name.partition(".")[0]
            self.scope.names[each.asname or name] = Binding("import", name, _end_of(node))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for each in node.names:
            what = f"{node.module}.{each.name}"
            self.scope.names[each.asname or each.name] = Binding("import", what, _end_of(node))

    def visit_Global(self, node: ast.Global) -> None:
        if self.scope.kind != "module":
            self.scope.elsewhere.update(node.names)
            self._of_others.update(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self._of_others.update(node.names)

    # --- what has a scope of its own --------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._defined(node, [*node.args.defaults, *node.args.kw_defaults])

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._defined(node, [*node.args.defaults, *node.args.kw_defaults])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._defined(node, [*node.bases, *(each.value for each in node.keywords)])

    def _defined(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
        outside: Iterable[ast.expr | None],
    ) -> None:
        self._bind(node.name, node, "definition")
        for each in (*node.decorator_list, *outside):
            if each is not None:
                self.visit(each)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for each in (*node.args.defaults, *node.args.kw_defaults):
            if each is not None:
                self.visit(each)

    def _within(self, node: Comprehension) -> None:
        self._in_comprehension += 1
        self.generic_visit(node)
        self._in_comprehension -= 1

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._within(node)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        self._within(node)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._within(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._within(node)


def _end_of(node: ast.AST) -> Place:
    line, column = getattr(node, "end_lineno", None), getattr(node, "end_col_offset", None)
    return (line or 0, column or 0)
