"""A test is given more time on a busy machine."""

from __future__ import annotations

import pytest

pytest_plugins = ("pytester",)

BUSY = """
import os
os.getloadavg = lambda: (%s * os.cpu_count(), 0.0, 0.0)
pytest_plugins = ("tests.services.timeouts",)
"""
TEST = "import time\ndef test_it(): time.sleep(1.5)\n"


@pytest.mark.parametrize(("load", "passed", "failed"), [(0.0, 0, 1), (20.0, 1, 0)])
def test_a_timeout_grows_with_the_load(
    pytester: pytest.Pytester,
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
    load: float,
    passed: int,
    failed: int,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath))
    pytester.makeini("[pytest]\ntimeout = 1\n")
    pytester.makeconftest(BUSY % load)
    pytester.makepyfile(TEST)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=passed, failed=failed)
