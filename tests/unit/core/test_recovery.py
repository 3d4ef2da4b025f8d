"""From what was found to facts, and to the checkpoints worth trying."""

from __future__ import annotations

import pytest
from hypothesis import given
from msgspec import structs

from laminar_dagster.core.errors import (
    DeltaWithoutBase,
    InvalidManifest,
    LaminarError,
    LedgerMismatch,
    OperatorMismatch,
    UnsupportedVersion,
)
from laminar_dagster.core.ids import EpochNumber, OperatorId, SinkId, SourceId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.prepared import LatestPointer, Prepared
from laminar_dagster.core.protocol import (
    CommitSinks,
    Halt,
    MoveLatest,
    SinkFact,
    WriteManifest,
    next_step,
)
from laminar_dagster.core.recovery import (
    FoundEpoch,
    Need,
    OperatorSnapshotRef,
    RecoveryPlan,
    Standing,
    check_operators,
    choose_winner,
    facts_of,
    find_confirmed,
    other_files,
)
from tests.unit.core import strategies
from tests.unit.core.samples import (
    LAKE,
    checkpoint,
    kafka,
    manifest,
    operator,
    sha,
    sink,
    source,
    state_file,
)

OTHER = SinkId("warehouse")


def found(
    number: int, *, planned: bool = True, prepared: bool = True, committed: bool = True
) -> FoundEpoch:
    document = manifest(
        number, sinks=(sink(), sink(OTHER, joined_at=2)) if number > 1 else (sink(),)
    )
    return FoundEpoch(
        EpochNumber(number),
        planned=planned,
        prepared=Prepared.of(document) if prepared else None,
        manifest=document if committed else None,
    )


# --- where a pipeline stands --------------------------------------------------------------------


def test_a_pipeline_that_never_ran() -> None:
    standing = Standing(EpochNumber(0), ())
    assert standing.newest_epoch == 0
    assert standing.unfinished == ()
    assert standing.find(EpochNumber(1)) == FoundEpoch(EpochNumber(1), False, None, None)
    assert facts_of(standing, EpochNumber(1), {}).epoch == 1


def test_a_pipeline_in_full_swing() -> None:
    pointer = LatestPointer.to(manifest(3))
    standing = Standing(EpochNumber(3), (found(4), found(5), found(6, committed=False)), pointer)
    assert standing.confirmed == 3
    assert standing.newest_epoch == 5
    assert standing.unfinished == (4, 5, 6)
    assert standing.find(EpochNumber(5)) == found(5)
    assert standing.latest == pointer


def test_an_epoch_counts_from_its_plan_on() -> None:
    for begun in (
        found(4, prepared=False, committed=False),
        found(4, planned=False, committed=False),
        found(4, planned=False, prepared=False),
    ):
        assert Standing(EpochNumber(3), (begun,)).unfinished == (4,)
    nothing = found(4, planned=False, prepared=False, committed=False)
    assert Standing(EpochNumber(3), (nothing,)).unfinished == ()
    assert Standing(EpochNumber(3), (nothing,)).newest_epoch == 3


def test_facts_of_an_epoch_before_and_after_its_manifest() -> None:
    standing = Standing(EpochNumber(0), (found(1), found(2, committed=False)))
    facts = facts_of(standing, EpochNumber(2), {})
    assert (facts.latest, facts.newest, facts.planned) == (0, 1, True)
    assert facts.winner == checkpoint(2)
    assert facts.sinks == ()
    assert next_step(facts) == WriteManifest(checkpoint(2))
    # What only the process itself knows is not in the store.
    assert (facts.attempt, facts.gate, facts.acknowledged, facts.collected) == (
        None,
        None,
        False,
        False,
    )


def test_facts_of_sinks() -> None:
    standing = Standing(EpochNumber(1), (found(2),))
    facts = facts_of(standing, EpochNumber(2), {LAKE: EpochNumber(1), OTHER: None})
    # A sink that joins at this epoch has no ledger, and stands just before it.
    assert facts.sinks == (SinkFact(LAKE, EpochNumber(1)), SinkFact(OTHER, EpochNumber(1)))
    assert next_step(facts) == CommitSinks((LAKE, OTHER))


