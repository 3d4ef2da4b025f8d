"""What in a model's text could give another answer when it is run again, or cut otherwise.

The text alone is looked at, before any of it runs. Names are followed through ``import … as``, so
``from datetime import datetime as d`` hides nothing; what is reached through ``getattr`` or another
package is not seen here. ``calls`` finds some of that when it runs, ``verify`` the rest.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

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
# They take the texts "now" and "today" for the time of the call.
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
        "globals",
        "input",
        "numpy.fromfile",
        "numpy.load",
        "numpy.save",
        "open",
        "uuid.getnode",
    }
)
# Whole modules, with all that is in them.
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
# Functions of Arrow that look at all rows of what they are given; aggregates among them.
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
# Methods of pandas, of which the latter look along a row where they are told so.
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
# What follows these is done with each value by itself.
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
    """A place in a file.

    Attributes:
        call: As it is written, in short.
        instead: What to write, where there is more to say than for its kind.
    """

    kind: Impurity
    call: str
    line: int
    column: int
    instead: str = ""


def impurities(text: str) -> tuple[Impure, ...]:
    """Everything in a file that is not a function of its arguments, from top to bottom.

    Raises:
        SyntaxError: It is no Python.
    """
    tree = ast.parse(text)
    looker = _Looker(_imported(tree), _module_names(tree), _sets(tree))
    looker.visit(tree)
    return tuple(sorted(set(looker.found), key=lambda each: (each.line, each.column, each.call)))


def _imported(tree: ast.Module) -> dict[str, str]:
    """What each imported name stands for."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                name = each.name if each.asname else each.name.partition(".")[0]
                known[each.asname or name] = name
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                known[each.asname or each.name] = f"{node.module}.{each.name}"
    return known


def _module_names(tree: ast.Module) -> frozenset[str]:
    """The names that the module itself gives to values."""
    found: set[str] = set()
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets = [node.target]
        for target in targets:
            found |= {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}
    return frozenset(found)


def _sets(tree: ast.Module) -> frozenset[str]:
    """Names to which somewhere a set is given."""
    return frozenset(
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_set(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    )


def _is_set(node: ast.expr) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("set", "frozenset")
    )


def _is_moving_time(node: ast.expr) -> bool:
    if isinstance(node, ast.List | ast.Tuple):
        return any(map(_is_moving_time, node.elts))
    return isinstance(node, ast.Constant) and node.value in ("now", "today")


@dataclass
class _Looker(ast.NodeVisitor):
    imported: dict[str, str]
    of_module: frozenset[str]
    sets: frozenset[str]
    found: list[Impure] = field(default_factory=list)
    _functions: list[ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda] = field(
        default_factory=list
    )

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

    def _dotted(self, node: ast.expr) -> str | None:
        """What a name or an attribute stands for, as far as imports tell."""
        if isinstance(node, ast.Name):
            return self.imported.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            inner = self._dotted(node.value)
            root = node.value
            while isinstance(root, ast.Attribute):
                root = root.value
            is_imported = isinstance(root, ast.Name) and root.id in self.imported
            return f"{inner}.{node.attr}" if inner and is_imported else None
        return None

    def visit_Name(self, node: ast.Name) -> None:
        is_builtin = node.id not in self.imported and node.id not in self.of_module
        if isinstance(node.ctx, ast.Load) and is_builtin:
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
            elif self._knows_pandas:
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
        """Whether a function of pandas or NumPy makes times of texts."""
        name = self._dotted(call.func) or ""
        kinds = [ast.unparse(each.value) for each in call.keywords if each.arg == "dtype"]
        is_typed = any("datetime64" in kind or "M8" in kind for kind in kinds)
        return name in _OF_TIMES or (is_typed and name.startswith(("numpy.", "pandas.")))

    @property
    def _knows_pandas(self) -> bool:
        return any(name.partition(".")[0] == "pandas" for name in self.imported.values())

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
            return  # of a text or a list
        elif function.attr in _PANDAS_REDUCTIONS and not is_along:
            hint = "treat each row by itself: along a row it is axis=1"
            self._note("other_rows", function, hint)

    def _check_mutation(self, function: ast.Attribute) -> None:
        owner = function.value
        if self._functions and function.attr in _MUTATING and self._outlives(owner):
            self._note("hidden_state", function)

    def _outlives(self, node: ast.expr) -> bool:
        """Whether something is there longer than a call: of the module, or of ``self``."""
        while isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        if not isinstance(node, ast.Name):
            return False
        return node.id in ("self", "cls") or (
            node.id in self.of_module and not self._is_local(node.id)
        )

    def _is_local(self, name: str) -> bool:
        return any(name in _bound_in(function) for function in self._functions)

    # --- sets ------------------------------------------------------------------------------------

    def _check_order(self, node: ast.expr) -> None:
        if _is_set(node) or (isinstance(node, ast.Name) and node.id in self.sets):
            self._note("random", node, "a set has no order: use sorted(…), or a dict")

    def visit_For(self, node: ast.For) -> None:
        self._check_order(node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
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
        if self._functions and is_inside and self._outlives(target):
            self._note("hidden_state", target)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._enter(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._note("side_effect", node, "write a plain function", f"async def {node.name}")
        self._enter(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._enter(node)

    def _enter(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if isinstance(default, ast.List | ast.Dict | ast.Set):
                self._note("hidden_state", default, "a default is made once: use None or a tuple")
        self._functions.append(node)
        self.generic_visit(node)
        self._functions.pop()


def _bound_in(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Iterator[str]:
    """The names that a function gives to values of its own."""
    arguments = function.args
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        yield each.arg
    yield from (each.arg for each in (arguments.vararg, arguments.kwarg) if each)
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
