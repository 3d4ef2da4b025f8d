"""In which order the tests run: long files first, or at random.

xdist hands out whole files, in the order in which they were collected. With the long ones first,
the short ones fill the end, and no process works on alone. How long a file takes is what its tests
took when they last ran here (`tests/services/durations.py`), or is guessed of their markers.

``--random-order`` shuffles the files, and the tests of each file, and says how to have the same
order again: ``--random-order=SEED``. A test that passes in one order alone is a bug.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, Final, Protocol

import pytest

from tests.services import durations

_OPTION: Final = "--random-order"
_NEW: Final = "random"
# What the processes of a run have to agree upon.
_SEED: Final = "seed of the order"
_KNOWN: Final = "seconds by file"

# Seconds of a test that has not run here; a marker is all that is known of it.
_GUESSED: Final = 0.3
_GUESSED_SLOW: Final = 8.0
# Their files share a server that takes long to start: one after the other in the same process, they
# start it once.
_TOGETHER: Final = (PurePosixPath("tests/integration/dagster"),)

_seed: Final = pytest.StashKey[int | None]()
_known: Final = pytest.StashKey[Mapping[str, float]]()


class _Worker(Protocol):
    """What xdist tells of a worker that it is about to start."""

    config: pytest.Config
    workerinput: dict[str, Any]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption(
        _OPTION,
        nargs="?",
        const=_NEW,
        default=None,
        metavar="SEED",
        help="run files and their tests in random order; a SEED gives the same order again",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose a seed, and look up what is known, once for all processes."""
    told = getattr(config, "workerinput", None)
    if told is not None:
        config.stash[_seed], config.stash[_known] = told[_SEED], told[_KNOWN]
        return
    config.stash[_seed] = _chosen(config.getoption(_OPTION))
    config.stash[_known] = _by_file(durations.read(config.rootpath / durations.FILE))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: _Worker) -> None:
    """Tell a worker: the file of durations may be written meanwhile."""
    stash = node.config.stash
    known: dict[str, float] = dict(stash[_known].items())
    node.workerinput |= {_SEED: stash[_seed], _KNOWN: known}


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say which order it is."""
    seed = config.stash[_seed]
    return None if seed is None else f"random order; the same again with {_OPTION}={seed}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests in order."""
    seed = config.stash[_seed]
    if seed is not None:
        items[:] = shuffled(items, seed)
    elif hasattr(config, "workerinput"):
        items[:] = long_files_first(items, config.stash[_known])


def shuffled(items: Iterable[pytest.Item], seed: int) -> list[pytest.Item]:
    """The files in random order, and the tests of each; the same for a seed in every process."""
    dice = random.Random(seed)
    files = _files(items)
    names = sorted(files)
    dice.shuffle(names)
    for name in names:
        dice.shuffle(files[name])
    return [item for name in names for item in files[name]]


def long_files_first(items: Iterable[pytest.Item], known: Mapping[str, float]) -> list[pytest.Item]:
    """The files that take longest first, each as it was."""
    files = _files(items)
    seconds = {name: known.get(name) or _guess(tests) for name, tests in files.items()}
    longest: defaultdict[str, float] = defaultdict(float)
    for name, took in seconds.items():
        longest[_group(name)] = max(longest[_group(name)], took)
    names = sorted(
        files, key=lambda name: (-longest[_group(name)], _group(name), -seconds[name], name)
    )
    return [item for name in names for item in files[name]]


def _files(items: Iterable[pytest.Item]) -> dict[str, list[pytest.Item]]:
    files: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.nodeid.partition("::")[0]].append(item)
    return files


def _group(file: str) -> str:
    folder = PurePosixPath(file).parent
    return str(folder) if folder in _TOGETHER else file


def _guess(tests: Iterable[pytest.Item]) -> float:
    return sum(_GUESSED_SLOW if test.get_closest_marker("slow") else _GUESSED for test in tests)


def _by_file(tests: Mapping[str, float]) -> Mapping[str, float]:
    files: defaultdict[str, float] = defaultdict(float)
    for test, seconds in tests.items():
        files[test.partition("::")[0]] += seconds
    return files


def _chosen(option: str | None) -> int | None:
    if option is None:
        return None
    if option == _NEW:
        return int.from_bytes(os.urandom(4))
    if not option.isdecimal():
        raise pytest.UsageError(f"{_OPTION}={option}: a seed is a number")
    return int(option)