def test_facts_of_sinks_that_are_away() -> None:
    standing = Standing(EpochNumber(1), (found(2),))
    ledgers = {LAKE: EpochNumber(1), OTHER: EpochNumber(2)}
    facts = facts_of(standing, EpochNumber(2), ledgers, frozenset({LAKE}))
    assert facts.sinks == (SinkFact(LAKE, None), SinkFact(OTHER, EpochNumber(2)))


def test_a_sink_that_lost_its_ledger_stops_the_pipeline() -> None:
    standing = Standing(EpochNumber(4), (found(5),))
    facts = facts_of(standing, EpochNumber(5), {LAKE: None, OTHER: EpochNumber(4)})
    assert isinstance(next_step(facts), Halt)


def test_a_sink_that_missed_epochs_is_not_committed_to() -> None:
    """Removed after epoch 2, its ledger was left where it was. Planning refuses it; so do facts."""
    document = manifest(6, sinks=(sink(joined_at=6),))
    back = FoundEpoch(EpochNumber(6), True, Prepared.of(document), document)
    facts = facts_of(Standing(EpochNumber(5), (back,)), EpochNumber(6), {LAKE: EpochNumber(2)})
    step = next_step(facts)
    assert isinstance(step, Halt)
    assert isinstance(step.error, LedgerMismatch)


def test_without_its_manifest_an_epoch_is_not_taken_as_confirmed() -> None:
    """Its sinks are not known. A hole below a later manifest must not be stepped over."""
    try:
        standing = Standing(EpochNumber(1), (found(2, committed=False), found(3)))
        facts = facts_of(standing, EpochNumber(2), {})
    except (LaminarError, ValueError):
        return
    assert next_step(facts) != MoveLatest()


# --- operators ----------------------------------------------------------------------------------

AGG, JOIN = OperatorId("agg"), OperatorId("join")


def test_validate_operator_compatibility_match() -> None:
    assert check_operators(manifest(), [AGG]) == ((), ())


def test_validate_operator_compatibility_mismatch() -> None:
    with pytest.raises(OperatorMismatch) as caught:
        check_operators(manifest(), [JOIN])
    assert caught.value.missing_in_current == ("agg",)
    assert caught.value.missing_in_checkpoint == ("join",)
    for current in ([AGG, JOIN], []):
        with pytest.raises(OperatorMismatch):
            check_operators(manifest(), current)


def test_validate_operator_compatibility_allow_mismatch() -> None:
    assert check_operators(manifest(), [JOIN], allow_mismatch=True) == (("agg",), ("join",))


# --- the plan of a recovery ---------------------------------------------------------------------


def test_recovery_plan_from_manifest() -> None:
    document = manifest(
        3,
        operators=(
            operator(
                state_file(1, origin=checkpoint(1), size=5), state_file(3, delta=True, size=6)
            ),
        ),
        sources=(
            source(kafka(1), kafka(2, partition=1)),
            source(kafka(9, topic="views"), source_id=SourceId("views")),
        ),
    )
    plan = RecoveryPlan.from_manifest(document)
    assert plan.manifest is document
    assert [(each.source_id, each.position) for each in plan.source_offsets] == [
        ("clicks", kafka(1)),
        ("clicks", kafka(2, partition=1)),
        ("views", kafka(9, topic="views")),
    ]
    base, delta = plan.operator_snapshots
    assert base == OperatorSnapshotRef(
        operator_id=AGG,
        partition_id=document.operators[0].partitions[0].partition_id,
        key=f"checkpoints/{checkpoint(1)}/operators/agg/0.snap",
        size_bytes=5,
        sha256=sha("agg 0 1"),
        epoch=EpochNumber(1),
        is_incremental=False,
    )
    assert delta.key == f"checkpoints/{checkpoint(3)}/operators/agg/0.delta"
    assert (delta.epoch, delta.is_incremental) == (3, True)
    assert plan.total_bytes == 11 == document.total_size_bytes


