"""Long files first, or all at random: the same order in every process, and again with its seed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

import pytest

pytest_plugins = ("pytester",)

PLUGINS = ("tests.services.durations", "tests.services.order", "tests.services.timeouts")
FILES = ("a", "b", "c", "d")
TESTS = "import pytest\n" + "".join(f"def test_{n}(): ...\n" for n in range(4))
SLOW = TESTS + "@pytest.mark.slow\ndef test_slow(): ...\n"


@pytest.fixture
def project(
    pytester: pytest.Pytester, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    """Four files of four tests each, and one of `c` that is slow."""
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath))
    pytester.makeini("[pytest]\nmarkers =\n    slow: it is\n")
    for name in FILES:
        text = SLOW if name == "c" else TESTS
        (pytester.path / f"test_{name}.py").write_text(text)
    return pytester


def run(project: pytest.Pytester, *options: str) -> list[str]:
    """The tests in the order in which they ran, after the header's line on the order."""
    plugins = [part for plugin in PLUGINS for part in ("-p", plugin)]
    result = project.runpytest_subprocess("-v", "-p", "no:cacheprovider", *plugins, *options)
    result.assert_outcomes(passed=17)
    lines = result.outlines
    header = [line for line in lines if line.startswith("random order")]
    return header + re.findall(r"(test_\w\.py::test_\w+) ?", "\n".join(without_summary(lines)))


def without_summary(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if "PASSED" in line]


def files_of(tests: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(test[5] for test in tests))


def test_without_other_processes_nothing_is_moved(project: pytest.Pytester) -> None:
    assert files_of(run(project)) == [*FILES]


@pytest.mark.parametrize(
    ("known", "first"),
    [({}, "cabd"), ({"test_d.py::test_0": 99.0, "test_b.py::test_3": 30.0}, "dbca")],
    ids=["guessed", "measured"],
)
def test_xdist_gets_the_long_files_first(
    project: pytest.Pytester, known: Mapping[str, float], first: str
) -> None:
    (project.path / ".laminar").mkdir()
    (project.path / ".laminar" / "test-durations.json").write_text(json.dumps(known))
    ran = run(project, "-n", "1", "--dist", "loadfile", "--no-loadscope-reorder")
    assert files_of(ran) == [*first]


def test_a_random_order_is_had_again_by_its_seed(project: pytest.Pytester) -> None:
    header, *ran = run(project, "--random-order")
    seed = header.rpartition("=")[2]
    again, *others = (run(project, f"--random-order={each}") for each in (seed, 1, 2, 3))
    assert again == [header, *ran]
    # By chance, two of them may be equal; not all.
    assert len({*map(tuple, others), tuple(again)}) > 1
    assert sorted(ran) == sorted(others[0][1:])


def test_all_processes_have_the_same_random_order(project: pytest.Pytester) -> None:
    """If they had not, xdist would refuse to go on."""
    assert len(run(project, "--random-order", "-n", "2", "--dist", "loadfile")) == 18


def test_a_seed_is_a_number(project: pytest.Pytester) -> None:
    plugins = [part for plugin in PLUGINS for part in ("-p", plugin)]
    result = project.runpytest_subprocess(*plugins, "--random-order=often")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "a seed is a number" in result.stderr.str() + result.stdout.str()
