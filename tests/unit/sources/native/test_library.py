"""The compiled library is found, or it is said why not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from laminar_dagster.sources.native import library
from tests.services.compiled import require_compiled, without_compiled


@pytest.fixture
def fresh() -> Iterator[None]:
    """Nothing is loaded, before and after."""
    library.native.cache_clear()
    yield
    library.native.cache_clear()


def test_it_is_there_and_of_these_sources() -> None:
    require_compiled()
    assert library.native().laminar_interface() == library.INTERFACE


def test_it_can_be_switched_off() -> None:
    with without_compiled():
        assert library.why_not() == "LAMINAR_NATIVE is off"


@pytest.mark.usefixtures("fresh")
def test_one_that_was_never_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library, "LIBRARY", tmp_path / "none.so")
    assert "takes a C compiler" in str(library.why_not())


@pytest.mark.usefixtures("fresh")
def test_one_that_is_damaged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "damaged.so").write_bytes(b"\x7fELF and nothing else")
    monkeypatch.setattr(library, "LIBRARY", tmp_path / "damaged.so")
    assert "cannot be loaded" in str(library.why_not())


@pytest.mark.usefixtures("fresh")
def test_one_of_other_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    require_compiled()
    library.native.cache_clear()
    monkeypatch.setattr(library, "INTERFACE", library.INTERFACE + 1)
    assert "other sources" in str(library.why_not())
    monkeypatch.setitem(library._SIGNATURES, "laminar_not_there", (None,))
    assert "laminar_not_there" in str(library.why_not())