@given(strategies.manifests())
def test_a_recovery_plan_names_all_state_and_every_position(document: CheckpointManifest) -> None:
    plan = RecoveryPlan.from_manifest(document)
    assert plan.total_bytes == document.total_size_bytes
    keys = [key for key, _, _ in document.files()]
    assert [each.key for each in plan.operator_snapshots] == keys[: len(plan.operator_snapshots)]
    assert len(plan.source_offsets) == sum(len(entry.positions) for entry in document.sources)


def test_recovery_plan_invalid_offset_returns_error() -> None:
    with pytest.raises(InvalidManifest, match="two positions"):
        RecoveryPlan.from_manifest(manifest(sources=(source(kafka(1), kafka(2)),)))


def test_a_manifest_that_must_not_be_restored_gives_no_plan() -> None:
    with pytest.raises(UnsupportedVersion):
        RecoveryPlan.from_manifest(manifest(version=2))
    with pytest.raises(DeltaWithoutBase):
        RecoveryPlan.from_manifest(manifest(operators=(operator(state_file(1, delta=True)),)))
    with pytest.raises(InvalidManifest):
        RecoveryPlan.from_manifest(manifest(total_size_bytes=1))


# --- what is left of an epoch -------------------------------------------------------------------


def other_version(number: int) -> CheckpointManifest:
    """A whole manifest of the same epoch that says something else."""
    return structs.replace(manifest(number), metadata={"by": "somebody else"})


def test_the_winner_is_found_from_any_record() -> None:
    one, two = manifest(4), other_version(4)
    epoch = EpochNumber(4)
    pointer = LatestPointer.to(two).as_parent()
    assert choose_winner(epoch, None, [], []) is None
    assert choose_winner(epoch, None, [one], []) == one
    assert choose_winner(epoch, Prepared.of(one), [], []) == one
    # The record of the winner is believed, unless somebody else names the other by its content.
    assert choose_winner(epoch, Prepared.of(one), [two], []) == one
    assert choose_winner(epoch, Prepared.of(one), [two], [pointer]) == two
    assert choose_winner(epoch, None, [one, two], [pointer]) == two
    # Of another epoch, or of content that nobody has: no witness.
    far = LatestPointer.to(manifest(5)).as_parent()
    assert choose_winner(epoch, Prepared.of(one), [two], [far]) == one
    with pytest.raises(InvalidManifest, match="2 manifests, and nothing says which"):
        choose_winner(epoch, None, [one, two], [far])


def test_what_every_sink_has_is_confirmed() -> None:
    both = {
        EpochNumber(number): manifest(number, sinks=(sink(), sink(OTHER, joined_at=2)))
        for number in (3, 4, 5)
    }
    at = {number: EpochNumber(number) for number in range(6)}
    assert find_confirmed(both, {LAKE: at[5], OTHER: at[5]}, ()) == 5
    assert find_confirmed(both, {LAKE: at[5], OTHER: at[3]}, ()) == 3
    assert find_confirmed(both, {LAKE: at[5], OTHER: None}, ()) == 0
    # A sink that is away confirms nothing; one that was removed holds nobody back.
    assert find_confirmed(both, {LAKE: at[5]}, {OTHER}) == 0
    assert find_confirmed(both, {LAKE: at[5]}, ()) == 5
    assert find_confirmed({}, {LAKE: at[5]}, ()) == 0


def test_staged_output_is_needed_by_sinks_that_have_not_committed() -> None:
    document = manifest(4, sinks=(sink(), sink(OTHER, joined_at=2)))
    needs = {each.key.split("/")[3]: each.need for each in other_files(document, {OTHER})}
    assert needs[LAKE] is Need.NOT_NOW
    assert needs[OTHER] is Need.TO_GO_ON
