"""Where the time of a test run goes: the slowest tests, what fixtures and services take, folders.

Every run adds what it measured to `.laminar/test-durations.json`: the seconds of each test, shared
fixture and service when it last ran, so the next run can say what has become slower. Nothing is
asserted of a time.

A test's seconds are those of its set-up, its body and its tear-down together; what the fixtures of
a session or a module took is told apart, since the first test that asks for one pays for all.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

import pytest

# Survives the way from an xdist worker to the process that prints.
_PROPERTY: Final = "seconds of a fixture"
FILE: Final = Path(".laminar") / "test-durations.json"
# What stands before the names of what is no test.
_FIXTURE: Final = "fixture "
_SERVICE: Final = "service "
_MOST: Final = 50
# Below this a test or a fixture is not worth a line.
_NOTEWORTHY: Final = 0.5
# A test has become slower if it takes so many times as long, and so many seconds more.
_TIMES: Final = 1.5
_SECONDS: Final = 5.0

_shared_fixtures: Final = pytest.StashKey[list[tuple[str, float]]]()
# Seconds that each service took to start, where the owner of the services is.
START_UPS: Final = pytest.StashKey[dict[str, float]]()
_measured: Final = pytest.StashKey["Durations"]()


# Pytest keeps plug-ins in sets.
@dataclass(slots=True, eq=False)
class Durations:
    """What one run measured.

    Attributes:
        tests: Seconds by test, less what fixtures took that it shares with others.
        fixtures: Seconds by fixture of a session, package or module, and how often it was set up.
        services: Seconds that a service took to start, once for all processes.
        started: When the run began, of a clock that only counts.
    """

    tests: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    fixtures: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    set_ups: Counter[str] = field(default_factory=Counter)
    services: dict[str, float] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    def add(self, report: pytest.TestReport) -> None:
        """Count one phase of a test."""
        self.tests[report.nodeid] += report.duration
        for key, value in report.user_properties:
            if key == _PROPERTY and report.when == "setup":
                name, _, seconds = str(value).rpartition(" ")
                self.fixtures[name] += float(seconds)
                self.set_ups[name] += 1
                self.tests[report.nodeid] -= float(seconds)

    def by_name(self) -> Mapping[str, float]:
        """All of it, by the names under which it is kept."""
        return {
            **self.tests,
            **{f"{_FIXTURE}{name}": seconds for name, seconds in self.fixtures.items()},
            **{f"{_SERVICE}{name}": seconds for name, seconds in self.services.items()},
        }

    def by_folder(self) -> Mapping[str, float]:
        """Seconds of tests by the folder that their file is in."""
        folders: defaultdict[str, float] = defaultdict(float)
        for test, seconds in self.tests.items():
            folders[str(PurePosixPath(test.partition("::")[0]).parent)] += seconds
        return folders


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Time a fixture that several tests share."""
    inner = request.config.stash.setdefault(_shared_fixtures, [])
    already, began = sum(seconds for _, seconds in inner), time.perf_counter()
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            # What it asked for in turn has been counted under its own name.
            within = sum(seconds for _, seconds in inner) - already
            inner.append((fixturedef.argname, time.perf_counter() - began - within))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Hand over what was set up for this test."""
    report = yield
    if report.when == "setup":
        for name, seconds in item.config.stash.get(_shared_fixtures, []):
            report.user_properties.append((_PROPERTY, f"{name} {seconds:.3f}"))
        item.config.stash[_shared_fixtures] = []
    return report


def pytest_configure(config: pytest.Config) -> None:
    """Begin to measure, in the process that hears of every test: xdist's others only report."""
    if hasattr(config, "workerinput"):
        return
    config.stash[_measured] = durations = Durations()
    config.pluginmanager.register(_Reports(durations), "durations of this run")


# pytest puts its plug-ins into sets.
@dataclass(frozen=True, slots=True, eq=False)
class _Reports:
    """Hears of every report, also of those that xdist's processes send."""

    durations: Durations

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.durations.add(report)


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None, None, None]:
    """Print where the time went, beside the last run, and keep it."""
    yield
    durations, file = config.stash.get(_measured, None), config.rootpath / FILE
    if durations is None or not durations.tests:
        return
    durations.services = config.stash.setdefault(START_UPS, {})
    before = read(file)
    lines = list(describe(durations, before))
    if lines:
        terminalreporter.write_sep("-", "where the time went")
    for line in lines:
        terminalreporter.write_line(line)
    keep(file, durations, before)


def describe(durations: Durations, before: Mapping[str, float]) -> Iterable[str]:
    """The lines of the summary; none for a run in which nothing took long."""
    tests, fixtures = (
        [(name, seconds) for name, seconds in _slowest_first(of)[:_MOST] if seconds >= _NOTEWORTHY]
        for of in (durations.tests, durations.fixtures)
    )
    if not tests and not fixtures:
        return
    yield f"{time.monotonic() - durations.started:.0f} s in all; added up over all processes:"
    for folder, seconds in _slowest_first(durations.by_folder()):
        yield f"{seconds:8.1f} s  {folder}"
    yield f"{sum(durations.fixtures.values()):8.1f} s  fixtures that several tests share"
    if durations.services:
        yield f"{sum(durations.services.values()):8.1f} s  services that started, each once:"
        for name, seconds in _slowest_first(durations.services):
            yield f"{seconds:8.1f} s    {name}"
    yield f"slowest fixtures that several tests share (of {len(durations.fixtures)}):"
    for name, seconds in fixtures:
        yield f"{seconds:8.1f} s  {name}, set up {durations.set_ups[name]} times"
    yield f"slowest tests (of {len(durations.tests)}):"
    for name, seconds in tests:
        yield f"{seconds:8.1f} s  {name}"
    known = [name for name in durations.tests if name in before]
    now, then = (sum(of[name] for name in known) for of in (durations.tests, before))
    yield f"{len(known)} tests ran before: {now:.0f} s now, {then:.0f} s when they last did"
    slower = [
        (name, seconds)
        for name, seconds in durations.by_name().items()
        if name in before and seconds > max(before[name] * _TIMES, before[name] + _SECONDS)
    ]
    for name, seconds in slower[:_MOST]:
        yield f"  slower: {before[name]:.1f} s, now {seconds:.1f} s: {name}"


def _slowest_first(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda item: -item[1])


def read(file: Path) -> Mapping[str, float]:
    """Seconds by name, as they were kept; nothing if no run was, or not to be read."""
    try:
        return {str(name): float(took) for name, took in json.loads(file.read_bytes()).items()}
    except (FileNotFoundError, ValueError, AttributeError, TypeError):
        return {}


def keep(file: Path, durations: Durations, before: Mapping[str, float]) -> None:
    """Write what is known of fixtures, services, and every test whose file is still there.

    A run that is killed here leaves the file as it was.
    """
    root = file.parent.parent
    kept = {
        name: took
        for name, took in before.items()
        if name.startswith((_FIXTURE, _SERVICE)) or (root / _file_of(name)).is_file()
    }
    kept |= {name: round(took, 3) for name, took in durations.by_name().items()}
    file.parent.mkdir(exist_ok=True)
    written = file.with_name(f"{file.name}.{os.getpid()}")
    written.write_text(json.dumps(kept, indent=0, sort_keys=True), encoding="utf-8")
    written.replace(file)


def _file_of(test: str) -> str:
    return test.partition("::")[0]
