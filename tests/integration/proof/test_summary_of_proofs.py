"""The end of a run says how many cases of a proof ran, and a failed one how to replay it."""

from __future__ import annotations

import pytest

pytest_plugins = ("pytester",)

SUITE = """
import pytest

@pytest.mark.proof("sums")
@pytest.mark.parametrize("right", [2, 2, 3])
def test_sum(right): assert 1 + 1 == right

@pytest.mark.proof("seeds", seed_in="SEED_OF_SUMS")
@pytest.mark.parametrize("seed", [3, 4])
def test_seed(seed): assert seed != 4

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
    result.assert_outcomes(passed=3, failed=3)
    result.stdout.fnmatch_lines(["sums: 2 cases hold, 1 FAIL"])
    text = result.stdout.str()
    assert text.count("replay this case") == 2
    assert f"-m pytest '{suite.name}::test_sum[[]3]'".replace("[[]", "[") in text
    assert "seeds: 1 cases hold, 1 FAIL\n  any of them again, by its seed: " in text
    assert f"SEED_OF_SUMS=SEED .venv/bin/python -m pytest {suite.name}\n" in text
    assert f"SEED_OF_SUMS=4 .venv/bin/python -m pytest '{suite.name}::test_seed[4]'" in text
