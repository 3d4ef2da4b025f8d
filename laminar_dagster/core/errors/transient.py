"""Errors after which a retry may succeed, or whose outcome has to be read back first."""

from __future__ import annotations

from dataclasses import dataclass

from laminar_dagster.core.errors.base import RetryError, UnknownOutcome


@dataclass(eq=False)
class StoreUnavailable(RetryError):
    """The object store did not answer, or answered that it is unavailable."""

    store: str
    reason: str

    kind = "store_unavailable"
    text = "object store {store} is away: {reason}"
    hint = "check that the store is up and reachable, then run the command again"


@dataclass(eq=False)
class SourceUnavailable(RetryError):
    """A source's server cannot be reached."""

    source_id: str
    reason: str

    kind = "source_unavailable"
    text = "source {source_id} is away: {reason}"
    hint = "check that the server is up and reachable, then run the command again"


@dataclass(eq=False)
class ReferenceUnavailable(RetryError):
    """A reference table cannot be reached, so no epoch can be planned that reads it."""

    reference_id: str
    reason: str

    kind = "reference_unavailable"
    text = "reference table {reference_id} is away: {reason}"
    hint = (
        "check that it is reachable, then run the command again; with on_unavailable = 'keep' "
        "epochs go on with the copy that the last one used"
    )


@dataclass(eq=False)
class SinkUnavailable(RetryError):
    """A sink's server cannot be reached, and no transaction was open."""

    sink_id: str
    reason: str

    kind = "sink_unavailable"
    text = "sink {sink_id} is away: {reason}"
    hint = "check that the server is up; the epoch is committed and this sink will catch up"


@dataclass(eq=False)
class RegistryUnavailable(RetryError):
    """The schema registry cannot be reached and the schema is not cached."""

    registry: str
    reason: str

    kind = "registry_unavailable"
    text = "schema registry {registry} is away: {reason}"
    hint = "check that the registry is up, then run the command again"


@dataclass(eq=False)
class CheckpointListFailed(RetryError):
    """The checkpoints could not be listed."""

    store: str
    reason: str

    kind = "checkpoint_list_failed"
    text = "cannot list the checkpoints of {store}: {reason}"
    hint = "check that the store is up and that the credentials may list it"


@dataclass(eq=False)
class ManifestWriteFailed(RetryError):
    """The manifest could not be written. The epoch stays prepared and can be finished later."""

    key: str
    reason: str

    kind = "manifest_write_failed"
    text = "cannot write {key}: {reason}"
    hint = "nothing is lost: the epoch is prepared, run it again to finish it"


@dataclass(eq=False)
class AcknowledgeFailed(RetryError):
    """A source did not take the acknowledgement. Correctness does not depend on it."""

    source_id: str
    reason: str

    kind = "acknowledge_failed"
    text = "source {source_id} did not take the acknowledgement: {reason}"
    hint = "the next epoch acknowledges again; only the source's own lag display is late"


@dataclass(eq=False)
class EpochWaits(RetryError):
    """The epoch cannot be finished before an earlier one is."""

    epoch: int
    behind: int

    kind = "epoch_waits"
    text = "epoch {epoch} waits for epoch {behind}, which is not finished"
    hint = "finish epoch {behind} first; running without an epoch number does so"


@dataclass(eq=False)
class PipelineMovesOn(RetryError):
    """A branch cannot catch up: its pipeline committed more epochs at every attempt."""

    branch: str
    epoch: int

    kind = "pipeline_moves_on"
    text = "the pipeline is at epoch {epoch}, and branch {branch} does not catch up with it"
    hint = "pause the pipeline, then promote again; what was replayed is kept"


@dataclass(eq=False)
class RecoveryOvertaken(RetryError):
    """The pipeline committed more at every attempt of a recovery to read the store."""

    epoch: int

    kind = "recovery_overtaken"
    text = "the pipeline is past epoch {epoch}, and was faster than the recovery every time"
    hint = "pause the pipeline, then recover again; nothing was changed"


@dataclass(eq=False)
class UpkeepWaits(RetryError):
    """Upkeep has to wait: an unfinished epoch builds on the state that it would replace."""

    behind: int

    kind = "upkeep_waits"
    text = "epoch {behind} is not finished, and the state cannot be changed under it"
    hint = (
        "let it finish, or finish it with `laminar run` and the pipeline as it was when the epoch "
        "was planned; then run the command again"
    )


@dataclass(eq=False)
class EpochNotPrepared(RetryError):
    """There is nothing to commit: no attempt at the epoch has won yet."""

    epoch: int

    kind = "epoch_not_prepared"
    text = "epoch {epoch} is not prepared, so there is nothing to commit"
    hint = "run the epoch first"


@dataclass(eq=False)
class TransactionInitFailed(RetryError):
    """A sink's transactions could not be initialised."""

    sink_id: str
    reason: str

    kind = "transaction_init_failed"
    text = "sink {sink_id} cannot initialise its transactions: {reason}"
    hint = "check that the server is up and that its transactional id is used by one pipeline only"


@dataclass(eq=False)
class ConnectionLost(RetryError):
    """A sink's connection broke before its commit was sent: the server rolls back."""

    sink_id: str
    reason: str

    kind = "connection_lost"
    text = "sink {sink_id} lost its connection before the commit: {reason}"
    hint = "nothing was published; the commit is redone from staged output"


@dataclass(eq=False)
class WriteOutcomeUnknown(UnknownOutcome):
    """A conditional write got no usable reply and the object could not be read back."""

    key: str
    reason: str

    kind = "write_outcome_unknown"
    text = "it is not known whether {key} was written: {reason}"
    hint = "run the command again: it reads the object first and goes on from what it finds"


@dataclass(eq=False)
class CommitOutcomeUnknown(UnknownOutcome):
    """A sink's commit got no usable reply, and its ledger could not be read."""

    sink_id: str
    epoch: int
    reason: str

    kind = "commit_outcome_unknown"
    text = "it is not known whether sink {sink_id} committed epoch {epoch}: {reason}"
    hint = "run the command again: it reads the sink's ledger first and goes on from what it finds"
