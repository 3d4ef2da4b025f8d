"""Every kind of object, damaged in every way: found before it is used, and mended or refused.

A recovery ends in one of two ways. It is right: the run after it leaves in each sink exactly what
was computed from the input alone. Or it ends with a named error, and the store is as it was.
"""

from __future__ import annotations

import os
import random

import pytest

from laminar_dagster.core import layout
from laminar_dagster.core.errors import LaminarError
from laminar_dagster.core.recovery import RecoveryResult
from tests.unit.runtime.recovery.ruins import (
    DAMAGERS,
    Ruin,
    damage_at_random,
    kind_of,
    offsets_of,
)

pytestmark = [pytest.mark.proof("damage to the store")]

KINDS = (
    "_latest",
    "attempt.json",
    "dead_letters",
    "delta",
    "manifest.json",
    "plan.json",
    "prepared.json",
    "snap",
    "sources",
    "staged",
)
VARIABLE = "LAMINAR_PROOF_SEED"
# The epochs of which everything is kept.
KEPT = range(4, 10)


@pytest.fixture(scope="module")
def history() -> Ruin:
    """Nine epochs; one sink is two behind; chains with deltas, some folded; some collected."""
    return Ruin(retain=4).run(9, behind=2)


def steps_left(result: RecoveryResult) -> list[tuple[int, str]]:
    """What the next run finishes, and by which step."""
    return [(each.epoch, type(each.next_step).__name__) for each in result.unfinished]


def foretell(ruin: Ruin, done: object) -> list[tuple[int, str]] | None:
    """What a dry run says that is left; None where it refuses."""
    before = ruin.objects()
    try:
        return steps_left(ruin.recover(dry_run=True))
    except LaminarError:
        return None
    finally:
        assert ruin.objects() == before, f"{done}: the dry run changed something"


def check(ruin: Ruin, done: object) -> str:
    """Recover and run on. Returns the kind of the error that it ended with, if it did."""
    before = ruin.objects()
    rows = list(ruin.quick.rows), list(ruin.slow.rows)
    foretold = foretell(ruin, done)
    try:
        result = ruin.recover()
    except LaminarError as error:
        assert ruin.objects() == before, f"{done}: {error} changed something"
        assert (ruin.quick.rows, ruin.slow.rows) == rows
        return error.kind
    assert foretold == steps_left(result), f"{done}: the dry run told otherwise"
    again = ruin.recover()
    assert again.repairs == (), f"{done}: a second recovery found more"
    ruin.run_on()
    ruin.check_answer()
    return ""


def check_verify(ruin: Ruin, done: object) -> bool:
    """Look at everything, as `laminar checkpoints verify` does. Returns whether it finds anything.

    What it does not find is nothing that anybody needs: the next run, without a recovery, is right,
    and after it there is nothing to find either.
    """
    before = ruin.objects()
    if ruin.verify():
        assert ruin.objects() == before
        return True
    ruin.run_on()
    ruin.check_answer()
    assert ruin.verify() == {}, done
    return False


def test_the_history_has_every_kind_of_object(history: Ruin) -> None:
    assert {kind_of(key) for key in history.objects()} == set(KINDS)
    assert (history.quick.ledger, history.slow.ledger) == (9, 7)
    assert check(history.copy(), "nothing") == ""


def keys_of(history: Ruin, kind: str) -> list[str]:
    return [key for key in history.objects() if kind_of(key) == kind]


@pytest.mark.parametrize("how", sorted(DAMAGERS))
@pytest.mark.parametrize("kind", KINDS)
def test_any_damage_to_any_object(history: Ruin, kind: str, how: str) -> None:
    for key in keys_of(history, kind):
        ruin = history.copy()
        DAMAGERS[how](ruin, key, random.Random(key))
        assert check(ruin, f"{how} {key}") == ""


