"""A run says where its time went, and what has become slower since a test last ran."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.services.durations import Durations, describe, keep, read

pytest_plugins = ("pytester",)

SUITE = """
import pytest, time

@pytest.fixture(scope="session")
def server():
    time.sleep(0.6)

@pytest.fixture(scope="module")
def table(server):
    time.sleep(0.1)

def test_pays_for_the_server(table): ...
def test_comes_after(table): ...
def test_slow(): time.sleep(0.55)
"""


def measured(tests: Mapping[str, float]) -> Durations:
    return Durations(tests=defaultdict(float, tests))


def test_folders_with_plug_ins_of_their_own_are_measured_too(
    pytester: pytest.Pytester, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For these, pytest puts its plug-ins into sets."""
    pytester.makeini("[pytest]\n")
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath))
    for folder in ("a", "b"):
        pytester.mkpydir(folder)
        (pytester.path / folder / "conftest.py").write_text(
            "def pytest_runtest_logreport(report): ..."
        )
        (pytester.path / folder / "test_it.py").write_text("def test_it(): ...")
    result = pytester.runpytest_inprocess(
        "-p", "tests.services.durations", "-p", "no:cacheprovider"
    )
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize("processes", [[], ["-n", "1"]], ids=["serial", "xdist"])
def test_a_run_is_described_and_kept(
    pytester: pytest.Pytester,
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
    processes: list[str],
) -> None:
    pytester.makeini("[pytest]\n")
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath))
    pytester.makepyfile(SUITE)
    plugins = ["-p", "tests.services.durations", "-p", "no:cacheprovider"]
    result = pytester.runpytest_inprocess(*plugins, *processes)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [
            "*where the time went*",
            "* s  fixtures that several tests share",
            "* s  server, set up 1 times",
            "slowest tests (of 3):",
            "* s  *::test_slow",
            "0 tests ran before: *",
        ]
    )
    kept = read(pytester.path / ".laminar" / "test-durations.json")
    assert {name.rpartition("::")[2] for name in kept} == {
        "test_pays_for_the_server",
        "test_comes_after",
        "test_slow",
        "fixture server",
        "fixture table",
    }
    by_test = {name.rpartition("::")[2]: seconds for name, seconds in kept.items()}
    # The server is told apart from the test that happened to ask for it first.
    assert by_test["test_pays_for_the_server"] < by_test["test_slow"]


def test_what_has_become_slower_is_named() -> None:
    durations = measured({"a.py::test_one": 20.0, "a.py::test_two": 4.0})
    lines = list(describe(durations, {"a.py::test_one": 8.0, "a.py::test_two": 1.0}))
    assert [line for line in lines if "slower" in line] == [
        "  slower: 8.0 s, now 20.0 s: a.py::test_one"
    ]
    assert "2 tests ran before: 24 s now, 9 s when they last did" in lines


def test_a_service_that_starts_more_slowly_is_named() -> None:
    durations = measured({"a.py::test_one": 2.0})
    durations.services = {"kafka": 30.0, "s3": 0.2}
    lines = list(describe(durations, {"service kafka": 9.0, "service s3": 0.1}))
    assert "    30.2 s  services that started, each once:" in lines
    assert [line for line in lines if "kafka" in line] == [
        "    30.0 s    kafka",
        "  slower: 9.0 s, now 30.0 s: service kafka",
    ]


def test_a_quick_run_prints_nothing() -> None:
    assert list(describe(measured({"a.py::test_one": 0.01}), {})) == []


def test_a_run_of_a_few_tests_keeps_what_is_known_of_the_others(tmp_path: Path) -> None:
    (tmp_path / "test_kept.py").touch()
    file = tmp_path / ".laminar" / "test-durations.json"
    before = {"test_kept.py::test_a": 1.0, "test_gone.py::test_b": 2.0}
    before |= {"service s3": 4.0, "service kafka": 5.0}
    durations = measured({"test_new.py::test_c": 3.0})
    durations.services = {"kafka": 6.0}
    keep(file, durations, before)
    assert read(file) == {
        "test_kept.py::test_a": 1.0,
        "test_new.py::test_c": 3.0,
        "service s3": 4.0,
        "service kafka": 6.0,
    }


@pytest.mark.parametrize("content", ["", "[]", "{", json.dumps({"a": "long"}), '{"a": null}'])
def test_a_file_that_cannot_be_read_is_no_reason_to_fail(tmp_path: Path, content: str) -> None:
    file = tmp_path / "test-durations.json"
    file.write_text(content)
    assert read(file) == {}
