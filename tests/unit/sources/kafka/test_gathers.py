"""Both ways to gather, on messages made by hand: what is copied, and that all is given back."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.sources.kafka import librdkafka
from laminar_dagster.sources.kafka.compiled_gather import CompiledGather
from laminar_dagster.sources.kafka.gathering import Gather, Gathered, TooLarge
from laminar_dagster.sources.kafka.messages import Wanted
from laminar_dagster.sources.kafka.numpy_gather import NumpyGather
from laminar_dagster.sources.native.library import native
from tests.services.compiled import require_compiled
from tests.unit.sources.kafka.made_messages import Made, MadeMessages

EVERYTHING = Wanted(keys=True, timestamps=True, headers=True)

contents = st.none() | st.binary(max_size=40)
names = st.binary(max_size=8).map(lambda name: name.replace(b"\0", b""))
messages = st.builds(
    Made,
    offset=st.integers(0, 2**62),
    value=contents,
    key=contents,
    error=st.sampled_from([0, 0, 0, -191, 3]),
    timestamp=st.integers(-1, 2**50),
    headers=st.lists(st.tuples(names, contents), max_size=3).map(tuple),
)


def read(headers: Iterable[tuple[bytes, bytes | None]]) -> list[dict[str, object]] | None:
    """None if a name is not UTF-8."""
    try:
        return [{"key": name.decode(), "value": value} for name, value in headers]
    except UnicodeDecodeError:
        return None


def gathered(gather: Gather, made: MadeMessages, wanted: Wanted) -> Gathered:
    gather.make_room(len(made.raw) + 2)
    gather.pointers[: len(made.raw)] = made.addresses
    found = gather.gather(len(made.raw), wanted)
    gather.give_back()
    return found


@given(st.lists(messages), st.builds(Wanted, st.booleans(), st.booleans(), st.booleans()))
def test_the_compiled_one_copies_everything_and_gives_each_back_once(
    wanted: list[Made], columns: Wanted
) -> None:
    require_compiled()
    made = MadeMessages(wanted)
    gather = CompiledGather(native(), made.calls())
    found = gathered(gather, made, columns)
    # The memory of a message is overwritten when it is destroyed: nothing may point there.
    assert made.destroyed == dict.fromkeys(made.addresses, 1)
    good = [each for each in wanted if not each.error]
    batch = found.batch
    assert found.others.tolist() == [place for place, each in enumerate(wanted) if each.error]
    assert batch.offsets.tolist() == [each.offset for each in good]
    batch.values.validate(full=True)
    assert batch.values.to_pylist() == [each.value for each in good]
    assert (batch.keys is not None) == columns.keys
    if batch.keys is not None:
        batch.keys.validate(full=True)
        assert batch.keys.to_pylist() == [each.key for each in good]
    assert (batch.timestamps is not None) == columns.timestamps
    if batch.timestamps is not None:
        assert batch.timestamps.tolist() == [each.timestamp for each in good]
    assert (batch.headers is not None) == columns.headers
    if batch.headers is not None:
        batch.headers.validate(full=True)
        assert batch.headers.to_pylist() == [read(each.headers) for each in good]


@given(st.lists(messages), st.booleans())
def test_both_give_the_same(wanted: list[Made], keys: bool) -> None:
    require_compiled()
    made = MadeMessages(wanted)
    compiled = gathered(CompiledGather(native(), made.calls()), made, Wanted(keys=keys))
    others = MadeMessages(wanted)
    numpy = _Numpy(others)
    plain = gathered(numpy, others, Wanted(keys=keys))
    assert others.destroyed == dict.fromkeys(others.addresses, 1)
    assert compiled.others.tolist() == plain.others.tolist()
    assert compiled.batch.offsets.tolist() == plain.batch.offsets.tolist()
    assert compiled.batch.values.equals(plain.batch.values)
    assert compiled.batch.keys == plain.batch.keys


class _Numpy(NumpyGather):
    """Destroys messages that librdkafka has not made."""

    def __init__(self, made: MadeMessages) -> None:
        super().__init__(librdkafka.library())
        self._made = made

    def give_back(self) -> None:
        for each in self.pointers[self.pointers != 0].tolist():
            self._made._destroy(each)


def test_nothing_is_given_back_twice() -> None:
    require_compiled()
    made = MadeMessages([Made(each, b"x") for each in range(5)])
    gather = CompiledGather(native(), made.calls())
    gather.make_room(5)
    gather.pointers[:] = made.addresses
    held = gather.pointers
    gather.give_back()
    assert not held.any()
    # As after an interrupt that came before the places were dropped.
    gather.pointers = held
    gather.give_back()
    assert set(made.destroyed.values()) == {1}


def test_more_than_a_column_can_hold_is_refused_before_a_byte_is_read() -> None:
    """Their values are shorter than they say: whoever reads them crashes."""
    require_compiled()
    half = 2**30
    made = MadeMessages([Made(each, b"x", claimed=half) for each in range(2)])
    for gather in (CompiledGather(native(), made.calls()), NumpyGather(librdkafka.library())):
        gather.make_room(2)
        gather.pointers[:] = made.addresses
        with pytest.raises(TooLarge):
            gather.gather(2, Wanted())
        gather.pointers = np.zeros(0, np.uint64)
    longer = MadeMessages([Made(0, b"x", claimed=2**63)])
    gather = CompiledGather(native(), longer.calls())
    with pytest.raises(TooLarge):
        gathered(gather, longer, EVERYTHING)
    gather.give_back()
    assert set(longer.destroyed.values()) == {1}
