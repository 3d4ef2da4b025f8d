"""Which of the Pythons that tests start measure coverage: those that a test has measured.

Most of them run what other tests run in their own process. To measure them as well makes each start
later and run slower, and what is killed loses what it measured.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final

import pytest

# Tells a Python that starts to measure coverage, and how. Coverage sets it for all that follow.
_TRACING: Final = "COVERAGE_PROCESS_CONFIG"

_kept: Final[list[str]] = []


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
