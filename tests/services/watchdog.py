"""Ends a process of the tests that hangs where no exception reaches it, and says where it hung.

pytest-timeout raises an exception in the main thread. Who waits within a C library, or for a lock
that nobody releases, does not hear it, and the whole run would stand still. So a timer that needs
no thread of Python prints where every thread is, and ends the process. xdist reports the test as
failed, and goes on in another one. The same guards the end of a process, when its tests are over.
On a busy machine it waits longer, as pytest-timeout does (`tests/services/timeouts.py`).
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator
from typing import Final

import pytest

from infra.load import crowding

# What a test may take to clean up after its own timeout, and a process after its last test.
_GRACE: Final = 90.0
_FAREWELL: Final = 240.0

_stderr: Final = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the way to the terminal: while a test runs, standard error leads elsewhere."""
    config.stash[_stderr] = os.dup(2)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Watch a test, its fixtures included."""
    _watch(item.config, limit_of(item) + _GRACE)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Watch what is left: fixtures of the session, threads, what libraries do at exit."""
    _watch(session.config, _FAREWELL)


def limit_of(item: pytest.Item) -> float:
    """After how many seconds pytest-timeout interrupts a test: its own limit, or everybody's."""
    marker = item.get_closest_marker("timeout")
    if marker is not None and marker.args:
        return float(marker.args[0])
    return float(item.config.getini("timeout"))


def _watch(config: pytest.Config, seconds: float) -> None:
    later = seconds * crowding()
    faulthandler.dump_traceback_later(later, file=config.stash[_stderr], exit=True)
