"""Static check of a model: finds code whose result could differ between runs or between batches.

Only the text is examined, before any of it runs. Names are followed through ``import … as``, so
``from datetime import datetime as d`` hides nothing; uses through ``getattr`` or another package
are not seen here. ``calls`` finds some of those when the model runs, ``verify`` the rest.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

from laminar_dagster.models.scopes import (
    Comprehension,
    Function,
    Scope,
    found_in,
    is_set,
    scope_of_class,
    scope_of_comprehension,
    scope_of_function,
    scope_of_module,
)

Impurity = Literal["wall_clock", "random", "side_effect", "hidden_state", "other_rows"]

_CLOCKS: Final = frozenset(
    {
        "datetime.date.today",
        "datetime.datetime.now",
        "datetime.datetime.today",
        "datetime.datetime.utcnow",
        "pandas.Timestamp.now",
        "pandas.Timestamp.today",
        "pandas.Timestamp.utcnow",
    }
)
# These functions read the strings "now" and "today" as the time of the call.
_OF_TIMES: Final = frozenset(
    "numpy.arange numpy.busday_count numpy.busday_offset numpy.datetime64 numpy.is_busday "
    "pandas.DatetimeIndex pandas.Timestamp pandas.bdate_range pandas.date_range "
    "pandas.to_datetime".split()
)
_RANDOM: Final = frozenset({"hash", "id", "pyarrow.compute.random", "uuid.uuid1", "uuid.uuid4"})
_OUTSIDE: Final = frozenset(
    {
        "__import__",
        "breakpoint",
        "compile",
        "eval",
        "exec",
        "exit",
        "globals",
        "input",
        "numpy.fromfile",
        "numpy.load",
        "numpy.save",
        "open",
        "quit",
        "uuid.getnode",
    }
)
# Modules of which every use is impure.
_MODULES: Final[dict[str, Impurity]] = {
    "time": "wall_clock",
    "numpy.random": "random",
    "random": "random",
    "secrets": "random",
    **dict.fromkeys(
        "aiohttp asyncio boto3 builtins confluent_kafka ctypes ftplib getpass glob http httpx "
        "importlib io multiprocessing os pathlib platform psycopg pyarrow.csv pyarrow.dataset "
        "pyarrow.flight pyarrow.fs pyarrow.json pyarrow.parquet pymysql pyspark requests shutil "
        "signal smtplib socket sqlite3 ssl subprocess sys tempfile threading urllib.request "
        "urllib3".split(),
        "side_effect",
    ),
}
# Arrow functions whose result for a row depends on other rows; aggregates among them.
_OVER_ROWS: Final = frozenset(
    "all any approximate_median array_sort_indices count count_distinct fill_null_backward "
    "fill_null_forward first first_last index last max mean min min_max mode pairwise_diff "
    "partition_nth_indices pivot_wider product quantile rank rank_normal rank_quantile "
    "select_k_unstable sort_indices stddev sum tdigest top_k_unstable bottom_k_unstable unique "
    "value_counts variance winsorize kurtosis skew".split()
)
_OVER_ROWS_BEGIN: Final = ("cumulative_", "hash_")
_METHODS_OVER_ROWS: Final = frozenset(
    "cumsum cumprod drop_duplicates ffill bfill group_by groupby join_asof nunique rolling sort_by "
    "sort_values sort_index value_counts".split()
)
# Methods of pandas whose result depends on other rows. Reductions may run along a row (axis=1).
_PANDAS_OVER_ROWS: Final = frozenset(
    "cummax cummin describe diff duplicated ewm expanding factorize first_valid_index get_dummies "
    "head idxmax idxmin interpolate last_valid_index mode nlargest nsmallest pct_change pivot "
    "pivot_table rank resample sample shift tail unstack".split()
)
_PANDAS_REDUCTIONS: Final = frozenset(
    "agg aggregate all any corr count cov kurt kurtosis max mean median min prod product quantile "
    "sem skew std sum unique var".split()
)
_PANDAS_FUNCTIONS: Final = frozenset(
    "crosstab cut factorize get_dummies merge_asof merge_ordered pivot pivot_table qcut unique "
    "value_counts".split()
)
_PANDAS_WRITES: Final = frozenset(
    "to_clipboard to_csv to_excel to_feather to_gbq to_hdf to_orc to_parquet to_pickle to_sql "
    "to_stata".split()
)
# Accessors of pandas whose methods treat each value by itself.
_ACCESSORS: Final = frozenset({"cat", "dt", "list", "str", "struct"})
_ALONG_A_ROW: Final = (1, "columns")
_MUTATING: Final = frozenset(
    "add append appendleft clear discard extend insert pop popitem remove setdefault update".split()
)
_IN_ORDER: Final = frozenset(
    {"enumerate", "iter", "list", "map", "next", "reversed", "tuple", "zip"}
)


@dataclass(frozen=True, slots=True)
class Impure:
    """An impure expression, and its place in a file.

    Attributes:
        call: The expression as it is written, shortened.
        instead: A hint what to write instead, if the general hint for its kind is not enough.
    """

    kind: Impurity
    call: str
    line: int
    column: int
    instead: str = ""


def impurities(text: str, file: str = "<model>") -> tuple[Impure, ...]:
    """Find all impure expressions in a file, from top to bottom.

    Args:
        text: The content of the file.
        file: Its path, for errors.

    Raises:
        SyntaxError: The text is not valid Python.
    """
    tree = ast.parse(text, file)
    looker = _Looker(_knows_pandas(tree), [scope_of_module(tree)])
    looker.visit(tree)
    return tuple(sorted(set(looker.found), key=lambda each: (each.line, each.column, each.call)))


def _knows_pandas(tree: ast.Module) -> bool:
    """Whether the file imports pandas: only then can its methods be those of pandas."""
    modules: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules.append(node.module or "")
    return any(name.partition(".")[0] == "pandas" for name in modules)


def _is_moving_time(node: ast.expr) -> bool:
    if isinstance(node, ast.List | ast.Tuple):
        return any(map(_is_moving_time, node.elts))
    return isinstance(node, ast.Constant) and node.value in ("now", "today")


@dataclass
class _Looker(ast.NodeVisitor):
    knows_pandas: bool
    scopes: list[Scope]
    found: list[Impure] = field(default_factory=list)

    def _note(self, kind: Impurity, node: ast.AST, instead: str = "", call: str = "") -> None:
        shown = call or " ".join(ast.unparse(node).split())
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
        self.found.append(Impure(kind, shown[:60], line, column, instead))

    # --- names -----------------------------------------------------------------------------------

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            self._check_module(each.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level:
            self._note("side_effect", node, "a model is one file: put what it needs into it")
        for each in node.names:
            if each.name == "*":
                self._note("side_effect", node, "name what you import")
            elif not self._check_module(f"{node.module}.{each.name}", node):
                self._check_name(f"{node.module}.{each.name}", node)

    def _check_module(self, name: str, node: ast.AST) -> bool:
        parts = name.split(".")
        heads = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
        kind = next((_MODULES[head] for head in sorted(heads) if head in _MODULES), None)
        if kind:
            self._note(kind, node)
        return kind is not None

    def _check_name(self, name: str, node: ast.AST) -> None:
        if name in _CLOCKS:
            self._note("wall_clock", node)
        elif name in _RANDOM:
            self._note("random", node, "use zlib.crc32 or hashlib" if name == "hash" else "")
        elif name in _OUTSIDE:
            self._note("side_effect", node)
        elif name.startswith("pyarrow.compute."):
            function = name.removeprefix("pyarrow.compute.")
            if function in _OVER_ROWS or function.startswith(_OVER_ROWS_BEGIN):
                self._note("other_rows", node)
        elif name.startswith("pandas.read_"):
            self._note("side_effect", node)
        elif name.removeprefix("pandas.") in _PANDAS_FUNCTIONS and name.startswith("pandas."):
            self._note("other_rows", node)

    def _imported(self, node: ast.Name) -> str | None:
        """The full name of what a name imports; None if it is no import."""
        _, binding = found_in(self.scopes, node) or (None, None)
        return binding.stands_for if binding and binding.kind == "import" else None

    def _dotted(self, node: ast.expr) -> str | None:
        """The full name of an imported name, or an attribute of one; None for anything else."""
        if isinstance(node, ast.Name):
            return self._imported(node)
        if isinstance(node, ast.Attribute):
            inner = self._dotted(node.value)
            return f"{inner}.{node.attr}" if inner else None
        return None

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and found_in(self.scopes, node) is None:
            self._check_name(node.id, node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self._dotted(node)
        if name is not None:
            if not self._check_module(name, node):
                self._check_name(name, node)
            return
        self.generic_visit(node)

    # --- calls -----------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Attribute) and self._dotted(function) is None:
            if function.attr in _METHODS_OVER_ROWS:
                self._note("other_rows", function)
            elif self.knows_pandas:
                self._check_pandas(function, node)
            self._check_mutation(function)
            if function.attr == "join" and node.args:
                self._check_order(node.args[0])
        if isinstance(function, ast.Name) and function.id in _IN_ORDER:
            for each in node.args:
                self._check_order(each)
        given = (*node.args, *(each.value for each in node.keywords))
        if self._makes_times(node) and any(map(_is_moving_time, given)):
            self._note("wall_clock", node)
        self.generic_visit(node)

    def _makes_times(self, call: ast.Call) -> bool:
        """Whether a call of pandas or NumPy converts strings to times."""
        name = self._dotted(call.func) or ""
        kinds = [ast.unparse(each.value) for each in call.keywords if each.arg == "dtype"]
        is_typed = any("datetime64" in kind or "M8" in kind for kind in kinds)
        return name in _OF_TIMES or (is_typed and name.startswith(("numpy.", "pandas.")))

    def _check_pandas(self, function: ast.Attribute, call: ast.Call) -> None:
        owner = function.value
        if isinstance(owner, ast.Attribute) and owner.attr in _ACCESSORS:
            return
        axes = [each.value for each in call.keywords if each.arg == "axis"]
        is_along = any(isinstance(a, ast.Constant) and a.value in _ALONG_A_ROW for a in axes)
        if function.attr in _PANDAS_WRITES:
            self._note("side_effect", function)
        elif function.attr in _PANDAS_OVER_ROWS:
            self._note("other_rows", function)
        elif function.attr == "count" and call.args:
            return  # str.count or list.count, which take an argument
        elif function.attr in _PANDAS_REDUCTIONS and not is_along:
            hint = "treat each row by itself: along a row it is axis=1"
            self._note("other_rows", function, hint)

    def _check_mutation(self, function: ast.Attribute) -> None:
        owner = function.value
        if self._in_function and function.attr in _MUTATING and self._outlives(owner):
            self._note("hidden_state", function)

    def _outlives(self, node: ast.expr) -> bool:
        """Whether an object outlives a call: it belongs to the module, or to ``self``."""
        while isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        if not isinstance(node, ast.Name):
            return False
        scope, binding = found_in(self.scopes, node) or (None, None)
        is_value = scope is self.scopes[0] and binding is not None and binding.kind == "value"
        return is_value or node.id in ("self", "cls")

    @property
    def _in_function(self) -> bool:
        return any(each.kind == "function" for each in self.scopes)

    # --- sets ------------------------------------------------------------------------------------

    def _check_order(self, node: ast.expr) -> None:
        found = found_in(self.scopes, node) if isinstance(node, ast.Name) else None
        is_named = isinstance(node, ast.Name) and found is not None and node.id in found[0].sets
        if is_set(node) or is_named:
            self._note("random", node, "a set has no order: use sorted(…), or a dict")

    def visit_For(self, node: ast.For) -> None:
        self._check_order(node.iter)
        self.generic_visit(node)

    # --- state -----------------------------------------------------------------------------------

    def visit_Global(self, node: ast.Global) -> None:
        self._note("hidden_state", node)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self._note("hidden_state", node)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._check_target(target)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._check_target(node.target)
        self.generic_visit(node)

    def _check_target(self, target: ast.expr) -> None:
        is_inside = isinstance(target, ast.Attribute | ast.Subscript)
        if self._in_function and is_inside and self._outlives(target):
            self._note("hidden_state", target)

    # --- scopes ----------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._enter_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._note("side_effect", node, "write a plain function", f"async def {node.name}")
        self._enter_function(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._enter_function(node)

    def _enter_function(self, node: Function) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if isinstance(default, ast.List | ast.Dict | ast.Set):
                self._note("hidden_state", default, "a default is made once: use None or a tuple")
        # Defaults, annotations and decorators are evaluated in the enclosing scope.
        self.visit(node.args)
        if not isinstance(node, ast.Lambda):
            self._visit_each([*node.decorator_list, *([node.returns] if node.returns else [])])
        with self._within(scope_of_function(node)):
            self._visit_each(node.body if isinstance(node.body, list) else [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_each([*node.decorator_list, *node.bases, *node.keywords])
        with self._within(scope_of_class(node)):
            self._visit_each(node.body)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._enter_comprehension(node, [node.elt])

    def visit_SetComp(self, node: ast.SetComp) -> None:
        self._enter_comprehension(node, [node.elt])

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._enter_comprehension(node, [node.elt])

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._enter_comprehension(node, [node.key, node.value])

    def _enter_comprehension(self, node: Comprehension, made: list[ast.expr]) -> None:
        # The first iterable is evaluated in the enclosing scope.
        self._visit_iterable(node.generators[0].iter)
        with self._within(scope_of_comprehension(node)):
            for number, each in enumerate(node.generators):
                if number:
                    self._visit_iterable(each.iter)
                self._visit_each([each.target, *each.ifs])
            self._visit_each(made)

    def _visit_iterable(self, node: ast.expr) -> None:
        self._check_order(node)
        self.visit(node)

    def _visit_each(self, nodes: Iterable[ast.AST]) -> None:
        for each in nodes:
            self.visit(each)

    @contextmanager
    def _within(self, scope: Scope) -> Iterator[None]:
        self.scopes.append(scope)
        yield
        self.scopes.pop()
