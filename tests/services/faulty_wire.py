"""Fixture `faulty_wire`: proxies that fail on command, closed after the test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from infra.faulty_wire import FaultyWire, Held, RequestFilter

__all__ = ["FaultyWire", "Held", "RequestFilter", "WireFactory", "faulty_wire"]

WireFactory = Callable[[str, int], FaultyWire]


@pytest.fixture
def faulty_wire() -> Iterator[WireFactory]:
    """A function that puts a `FaultyWire` in front of ``(host, port)``; closed after the test."""
    with contextlib.ExitStack() as wires:
        yield lambda host, port: wires.enter_context(FaultyWire(host, port))
