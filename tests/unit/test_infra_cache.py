"""Installing happens once, whole or not at all; ports are free when handed out."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.cache import cache_dir, install_once
from infra.errors import ServiceUnavailable
from infra.ports import free_port, is_listening
from infra.s3 import S3


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAMINAR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_where_the_cache_is(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_dir() == cache
    monkeypatch.delenv("LAMINAR_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_dir() == Path("/elsewhere/laminar-dagster")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_dir() == Path("/home/someone/.cache/laminar-dagster")


def test_concurrent_installs_build_once() -> None:
    builds = []
    together = threading.Barrier(4)

    def build(into: Path) -> None:
        time.sleep(0.05)
        (into / "program").touch()
        builds.append(into)

    def install(_: int) -> Path:
        together.wait()
        return install_once("thing-1", build)

    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(install, range(4)))
    assert len(builds) == 1
    assert [list(path.iterdir()) for path in found] == [[cache_dir() / "thing-1" / "program"]]


def test_a_failed_install_leaves_nothing_and_is_tried_again() -> None:
    def fail(into: Path) -> None:
        (into / "half").touch()
        raise RuntimeError("no network")

    with pytest.raises(RuntimeError):
        install_once("thing-1", fail)
    assert [entry.name for entry in cache_dir().iterdir()] == ["locks"]
    assert list(install_once("thing-1", lambda into: (into / "whole").touch()).iterdir()) == [
        cache_dir() / "thing-1" / "whole"
    ]


def test_without_go_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ServiceUnavailable, match=r"^s3: install Go"):
        S3().install()


def test_a_free_port_can_be_bound_and_is_then_listening() -> None:
    port = free_port()
    assert not is_listening(port)
    with socket.create_server(("127.0.0.1", port)):
        assert is_listening(port)
