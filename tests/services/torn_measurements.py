"""Leaves out of the sum what a process was killed over while it wrote down its coverage.

Such a file is half a database, at which coverage warns, or stops. A whole one is known by its name:
coverage adds the hash of what is in it when all is written.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

# As pytest-cov names itself.
_MEASURING = "_cov"


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """After the last test, within pytest-cov's own hook: that sums up next."""
    result = yield
    measuring = session.config.pluginmanager.getplugin(_MEASURING)
    controller = getattr(measuring, "cov_controller", None)
    if controller is not None and not hasattr(session.config, "workerinput"):
        for file in torn_files(Path(controller.cov.get_option("run:data_file"))):
            file.unlink()
    return result


def torn_files(data_file: Path) -> Iterator[Path]:
    """What processes that ended too early left beside the file of all coverage."""
    # Only who measures needs it: the tests also run where it is not installed.
    from coverage.sqldata import filename_match

    for file in data_file.parent.glob(f"{data_file.name}.*"):
        named = filename_match(file.name)
        if named is not None and not named["hash"]:
            yield file
