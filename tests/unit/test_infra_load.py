"""A deadline is as far away as the machine is busy."""

from __future__ import annotations

import itertools
import os
import time

import pytest

from infra.load import Deadline, crowding


def on_a_machine(patch: pytest.MonkeyPatch, *, running: float, cores: int) -> None:
    patch.setattr(os, "getloadavg", lambda: (running, 0.0, 0.0))
    patch.setattr(os, "cpu_count", lambda: cores)


@pytest.mark.parametrize(
    ("running", "cores", "crowded"), [(0.0, 2, 1.0), (2.0, 2, 1.0), (8.0, 2, 4.0), (999.0, 2, 20.0)]
)
def test_how_crowded_a_machine_is(
    monkeypatch: pytest.MonkeyPatch, running: float, cores: int, crowded: float
) -> None:
    on_a_machine(monkeypatch, running=running, cores=cores)
    assert crowding() == crowded


def test_it_grows_with_the_greatest_load_since_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    on_a_machine(monkeypatch, running=0.0, cores=1)
    deadline = Deadline(5.0)
    on_a_machine(monkeypatch, running=4.0, cores=1)
    assert not deadline.is_over
    on_a_machine(monkeypatch, running=0.0, cores=1)
    assert [deadline.is_over for _ in range(20)] == [False] * 19 + [True]
    assert deadline.left == 0.0


def test_it_says_what_it_was_on_an_idle_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_machine(monkeypatch, running=6.0, cores=2)
    deadline = Deadline(10.0)
    assert 29.0 < deadline.left <= 30.0
    assert str(deadline) == "0 s, 10 s on an idle machine"


def test_where_nobody_knows_the_load_it_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> tuple[float, float, float]:
        raise OSError

    monkeypatch.setattr(os, "getloadavg", unknown)
    assert crowding() == 1.0