@pytest.mark.parametrize("how", sorted(DAMAGERS))
@pytest.mark.parametrize("kind", KINDS)
def test_any_damage_to_any_object_is_found_by_who_only_looks(
    history: Ruin, kind: str, how: str
) -> None:
    missed = []
    for key in keys_of(history, kind):
        ruin = history.copy()
        DAMAGERS[how](ruin, key, random.Random(key))
        if ruin.objects() != history.objects() and not check_verify(ruin, f"{how} {key}"):
            missed.append(key)
    # Nothing but what was collected, or is left of it.
    kept = {history.manifest(epoch).checkpoint_id for epoch in KEPT}
    for key in missed:
        folder, epoch = layout.parse_checkpoint_key(key), layout.parse_epoch_key(key)
        assert (folder and folder[0] not in kept) or (epoch and epoch.epoch not in KEPT), key


@pytest.mark.parametrize("kind", KINDS)
def test_a_bit_at_any_place(history: Ruin, kind: str) -> None:
    for key in keys_of(history, kind)[-2:]:
        for place in offsets_of(len(history.store.read(key))):
            ruin = history.copy()
            ruin.flip(key, place, place % 8)
            assert ruin.verify()
            assert check(ruin, f"bit {place % 8} of byte {place} of {key}") == ""


@pytest.mark.parametrize("kind", KINDS)
def test_everything_of_a_kind_at_once(history: Ruin, kind: str) -> None:
    ruin = history.copy()
    ruin.lose(*keys_of(history, kind))
    assert ruin.verify()
    assert check(ruin, f"all of {kind}") == ""


def seeds() -> list[int]:
    """Forty; or those that the variable names, as 7 or 1000-1999."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return list(range(40))
    first, _, last = wanted.partition("-")
    return list(range(int(first), int(last or first) + 1))


@pytest.mark.proof("random damage to the store, looked at", seed_in=VARIABLE)
@pytest.mark.parametrize("seed", seeds())
def test_random_damage_is_found_by_who_only_looks(history: Ruin, seed: int) -> None:
    chance = random.Random(seed)
    ruin = history.copy()
    done = damage_at_random(ruin, chance, chance.choice([1, 2, 3, 6]))
    ruin.verify()
    clean = ruin.copy()
    try:
        clean.recover()
    except LaminarError:
        assert ruin.verify(), done
    else:
        assert clean.verify().keys() <= ruin.verify().keys(), done


@pytest.mark.proof("random damage to the store", seed_in=VARIABLE)
@pytest.mark.parametrize("seed", seeds())
def test_random_damage(history: Ruin, seed: int) -> None:
    chance = random.Random(seed)
    ruin = history.copy()
    done = damage_at_random(ruin, chance, chance.choice([2, 2, 3, 4, 6, 10]))
    check(ruin, done)


def test_most_random_damage_can_be_mended(history: Ruin) -> None:
    """A recovery that always refuses would be right, and of no use."""
    refused = []
    for seed in range(40):
        chance = random.Random(seed)
        ruin = history.copy()
        damage_at_random(ruin, chance, chance.choice([2, 2, 3, 4, 6, 10]))
        try:
            ruin.recover(dry_run=True)
        except LaminarError as error:
            refused.append(f"{seed}: {error.kind}")
    assert len(refused) <= 6, refused


@pytest.mark.proof("runs on a damaged store", seed_in=VARIABLE)
@pytest.mark.parametrize("seed", seeds())
def test_a_run_on_a_damaged_store_is_right_or_stops(history: Ruin, seed: int) -> None:
    """Without a recovery before it."""
    chance = random.Random(seed)
    ruin = history.copy()
    done = damage_at_random(ruin, chance, chance.choice([1, 1, 2, 3, 6]))
    try:
        ruin.run_on()
    except LaminarError:
        wanted = set(ruin.world.log.expected())
        for table in (ruin.quick, ruin.slow):
            assert len(set(table.rows)) == len(table.rows), f"{done}: something is there twice"
            assert set(table.rows) <= wanted, f"{done}: something is wrong"
            assert table.epochs == list(range(1, len(table.epochs) + 1))
    else:
        ruin.check_answer()
