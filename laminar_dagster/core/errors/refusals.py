"""Refusals: going on would lose or duplicate data."""

from __future__ import annotations

from dataclasses import dataclass

from laminar_dagster.core.errors.base import StopError


@dataclass(eq=False)
class RefusedError(StopError):
    """Going on would lose or duplicate data."""

    kind = "refused"
    exit_code = 3


@dataclass(eq=False)
class RetentionExpired(RefusedError):
    """The source no longer holds the records the next epoch has to start with."""

    source_id: str
    wanted: str
    earliest: str

    kind = "retention_expired"
    text = "source {source_id} no longer holds {wanted}; the earliest it has is {earliest}"
    hint = (
        "restore the source, or accept the loss with `on_gap: earliest`, for tables of a database "
        "`on_gap: snapshot`; it is recorded"
    )


@dataclass(eq=False)
class SlotNotFound(RefusedError):
    """The replication slot the plan pinned is gone."""

    source_id: str
    slot: str

    kind = "slot_not_found"
    text = "source {source_id} has no replication slot {slot} any more"
    hint = "changes may be lost; opt in to a new snapshot with `on_gap: snapshot`"


@dataclass(eq=False)
class SeekFailed(RefusedError):
    """The source cannot be set to a checkpointed position."""

    source_id: str
    reason: str

    kind = "seek_failed"
    text = "source {source_id} cannot seek to its checkpoint: {reason}"
    hint = "restore the source; an older checkpoint would need even older records"


@dataclass(eq=False)
class SourceReplaced(RefusedError):
    """The source has another identity than the one the plan pinned."""

    source_id: str
    expected: str
    found: str

    kind = "source_replaced"
    text = "source {source_id} is not the one of the last epoch: expected {expected}, found {found}"
    hint = "point the pipeline back at the original, or start a new pipeline on the new one"


@dataclass(eq=False)
class TableChanged(RefusedError):
    """A table of a source was changed in a way that its log has no row changes for."""

    source_id: str
    table: str
    place: str
    what: str

    kind = "table_changed"
    text = "source {source_id}: at {place}, table {table} was changed: {what}"
    hint = (
        "going on would leave changes out, or take back rows otherwise than they were given out; "
        "begin a new pipeline, which takes a new snapshot"
    )


@dataclass(eq=False)
class TimelineChanged(RefusedError):
    """The server's history has forked since the last epoch: a failover, or a recovery."""

    source_id: str
    expected: int
    found: int

    kind = "timeline_changed"
    text = "source {source_id} is on timeline {found}, and was on {expected}"
    hint = (
        "changes may be lost that the old server had and the new one has not; opt in to a new "
        "snapshot with `on_gap: snapshot`"
    )


@dataclass(eq=False)
class SchemaChanged(RefusedError):
    """A table no longer fits the columns that the source declares."""

    source_id: str
    table: str
    what: str

    kind = "schema_changed"
    text = "source {source_id}: table {table} is not as it was declared: {what}"
    hint = (
        "declare the columns as they are now; for a column that is gone, make it nullable and set "
        "'on_schema_change' = 'ignore'"
    )


@dataclass(eq=False)
class LedgerMismatch(RefusedError):
    """A sink's ledger is at an epoch that no history of this store explains."""

    sink_id: str
    epoch: int
    ledger: int

    kind = "ledger_mismatch"
    text = "sink {sink_id} is at epoch {ledger}, but epoch {epoch} is the one to commit"
    hint = (
        "the sink or the store was restored from a backup, the store has lost what epoch {ledger} "
        "was, or two pipelines share the sink; nothing tells what the sink has, so bring back the "
        "store's lost objects, or the sink of the same moment"
    )


@dataclass(eq=False)
class OutputMismatch(RefusedError):
    """A sink holds other output of an epoch than the store."""

    sink_id: str
    epoch: int
    expected: str
    found: str

    kind = "output_mismatch"
    text = (
        "sink {sink_id} holds another epoch {epoch} than the store: its output has the SHA-256 "
        "{found}, and should have {expected}"
    )
    hint = (
        "the store lost the epoch that the sink has, or was restored from a backup, and another "
        "epoch took its number; restore the store or the sink, so that both have the same"
    )


@dataclass(eq=False)
class OperatorMismatch(RefusedError):
    """The checkpoint's operators are not the pipeline's."""

    missing_in_current: tuple[str, ...]
    missing_in_checkpoint: tuple[str, ...]

    kind = "operator_mismatch"
    text = (
        "the operators changed: only in the checkpoint {missing_in_current}, "
        "only in the pipeline {missing_in_checkpoint}"
    )
    hint = "see what would happen to the state with `laminar plan`"


@dataclass(eq=False)
class StateIncompatible(RefusedError):
    """The pipeline changed in a way that its state cannot be migrated to."""

    operator_id: str
    reason: str
    remedy: str = (
        "`laminar plan` shows every operator; undo the change, or give the changed view another "
        "name, under which it begins anew"
    )

    kind = "state_incompatible"
    text = "operator {operator_id} cannot go on with its state: {reason}"
    hint = "{remedy}"


@dataclass(eq=False)
class PipelineChanged(RefusedError):
    """An epoch belongs to another version of the pipeline than the one that is loaded."""

    epoch: int
    what: str

    kind = "pipeline_changed"
    text = "epoch {epoch} is of another version of the pipeline: {what}"
    hint = "use the version of the pipeline that wrote it"


