"""The binding to C, with the real library and no broker."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator

import confluent_kafka
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.core.errors import InvalidConfig, InvalidState
from laminar_dagster.sources.kafka import fetching, librdkafka, numpy_gather
from laminar_dagster.sources.kafka.compiled_gather import CompiledGather
from laminar_dagster.sources.kafka.fast_fetcher import FastFetcher
from laminar_dagster.sources.kafka.fetching import choose_fetcher, way_to_fetch
from laminar_dagster.sources.kafka.messages import Wanted
from laminar_dagster.sources.kafka.numpy_gather import NumpyGather, copy_values
from laminar_dagster.sources.kafka.portable_fetcher import PortableFetcher
from tests.services.compiled import require_compiled, without_compiled


@pytest.fixture
def fresh() -> Iterator[None]:
    """Nothing is known of the library, before and after."""
    librdkafka.library.cache_clear()
    fetching._tell_once.cache_clear()
    yield
    librdkafka.library.cache_clear()
    fetching._tell_once.cache_clear()


def test_the_library_is_the_one_of_confluent_kafka() -> None:
    assert librdkafka.library().call["version"]() == confluent_kafka.libversion()[1]


def test_auto_is_fast_here() -> None:
    assert isinstance(choose_fetcher("auto", {}, Wanted(keys=True), "s"), FastFetcher)
    assert isinstance(choose_fetcher("fast", {}, Wanted(), "s"), FastFetcher)
    assert isinstance(choose_fetcher("portable", {}, Wanted(), "s"), PortableFetcher)


def test_everything_of_a_message_is_read_fast_with_the_compiled_library() -> None:
    require_compiled()
    wanted = Wanted(keys=True, timestamps=True, headers=True)
    fetcher = choose_fetcher("fast", {}, wanted, "s")
    assert isinstance(fetcher, FastFetcher)
    assert isinstance(fetcher._gather, CompiledGather)
    assert way_to_fetch("auto", wanted) == "fast, compiled"
    assert way_to_fetch("portable", wanted) == "portable"


@pytest.mark.usefixtures("fresh")
def test_without_the_compiled_library_it_goes_on_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    with without_compiled():
        for _ in range(3):
            fetcher = choose_fetcher("auto", {}, Wanted(keys=True), "s")
            assert isinstance(fetcher, FastFetcher)
            assert isinstance(fetcher._gather, NumpyGather)
        assert len(caplog.records) == 1
        assert "without the compiled library: LAMINAR_NATIVE is off" in caplog.text
        assert way_to_fetch("auto", Wanted()) == (
            "fast, without the compiled library: LAMINAR_NATIVE is off"
        )
        for wanted in (Wanted(timestamps=True), Wanted(headers=True)):
            assert way_to_fetch("auto", wanted).startswith("portable: timestamps and headers take")
            assert isinstance(choose_fetcher("auto", {}, wanted, "s"), PortableFetcher)
            with pytest.raises(InvalidConfig, match="timestamps and headers take the compiled"):
                choose_fetcher("fast", {}, wanted, "s")


@pytest.mark.parametrize(
    "member", ["_ERROR", "_TOPIC", "_PARTITION", "_VALUE", "_VALUE_BYTES", "_KEY", "_KEY_BYTES"]
)
@pytest.mark.parametrize("other", ["_OFFSET", "_PRIVATE"])
@pytest.mark.usefixtures("fresh")
def test_another_layout_is_noticed(
    member: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = getattr(librdkafka, member), getattr(librdkafka, other)
    monkeypatch.setattr(librdkafka, member, second)
    monkeypatch.setattr(librdkafka, other, first)
    with pytest.raises(librdkafka.NotUsable, match="laid out"):
        librdkafka.library()


@pytest.mark.usefixtures("fresh")
def test_values_and_keys_in_each_others_place_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librdkafka, "_VALUE", librdkafka._KEY)
    monkeypatch.setattr(librdkafka, "_KEY", 3)
    with pytest.raises(librdkafka.NotUsable, match="came back"):
        librdkafka.library()


@pytest.mark.usefixtures("fresh")
def test_why_not_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(librdkafka._SIGNATURES, "not_there", (None,))
    caplog.set_level(logging.INFO)
    for _ in range(3):
        assert isinstance(choose_fetcher("auto", {}, Wanted(), "s"), PortableFetcher)
    assert len(caplog.records) == 1
    assert "rd_kafka_not_there" in caplog.text
    with pytest.raises(InvalidConfig, match="rd_kafka_not_there"):
        choose_fetcher("fast", {}, Wanted(), "s")


@pytest.mark.usefixtures("fresh")
def test_another_major_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librdkafka, "_MAJOR_VERSION", 3)
    with pytest.raises(librdkafka.NotUsable, match="it takes librdkafka 3"):
        librdkafka.library()


@pytest.mark.usefixtures("fresh")
def test_a_second_librdkafka_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confluent_kafka, "libversion", lambda: ("2.0.0", 0x020000FF))
    with pytest.raises(librdkafka.NotUsable, match="not the one"):
        librdkafka.library()


@pytest.mark.parametrize("kind", ["fast", "portable"])
def test_a_fetcher_is_open_or_closed(kind: fetching.Preference) -> None:
    fetcher = choose_fetcher(kind, {"bootstrap.servers": "127.0.0.1:1"}, Wanted(), "s")
    fetcher.close()
    with pytest.raises(InvalidState):
        fetcher.fetch(1, 0.0)
    fetcher.open("topic", 0, 5)
    assert fetcher.position() == fetcher.reached() == 5
    with pytest.raises(InvalidState):
        fetcher.open("topic", 0, 5)
    fetcher.close()
    fetcher.close()


@pytest.mark.parametrize("region", [1 << 30, 64])
@given(values=st.lists(st.none() | st.binary(max_size=40)))
def test_values_are_copied_from_wherever_they_lie(region: int, values: list[bytes | None]) -> None:
    texts = [None if value is None else ctypes.create_string_buffer(value) for value in values]
    addresses = np.array([0 if t is None else ctypes.addressof(t) for t in texts], np.uint64)
    lengths = np.array([len(value or b"") for value in values], np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numpy_gather, "_REGION", region)
        copied = copy_values(addresses, lengths)
    for text in texts:
        if text is not None:
            ctypes.memset(text, 0xFF, len(text))
    copied.validate(full=True)
    assert copied.type == pa.binary()
    assert copied.to_pylist() == values
