"""Says at the end of a run how many cases of each proof ran, and how to replay one that failed.

A test is a case of a proof when it is marked ``proof("name")``. One whose cases are drawn from its
argument ``seed`` says in which variable it looks for a seed to replay: ``seed_in="VARIABLE"``.

A case of the long lane is marked ``long_lane``: `make proof` runs it, which sets
``LAMINAR_PROOF=full``, and other runs leave it out. docs/proof.md says which these are, and why
nothing is lost.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import pytest
from _pytest.mark import ParameterSet

# Which lane runs. Read here and nowhere else.
_LANE: Final = "LAMINAR_PROOF"
_FULL: Final = "full"

# Survives the way from an xdist worker to the process that prints the summary.
_PROPERTY = "proof"
_OUTCOMES = ("passed", "failed")
_REPLAY = "how to replay a seed of the proof"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers", "proof(name, seed_in=None): a case of a proof, counted in the summary."
    )
    config.addinivalue_line(
        "markers", f"long_lane: a case that runs with {_LANE}={_FULL} alone, as in `make proof`."
    )


def is_long_lane() -> bool:
    """Whether this run is the long lane.

    Raises:
        pytest.UsageError: The variable says something else, and whoever set it wanted something.
    """
    match os.environ.get(_LANE, ""):
        case "":
            return False
        case value if value == _FULL:
            return True
        case other:
            raise pytest.UsageError(f"{_LANE} is {other!r}: there is {_FULL!r} alone")


def with_long_lane(usual: Iterable[object], further: Iterable[object]) -> list[ParameterSet]:
    """The values of a parameter: the usual ones, and those that the long lane adds to them."""
    return [
        *map(pytest.param, usual),
        *(pytest.param(value, marks=pytest.mark.long_lane) for value in further),
    ]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the cases of the long lane to it."""
    if is_long_lane():
        return
    left = [item for item in items if item.get_closest_marker("long_lane")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("long_lane")]


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
    settings = {_LANE: _FULL} if item.get_closest_marker("long_lane") else {}
    variable = marker.kwargs.get("seed_in")
    if variable and isinstance(item, pytest.Function):
        settings[variable] = str(item.callspec.params["seed"])
    return replay_command(item.nodeid, settings)


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
