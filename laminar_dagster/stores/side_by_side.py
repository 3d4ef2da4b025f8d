"""Concurrent requests in threads, with results in order and a bound on requests in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from laminar_dagster.core.errors import LaminarError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_order(
    work: Callable[[_Item], _Result], items: Iterable[_Item], *, workers: int
) -> Generator[_Result]:
    """Apply ``work`` to each item in threads; yield the results in the items' order.

    At most ``workers`` items are consumed, and results held, ahead of the consumer.
    """
    pool = ThreadPoolExecutor(workers, thread_name_prefix="object-store")
    ahead: deque[Future[_Result]] = deque()
    try:
        for item in items:
            ahead.append(pool.submit(work, item))
            if len(ahead) == workers:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        # A consumer that stops early must not wait for requests in flight.
        pool.shutdown(wait=False, cancel_futures=True)


def read_each(
    read: Callable[[str], bytes], keys: Iterable[str], *, workers: int
) -> Iterator[tuple[str, bytes | LaminarError]]:
    """Read each key; a key that fails yields its error instead of its bytes."""

    def attempt(key: str) -> tuple[str, bytes | LaminarError]:
        try:
            return key, read(key)
        except LaminarError as error:
            return key, error

    return in_order(attempt, keys, workers=workers)
