"""A test's timeout grows with the load of the machine, as every deadline does (`infra/load.py`).

Without pytest-timeout, which the extra `testing` does not bring, the watchdog alone ends a test.
"""

from __future__ import annotations

import importlib.util
from typing import Any, Final

import pytest

from infra.load import crowding

_IS_MISSING: Final = importlib.util.find_spec("pytest_timeout") is None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Make the setting known where pytest-timeout does not."""
    if _IS_MISSING:
        parser.addini("timeout", "Seconds after which a test is ended.", default="0")


def pytest_configure(config: pytest.Config) -> None:
    """The same for the marker."""
    if _IS_MISSING:
        config.addinivalue_line("markers", "timeout(seconds): after which this test is ended.")


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> object:
    """Set pytest-timeout's own timer, later on a busy machine."""
    timer: Any = item.config.pluginmanager.getplugin("timeout")
    later = settings._replace(timeout=settings.timeout * crowding())
    found: object = timer.pytest_timeout_set_timer(item, later)
    return found
