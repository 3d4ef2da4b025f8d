"""A missing service is a loud skip at home and a failure in CI."""

from __future__ import annotations

import pytest

pytest_plugins = ("pytester",)

SUITE = """
import pytest
from infra.errors import ServiceUnavailable

@pytest.fixture(scope="session")
def database():
    raise ServiceUnavailable("database", "install it")

def test_one(database): ...
def test_two(database): ...
def test_in_the_test_itself(): raise ServiceUnavailable("queue", "buy one")
def test_without(): ...
"""
BROKEN = """
from infra.errors import ServiceFailed

def test_broken(): raise ServiceFailed("database", "it crashed")
"""


@pytest.fixture
def suite(
    pytester: pytest.Pytester, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    # The options of the enclosing run are not for the run inside.
    pytester.makeini("[pytest]\n")
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath))
    return pytester


def run(suite: pytest.Pytester, *options: str) -> pytest.RunResult:
    plugins = ["-p", "tests.services.summary", "-p", "no:cacheprovider"]
    return suite.runpytest_inprocess(*plugins, *options)


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["serial", "xdist"])
def test_skips_are_loud(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: list[str]
) -> None:
    monkeypatch.delenv("CI", raising=False)
    suite.makepyfile(SUITE)
    result = run(suite, *workers)
    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines(
        [
            "*NOT TESTED: SERVICES ARE MISSING*",
            "2 skipped: database: install it",
            "1 skipped: queue: buy one",
            "With CI=true these are failures.",
        ]
    )


def test_ci_fails(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    suite.makepyfile(SUITE)
    result = run(suite)
    result.assert_outcomes(passed=1, failed=1, errors=2)
    result.stdout.fnmatch_lines(["*SERVICES ARE MISSING*", "2 failed: database: install it"])


def test_a_service_that_is_broken_is_never_skipped(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    suite.makepyfile(BROKEN)
    run(suite).assert_outcomes(failed=1)


def test_all_is_quiet_when_nothing_is_missing(suite: pytest.Pytester) -> None:
    suite.makepyfile("def test_one(): ...")
    result = run(suite)
    result.stdout.no_fnmatch_line("*SERVICES ARE MISSING*")
