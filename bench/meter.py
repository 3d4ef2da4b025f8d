"""Adds up what some functions cost while something else runs."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

_PACKAGE = "laminar_dagster"


@dataclass(slots=True)
class Cost:
    """Calls, and the seconds they took together."""

    calls: int = 0
    seconds: float = 0.0


class Meter:
    """Times functions of the package, by kind. A call within a metered call is part of that one."""

    def __init__(self) -> None:
        """Start at nothing."""
        self._costs: defaultdict[str, Cost] = defaultdict(Cost)
        self._lock = threading.Lock()
        self._thread = threading.local()

    def take(self) -> dict[str, Cost]:
        """What was added up since the last time."""
        with self._lock:
            costs, self._costs = dict(self._costs), defaultdict(Cost)
        return costs

    @contextmanager
    def on(self, kinds: Mapping[str, Iterable[Callable[..., Any]]]) -> Iterator[None]:
        """Meter functions for a while, under whatever names modules have imported them."""
        wrapped = {
            function: self._wrap(kind, function)
            for kind, functions in kinds.items()
            for function in functions
        }
        with ExitStack() as stack:
            for owner, name, function in _uses(wrapped):
                stack.enter_context(mock.patch.object(owner, name, wrapped[function]))
            yield

    def _wrap(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        clock = time.perf_counter

        @functools.wraps(function)
        def metered(*arguments: Any, **named: Any) -> Any:
            if getattr(self._thread, "is_inside", False):
                return function(*arguments, **named)
            self._thread.is_inside = True
            begun = clock()
            try:
                return function(*arguments, **named)
            finally:
                seconds = clock() - begun
                self._thread.is_inside = False
                with self._lock:
                    cost = self._costs[kind]
                    cost.calls += 1
                    cost.seconds += seconds

        return metered


def _uses(
    functions: Mapping[Callable[..., Any], Any],
) -> list[tuple[Any, str, Callable[..., Any]]]:
    """Where the package refers to functions: in modules, and in their classes."""
    owners: dict[int, Any] = {}
    for name, module in sys.modules.items():
        if name.partition(".")[0] != _PACKAGE:
            continue
        owners[id(module)] = module
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__.startswith(_PACKAGE):
                owners[id(value)] = value
    by_id = {id(function): function for function in functions}
    return [
        (owner, name, by_id[id(value)])
        for owner in owners.values()
        for name, value in vars(owner).items()
        if id(value) in by_id
    ]
