"""Says at the end of a run how many cases of each proof ran, and how to replay one that failed.

A test is a case of a proof when it is marked ``proof("name")``.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Generator

import pytest

# Survives the way from an xdist worker to the process that prints the summary.
_PROPERTY = "proof"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "proof(name): a case of a proof, counted in the summary.")


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
        report.user_properties.append((_PROPERTY, str(marker.args[0])))
    if report.failed:
        report.sections.append(("replay this case", replay_command(item.nodeid)))
    return report


def replay_command(node: str) -> str:
    """What runs exactly one case again."""
    java = os.environ.get("JAVA_HOME")
    prefix = f"JAVA_HOME={shlex.quote(java)} " if java else ""
    return f"{prefix}.venv/bin/python -m pytest {shlex.quote(node)}"


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, None, None]:
    """Print one line for each proof."""
    passed, failed = (_cases(terminalreporter, outcome) for outcome in ("passed", "failed"))
    if passed or failed:
        terminalreporter.write_sep("-", "proofs")
    for name in sorted(passed | failed):
        verdict = f"{passed[name]} cases hold" + (f", {failed[name]} FAIL" if failed[name] else "")
        terminalreporter.write_line(f"{name}: {verdict}", red=bool(failed[name]))
    yield


def _cases(terminalreporter: pytest.TerminalReporter, outcome: str) -> Counter[str]:
    return Counter(
        str(value)
        for report in terminalreporter.stats.get(outcome, [])
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for key, value in report.user_properties
        if key == _PROPERTY
    )
