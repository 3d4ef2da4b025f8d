"""The text of a model's file, and the model that it declares.

The driver reads the text in the project's folder; executors get it with their task and run it
themselves. Nothing is pickled into a store or read from one.
"""

from __future__ import annotations

import ast
import hashlib
import sys
import traceback
from dataclasses import dataclass, field
from functools import lru_cache
from types import ModuleType

from laminar_dagster.models.declarations import Declared, InvalidModel, RowModel, operator_of


@dataclass(frozen=True, slots=True)
class ModelCode:
    """A file of ``models/``.

    Attributes:
        file: Where it is, for errors.
        text: Its content.
    """

    file: str
    text: str = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """A hash of the code that ignores comments, docstrings, formatting and the file's path."""
        tree = ast.parse(self.text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and (
                ast.get_docstring(node, clean=False) is not None
            ):
                node.body = node.body[1:]
        return hashlib.sha256(ast.unparse(tree).encode("utf-8", "surrogatepass")).hexdigest()


@lru_cache(maxsize=64)
def declared(code: ModelCode) -> Declared:
    """Run a file and return the model that it declares.

    Raises:
        InvalidModel: It declares none or several, or raises SystemExit.
        Exception: Anything else that running it raises.
    """
    mark = hashlib.sha256(f"{code.file}\0{code.text}".encode("utf-8", "surrogatepass")).hexdigest()
    module = ModuleType(f"laminar_model_{mark[:16]}")
    module.__file__ = code.file
    # Dataclasses and others look up the module of a class by name in sys.modules.
    sys.modules[module.__name__] = module
    try:
        exec(compile(code.text, code.file, "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:
        del sys.modules[module.__name__]
        if isinstance(error, SystemExit):
            # Nobody catches SystemExit: the process would end without naming the file.
            reason = f"it would end the process that loads it: {error!r}"
            raise InvalidModel(reason).with_traceback(error.__traceback__) from None
        raise
    found = [each for value in vars(module).values() if (each := _declared(value)) is not None]
    if len({id(each) for each in found}) != 1:
        what = f"{len(found)} models" if found else "no model"
        raise InvalidModel(f"the file declares {what}: a file is one view")
    return found[0]


def _declared(value: object) -> Declared | None:
    return value if isinstance(value, RowModel) else operator_of(value)


def line_in(file: str, error: BaseException) -> int | None:
    """The line of a file at which an error was raised; None if it was raised elsewhere."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((each.lineno for each in reversed(frames) if each.filename == file), None)
