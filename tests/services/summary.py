"""What happens when a service is missing: a loud skip at home, a failure under ``CI=true``.

A fixture or test simply lets `ServiceUnavailable` through. A suite that skips quietly reports
success for what it never tried, so the end of the run names every missing service.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator

import pytest

from infra.errors import ServiceUnavailable

# Survives the way from an xdist worker to the process that prints the summary.
_PROPERTY = "service_unavailable"


def services_are_required() -> bool:
    """Tell whether a missing service has to fail the run."""
    return os.environ.get("CI") == "true"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a missing service into a skip, or into a failure that says so in one line."""
    report = yield
    if call.excinfo is None or not isinstance(call.excinfo.value, ServiceUnavailable):
        return report
    missing = call.excinfo.value
    report.user_properties.append((_PROPERTY, str(missing)))
    if services_are_required():
        report.longrepr = f"service unavailable, and CI=true requires it: {missing}"
    else:
        path, line, _ = item.location
        report.outcome = "skipped"
        report.longrepr = (path, (line or 0) + 1, f"service unavailable: {missing}")
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, None, None]:
    """Print what is missing after everything else, where it is still on the screen."""
    yield
    _name_missing_services(terminalreporter)


def _name_missing_services(terminalreporter: pytest.TerminalReporter) -> None:
    """Name each missing service, why it is missing, and how many tests did not run for it."""
    missing = Counter(
        str(value)
        for category in ("skipped", "failed", "error")
        for report in terminalreporter.stats.get(category, [])
        if isinstance(report, pytest.TestReport)
        for key, value in report.user_properties
        if key == _PROPERTY
    )
    if not missing:
        return
    required = services_are_required()
    colour = {"red": True} if required else {"yellow": True}
    terminalreporter.write_sep("!", "NOT TESTED: SERVICES ARE MISSING", bold=True, **colour)
    verdict = "failed" if required else "skipped"
    for reason, count in sorted(missing.items()):
        terminalreporter.write_line(f"{count} {verdict}: {reason}", **colour)
    if not required:
        terminalreporter.write_line("With CI=true these are failures.", **colour)