@dataclass(eq=False)
class VersionReplaced(RefusedError):
    """A promoted branch replaced this version of the pipeline, and corrected its output."""

    epoch: int
    fingerprint: str

    kind = "version_replaced"
    text = "epoch {epoch} is not for this version of the pipeline ({fingerprint}): it was replaced"
    hint = (
        "a branch was promoted in its place; load the project as it is now, or go back on purpose: "
        "`laminar fork` with this version, then `laminar promote`"
    )


@dataclass(eq=False)
class BranchMismatch(RefusedError):
    """A branch is not in the state, or not of the version, that a command needs."""

    branch: str
    what: str

    kind = "branch_mismatch"
    text = "branch {branch} {what}"
    hint = "give another name, go back to that version, or `laminar branch drop` and fork again"


@dataclass(eq=False)
class CannotFork(RefusedError):
    """The changed pipeline cannot go on with the state of the checkpoint."""

    epoch: int
    operator_id: str
    reason: str

    kind = "cannot_fork"
    text = (
        "the pipeline as it is now cannot go on from epoch {epoch}: operator {operator_id}: "
        "{reason}"
    )
    hint = "fork from an earlier epoch whose state fits, or from the beginning: --from-epoch 0"


@dataclass(eq=False)
class CannotReplay(RefusedError):
    """An epoch of the pipeline cannot be replayed on a branch."""

    epoch: int
    reason: str

    kind = "cannot_replay"
    text = "epoch {epoch} cannot be replayed: {reason}"
    hint = "fork from this epoch or a later one; what is to be replayed must still be there"


@dataclass(eq=False)
class CannotRetract(RefusedError):
    """Sinks hold rows that the branch does not have, and that cannot be retracted."""

    branch: str
    sinks: tuple[str, ...]

    kind = "cannot_retract"
    text = "branch {branch} cannot be promoted: {shown}"
    hint = (
        "nothing was changed; give such a sink mode = 'upsert' and a key that holds the window and "
        "all it is grouped by, fork from epoch 0, or publish to a new sink: then fork again"
    )

    def __str__(self) -> str:
        """The message, with every sink that prevents the promotion."""
        return self.text.format(branch=self.branch, shown="; ".join(self.sinks))


@dataclass(eq=False)
class AlreadyReplayed(RefusedError):
    """A batch of dead letters has been appended to its source before."""

    source_id: str
    place: str

    kind = "already_replayed"
    text = "source {source_id}: these records were replayed before, into {place}"
    hint = (
        "a second time would double them; what fails again is in the dead letters of a later epoch"
    )


@dataclass(eq=False)
class NonDeterministicOperator(RefusedError):
    """An operator is not deterministic: a re-run could give other rows."""

    operator_id: str
    reason: str

    kind = "non_deterministic_operator"
    text = "operator {operator_id} is not deterministic: {reason}"
    hint = "use event time or epoch_time(); or allow it with `determinism: warn`"


@dataclass(eq=False)
class NotReproduced(RefusedError):
    """A committed epoch was run again with another result. Nothing was published."""

    epoch: int
    difference: str

    kind = "not_reproduced"
    text = "epoch {epoch} came out otherwise than it was committed: {difference}"
    hint = (
        "what is committed stays; look for a view that depends on more than its input, or for a "
        "source whose records have changed"
    )


@dataclass(eq=False)
class CannotRebuild(RefusedError):
    """A needed object is lost, and cannot be computed again from what is left.

    Attributes:
        epoch: The epoch that it belongs to.
        lost: Its key.
        ranges: The ranges that the epoch had read, if its plan is known.
    """

    epoch: int
    lost: str
    reason: str
    ranges: tuple[str, ...] = ()

    kind = "cannot_rebuild"
    text = "{lost} of epoch {epoch} is lost and cannot be made again: {reason}"
    hint = (
        "nothing was changed; bring the object back from a backup of the store, or restore what "
        "the reason names, then recover again"
    )

    def advice(self) -> str:
        """The hint, with the ranges that the epoch had read."""
        if not self.ranges:
            return self.hint
        return f"{self.hint}; epoch {self.epoch} has read {', '.join(self.ranges)}"


@dataclass(eq=False)
class StoreSetBack(RefusedError):
    """A witness, such as a checkpoint index, knows a later checkpoint than the store holds."""

    store: str
    newest: int
    witness: str
    known: int

    kind = "store_set_back"
    text = "{store} holds no checkpoint after epoch {newest}, and {witness} knows of epoch {known}"
    hint = (
        "the store has lost its newest checkpoints, or is an older copy of itself: going on would "
        "compute epochs again that were published; bring back the newest state of the store"
    )


@dataclass(eq=False)
class ConditionsIgnored(RefusedError):
    """The store ignores the conditions of conditional writes, so it cannot hold checkpoints."""

    store: str
    reason: str

    kind = "conditions_ignored"
    text = "object store {store} does not honour conditional writes: {reason}"
    hint = "use an S3 that honours If-None-Match and If-Match, or a disk with hard links"


@dataclass(eq=False)
class EpochOutOfOrder(RefusedError):
    """The epoch's parent checkpoint does not exist."""

    epoch: int
    missing: int

    kind = "epoch_out_of_order"
    text = "epoch {epoch} cannot run: epoch {missing} has no committed checkpoint"
    hint = "run epoch {missing} first"
