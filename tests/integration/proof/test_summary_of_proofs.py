"""The end of a run says how many cases of a proof ran, and a failed one how to replay it."""

from __future__ import annotations

import pytest

pytest_plugins = ("pytester",)

SUITE = """
import pytest

@pytest.mark.proof("sums")
@pytest.mark.parametrize("right", [2, 2, 3])
def test_sum(right): assert 1 + 1 == right

def test_no_case(): assert False
"""


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["serial", "xdist"])
def test_cases_are_counted(
    pytester: pytest.Pytester,
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
    workers: list[str],
) -> None:
    pytester.makeini("[pytest]\n")
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath))
    suite = pytester.makepyfile(SUITE)
    plugins = ["-p", "tests.services.proofs", "-p", "no:cacheprovider"]
    result = pytester.runpytest_inprocess(*plugins, *workers)
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["sums: 2 cases hold, 1 FAIL"])
    text = result.stdout.str()
    assert text.count("replay this case") == 1
    assert f"-m pytest '{suite.name}::test_sum[[]3]'".replace("[[]", "[") in text
