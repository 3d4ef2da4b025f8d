"""What the package exports, and that importing it stays cheap."""

from __future__ import annotations

import subprocess
import sys

import pytest

import laminar_dagster


def test_exports_are_what_they_are_called() -> None:
    # `laminar.open` reads well there; below, it would shadow what Python opens.
    called = {"open": "open_project"}
    for name in laminar_dagster.__all__:
        assert getattr(laminar_dagster, name).__name__ == called.get(name, name)
        assert name in dir(laminar_dagster)


def test_another_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Pipelines'"):
        _ = laminar_dagster.Pipelines


def test_the_package_itself_imports_nothing_heavy() -> None:
    code = (
        "import sys, laminar_dagster; dir(laminar_dagster);"
        " print([each for each in ('dagster', 'pyspark', 'pyarrow') if each in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
