"""A test's timeout grows with the load of the machine, as every deadline does (`infra/load.py`)."""

from __future__ import annotations

from typing import Any

import pytest

from infra.load import crowding


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> object:
    """Set pytest-timeout's own timer, later on a busy machine."""
    timer: Any = item.config.pluginmanager.getplugin("timeout")
    later = settings._replace(timeout=settings.timeout * crowding())
    found: object = timer.pytest_timeout_set_timer(item, later)
    return found
