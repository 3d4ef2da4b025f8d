"""Says at the end of a run how many cases of each proof ran, and how to replay one that failed.

A test is a case of a proof when it is marked ``proof("name")``. One whose cases are drawn from its
argument ``seed`` says in which variable it looks for a seed to replay: ``seed_in="VARIABLE"``.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from types import MappingProxyType

import pytest

# Survives the way from an xdist worker to the process that prints the summary.
_PROPERTY = "proof"
_OUTCOMES = ("passed", "failed")
_REPLAY = "how to replay a seed of the proof"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers", "proof(name, seed_in=None): a case of a proof, counted in the summary."
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tell which proof a case belongs to, and how to replay it."""
    report = yield
    marker = item.get_closest_marker("proof")
    if marker is None:
        return report
    if report.when == "call":
        report.user_properties.append((_PROPERTY, name := str(marker.args[0])))
        if variable := marker.kwargs.get("seed_in"):
            file = item.nodeid.partition("::")[0]
            told = f"{name}\0{replay_command(file, {variable: 'SEED'})}"
            report.user_properties.append((_REPLAY, told))
    if report.failed:
        report.sections.append(("replay this case", _command_for(item, marker)))
    return report


def _command_for(item: pytest.Item, marker: pytest.Mark) -> str:
    variable = marker.kwargs.get("seed_in")
    if not variable or not isinstance(item, pytest.Function):
        return replay_command(item.nodeid)
    return replay_command(item.nodeid, {variable: str(item.callspec.params["seed"])})


def replay_command(node: str, variables: Mapping[str, str] = MappingProxyType({})) -> str:
    """What runs exactly one case again."""
    java = os.environ.get("JAVA_HOME")
    settings = {"JAVA_HOME": java, **variables} if java else variables
    prefix = "".join(f"{name}={shlex.quote(value)} " for name, value in settings.items())
    return f"{prefix}.venv/bin/python -m pytest {shlex.quote(node)}"


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, None, None]:
    """Print one line for each proof."""
    passed, failed = (
        Counter(_properties(terminalreporter, outcome, _PROPERTY)) for outcome in _OUTCOMES
    )
    by_seed = dict(
        told.split("\0", 1)
        for outcome in _OUTCOMES
        for told in _properties(terminalreporter, outcome, _REPLAY)
    )
    if passed or failed:
        terminalreporter.write_sep("-", "proofs")
    for name in sorted(passed | failed):
        verdict = f"{passed[name]} cases hold" + (f", {failed[name]} FAIL" if failed[name] else "")
        terminalreporter.write_line(f"{name}: {verdict}", red=bool(failed[name]))
        if name in by_seed:
            terminalreporter.write_line(f"  any of them again, by its seed: {by_seed[name]}")
    yield


def _properties(
    terminalreporter: pytest.TerminalReporter, outcome: str, wanted: str
) -> Iterator[str]:
    """A property of every case that ended so."""
    for report in terminalreporter.stats.get(outcome, []):
        if isinstance(report, pytest.TestReport) and report.when == "call":
            yield from (str(value) for key, value in report.user_properties if key == wanted)
