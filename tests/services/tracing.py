"""What measures coverage: quick tests, and of the Pythons that tests start those that a test names.

Coverage doubles what a test of pure Python takes of the processor. A property runs the same lines
hundreds of times, and a slow unit test runs what quick ones run; outside `core`, which has a share
of its own to reach, both are left out. Most Pythons that tests start run what other tests run in
their own process: to measure them as well makes each start later, and what is killed loses what it
measured.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

# Tells a Python that starts to measure coverage, and how. Coverage sets it for all that follow.
_TRACING: Final = "COVERAGE_PROCESS_CONFIG"

_kept: Final[list[str]] = []

# As pytest-cov names itself, and the marker of what it is not to measure.
_MEASURING: Final = "_cov"
_LEFT_OUT: Final = "no_cover"
_UNIT: Final = Path("tests") / "unit"
_ALL_MEASURED: Final = _UNIT / "core"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes long and shows little."""
    if not config.pluginmanager.hasplugin(_MEASURING):
        return
    unit, core = config.rootpath / _UNIT, config.rootpath / _ALL_MEASURED
    for item in items:
        is_slow = item.get_closest_marker("slow") and item.path.is_relative_to(unit)
        if (is_slow or is_property(item)) and not item.path.is_relative_to(core):
            item.add_marker(_LEFT_OUT)


def is_property(item: pytest.Item) -> bool:
    """Whether a test is tried on many examples."""
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Before the first test: what tests start is not told. pytest's own processes were."""
    tracing = os.environ.pop(_TRACING, None)
    if tracing is not None:
        _kept[:] = [tracing]


@contextlib.contextmanager
def traced() -> Iterator[None]:
    """What is started meanwhile, and by that later on, measures coverage if the test does.

    For code that runs nowhere else, such as the processes behind a warm launcher.
    """
    with pytest.MonkeyPatch.context() as patch:
        for tracing in _kept:
            patch.setenv(_TRACING, tracing)
        yield
