"""The collector: nothing in use is ever deleted, and nothing unused stays for ever."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from laminar_dagster.core import layout
from laminar_dagster.core.garbage import Garbage, Holdings, find_garbage
from laminar_dagster.core.ids import CheckpointId, EpochNumber, SourceId
from laminar_dagster.core.ports import ObjectInfo
from tests.unit.core.samples import checkpoint, manifest, operator, state_file
from tests.unit.core.store_histories import GRACE, NOW, STRANGERS, Store, stores

OLD = NOW - timedelta(days=30)


def check_is_safe(store: Store, garbage: Garbage) -> None:
    """Nothing in use, undecided, pinned or foreign is among what is to go."""
    keys = set(garbage.keys)
    kept = {each.checkpoint_id for each in store.retained} | {store.undecided}
    assert not keys & store.reachable()
    assert not keys & {layout.LATEST, *STRANGERS}
    for key in keys:
        epoch = layout.parse_epoch_key(key)
        if epoch:
            assert epoch.is_plan, "a prepared.json would go"
            assert epoch.epoch < store.retained[0].epoch
            continue
        parsed = layout.parse_checkpoint_key(key)
        assert parsed, f"{key} is not ours"
        assert parsed[0] not in kept, f"{key} is retained or undecided"
        assert store.losers.get(parsed[0], EpochNumber(0)) <= store.decided


@given(stores(aging=True))
def test_what_is_in_use_or_not_ours_is_never_deleted(store: Store) -> None:
    check_is_safe(store, store.collect())


@given(stores(aging=True), st.data())
def test_a_stale_or_repeated_listing_is_harmless(store: Store, data: st.DataObject) -> None:
    listing = data.draw(st.lists(st.sampled_from(list(store.objects.values())), max_size=60))
    garbage = find_garbage(store.holdings(listing), NOW, GRACE)
    check_is_safe(store, garbage)
    assert set(garbage.keys) <= {info.key for info in listing}


@given(stores())
def test_what_is_expired_goes_at_once(store: Store) -> None:
    keys = set(store.collect().keys)
    expired = {each.checkpoint_id for each in store.committed} - {
        each.checkpoint_id for each in store.retained
    }
    for key in store.may_go():
        parsed = layout.parse_checkpoint_key(key)
        if not parsed or parsed[0] in expired:
            assert key in keys


@given(stores())
def test_a_loser_goes_when_its_epoch_is_decided_and_the_grace_is_over(store: Store) -> None:
    keys = set(store.collect().keys)
    for home, epoch in store.losers.items():
        for key in store.objects:
            if key.startswith(layout.checkpoint_folder(home)):
                is_over = NOW - store.objects[key].modified >= GRACE
                assert (key in keys) == (epoch <= store.decided and is_over)


@given(stores(), st.data())
def test_a_crash_in_the_middle_is_made_up_for(store: Store, data: st.DataObject) -> None:
    """Any part of the work may be done, from the front; a later run finds the rest."""
    due = store.may_go()
    now = NOW
    for _ in range(3):
        garbage = store.collect(now)
        check_is_safe(store, garbage)
        done = data.draw(st.integers(0, len(garbage.keys)))
        store = store.without(garbage.keys[:done])
        now += GRACE
    now += 3 * GRACE
    store = store.without(store.collect(now).keys)
    assert not due & set(store.objects)
    assert store.collect(now).keys == ()
    assert store.reachable() <= set(store.objects)


@given(stores(aging=True))
def test_a_folder_that_grew_slowly_is_cleared_in_the_end(store: Store) -> None:
    """The record of the attempt is its oldest object; it must not go before the rest may."""
    due = store.may_go()
    for hours in range(6):
        store = store.without(store.collect(NOW + hours * GRACE).keys)
    assert not due & set(store.objects)


@given(stores(aging=True), st.booleans())
def test_the_size_is_that_of_what_goes(store: Store, twice: bool) -> None:
    listing = list(store.objects.values()) * (2 if twice else 1)
    garbage = find_garbage(store.holdings(listing), NOW, GRACE)
    assert garbage.size_bytes == sum(store.objects[key].size for key in set(garbage.keys))


@given(stores())
def test_strangers_are_told(store: Store) -> None:
    assert set(store.collect().strangers) == set(store.objects) & set(STRANGERS)


# --- single cases -------------------------------------------------------------------------------


def holdings(*keys: str, **known: object) -> Holdings:
    values: dict[str, object] = {
        "retained": (manifest(3),),
        "undecided": frozenset(),
        "attempts": {checkpoint(2): EpochNumber(2)},
        "decided": EpochNumber(3),
        "objects": [ObjectInfo(key, 1, OLD) for key in keys],
    }
    return Holdings(**(values | known))  # type: ignore[arg-type]


def folder(home: CheckpointId) -> tuple[str, str, str]:
    return (
        layout.manifest_key(home),
        layout.checkpoint_folder(home) + "operators/agg/0.snap",
        layout.attempt_key(home),
    )


def test_an_expired_checkpoint_goes_manifest_first_and_record_last() -> None:
    garbage = find_garbage(holdings(*reversed(folder(checkpoint(2)))), NOW, GRACE)
    assert garbage.keys == folder(checkpoint(2))
    assert garbage.size_bytes == 3


def test_a_file_that_a_retained_manifest_names_stays_with_its_record() -> None:
    above = manifest(
        3, operators=(operator(state_file(2, origin=checkpoint(2)), state_file(3, delta=True)),)
    )
    garbage = find_garbage(holdings(*folder(checkpoint(2)), retained=(above,)), NOW, GRACE)
    assert garbage.keys == (layout.manifest_key(checkpoint(2)),)


def test_a_loser_within_its_grace_stays() -> None:
    keys = folder(checkpoint(9))[1:]
    young = [ObjectInfo(key, 1, NOW - GRACE + timedelta(seconds=1)) for key in keys]
    ready = [ObjectInfo(key, 1, NOW - GRACE) for key in keys]
    attempts = {checkpoint(9): EpochNumber(3)}
    known = holdings(attempts=attempts, objects=young)
    assert find_garbage(known, NOW, GRACE).keys == ()
    assert find_garbage(replace(known, objects=ready), NOW, GRACE).keys == keys


def test_a_loser_of_an_undecided_epoch_stays_however_old() -> None:
    attempts = {checkpoint(9): EpochNumber(4)}
    keys = folder(checkpoint(9))[1:]
    assert find_garbage(holdings(*keys, attempts=attempts), NOW, GRACE).keys == ()


def test_an_attempt_of_unknown_epoch_is_a_stranger() -> None:
    keys = folder(checkpoint(9))[1:]
    garbage = find_garbage(holdings(*keys), NOW, GRACE)
    assert garbage.keys == ()
    assert garbage.strangers == keys


def test_old_plans_go_and_the_records_of_winners_stay() -> None:
    plans = [layout.plan_key(EpochNumber(epoch)) for epoch in (1, 2, 3, 4)]
    winners = [layout.prepared_key(EpochNumber(epoch)) for epoch in (1, 2, 3, 4)]
    garbage = find_garbage(holdings(*plans, *winners), NOW, GRACE)
    assert list(garbage.keys) == plans[:2]


def test_with_nothing_retained_no_checkpoint_is_known_to_be_old() -> None:
    """An empty answer to "what is kept" must not empty the store."""
    keys = (*folder(checkpoint(2)), layout.plan_key(EpochNumber(1)))
    known = holdings(*keys, retained=(), attempts={checkpoint(2): EpochNumber(2)})
    assert find_garbage(known, NOW, GRACE).keys == ()


def test_letters_stay_for_a_time_of_their_own_and_then_go() -> None:
    home = checkpoint(2)
    letter = layout.checkpoint_folder(home) + layout.dead_letter_path(
        SourceId("s"), layout.bad_records_file(0, 0)
    )
    week = timedelta(days=7)
    keys = (*folder(home), letter)
    young = [ObjectInfo(key, 1, NOW - week + timedelta(seconds=1)) for key in keys]
    known = holdings(objects=young)
    assert find_garbage(known, NOW, GRACE, week).keys == folder(home)[:2]
    # Later there is nothing but the letters and the record that tells whose they are.
    rest = replace(known, objects=[info for info in young if info.key not in folder(home)[:2]])
    for attempts in ({home: EpochNumber(2)}, {}):
        garbage = find_garbage(replace(rest, attempts=attempts), NOW, GRACE, week)
        assert (garbage.keys, garbage.strangers) == ((), ())
    old = [ObjectInfo(info.key, 1, NOW - week) for info in rest.objects]
    gone = find_garbage(replace(rest, objects=old), NOW, GRACE, week)
    assert gone.keys == (letter, layout.attempt_key(home))
