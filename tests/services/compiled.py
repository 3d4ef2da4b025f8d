"""The compiled library, with it and without: for tests that have to pass both ways."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest

from infra.errors import ServiceUnavailable
from laminar_dagster.sources.native import library


def require_compiled() -> None:
    """Go on if there is a compiled library.

    Raises:
        ServiceUnavailable: There is none: a loud skip, and a failure under ``CI=true``.
    """
    if reason := library.why_not():
        raise ServiceUnavailable("the compiled library", reason)


@contextmanager
def without_compiled() -> Generator[None]:
    """As where there is none, in this process and in those it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(library.SWITCH, "off")
        library.native.cache_clear()
        yield
    library.native.cache_clear()
