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


LANES = """
import pytest
from tests.services.proofs import with_long_lane

@pytest.mark.proof("sums")
@pytest.mark.parametrize("right", with_long_lane([2], [3, 4]))
def test_sum(right): assert 1 + 1 == right
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


def _run_lanes(pytester: pytest.Pytester, *more: str) -> pytest.RunResult:
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(LANES)
    return pytester.runpytest_inprocess("-p", "tests.services.proofs", "--strict-markers", *more)


def test_the_long_lane_is_left_out(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAMINAR_PROOF", raising=False)
    _run_lanes(pytester).assert_outcomes(passed=1, deselected=2)


def test_the_long_lane_runs_everything_and_says_how_to_replay(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAMINAR_PROOF", "full")
    result = _run_lanes(pytester)
    result.assert_outcomes(passed=1, failed=2)
    text = result.stdout.str()
    assert text.count("LAMINAR_PROOF=full .venv/bin/python -m pytest") == 2
    assert "sums: 1 cases hold, 2 FAIL" in text


def test_a_lane_that_there_is_not_is_refused(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAMINAR_PROOF", "1")
    result = _run_lanes(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "LAMINAR_PROOF is '1': there is 'full' alone" in result.stderr.str()
