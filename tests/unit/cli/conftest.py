"""Fixtures of the command line's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conditions import History, Laminar, Project


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("LAMINAR_STORE", "LAMINAR_DEBUG", "FORCE_COLOR", "NO_COLOR", "COLUMNS", "DAGSTER_HOME")
    for name in names:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def _five_epochs(tmp_path_factory: pytest.TempPathFactory) -> History:
    return History(tmp_path_factory.mktemp("history") / "store").run(5)


@pytest.fixture
def history(_five_epochs: History, tmp_path: Path) -> History:
    """A store with five epochs, the test's own."""
    return _five_epochs.copy(tmp_path / "store")


@pytest.fixture
def laminar(history: History) -> Laminar:
    """The command, on that store."""
    return Laminar(str(history.root))


@pytest.fixture
def empty(tmp_path: Path) -> Laminar:
    """The command, on a store that holds nothing."""
    folder = tmp_path / "empty"
    folder.mkdir()
    return Laminar(str(folder))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A new project, as `laminar init` makes it."""
    root = tmp_path / "project"
    assert Laminar()("init", str(root), "--name", "clicks").exit_code == 0
    return Project(root)
