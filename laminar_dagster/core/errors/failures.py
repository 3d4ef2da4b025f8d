"""Damaged bytes, another writer, and whatever else ends the work."""

from __future__ import annotations

from dataclasses import dataclass

from laminar_dagster.core.errors.base import StopError


@dataclass(eq=False)
class IntegrityError(StopError):
    """Bytes are missing, damaged, or not what they say they are."""

    kind = "integrity"
    exit_code = 4


@dataclass(eq=False)
class MalformedDocument(IntegrityError):
    """A JSON document that cannot be read as what it should be."""

    document: str
    reason: str

    kind = "malformed_document"
    text = "{document} cannot be read: {reason}"
    hint = "the file is damaged or foreign; `laminar recover` mends what can be mended"


@dataclass(eq=False)
class UnsupportedVersion(IntegrityError):
    """A document of a format version that this release does not know."""

    document: str
    found: int
    expected: int

    kind = "unsupported_version"
    text = "{document} has format version {found}; this release reads version {expected}"
    hint = "upgrade laminar-dagster"


@dataclass(eq=False)
class InvalidManifest(IntegrityError):
    """A manifest that can be read but contradicts itself."""

    checkpoint_id: str
    reason: str

    kind = "invalid_manifest"
    text = "the manifest of checkpoint {checkpoint_id} is not valid: {reason}"
    hint = "`laminar recover` finds all that is damaged, and mends what can be mended"


@dataclass(eq=False)
class ChecksumMismatch(IntegrityError):
    """A file's bytes are not the ones that were written."""

    path: str
    expected: str
    actual: str

    kind = "checksum_mismatch"
    text = "{path} is damaged: its SHA-256 should be {expected} and is {actual}"
    hint = "`laminar recover` finds all that is damaged, and mends what can be mended"


@dataclass(eq=False)
class ObjectMissing(IntegrityError):
    """An object that should exist does not."""

    key: str

    kind = "object_missing"
    text = "{key} does not exist"
    hint = "check the store's URL; what a store has lost, `laminar recover` makes again if it can"


@dataclass(eq=False)
class DeltaWithoutBase(IntegrityError):
    """A chain of state files that does not begin with a full one."""

    operator_id: str
    partition_id: int

    kind = "delta_without_base"
    text = "operator {operator_id}, partition {partition_id}: a delta without the snapshot below it"
    hint = "`laminar recover` finds all that is damaged, and mends what can be mended"


@dataclass(eq=False)
class RestoreFailed(IntegrityError):
    """An operator's state cannot be restored from its file."""

    operator_id: str
    partition_id: int
    reason: str

    kind = "restore_failed"
    text = "cannot restore operator {operator_id}, partition {partition_id}: {reason}"
    hint = "`laminar recover` finds all that is damaged, and mends what can be mended"


@dataclass(eq=False)
class AllCheckpointsCorrupt(IntegrityError):
    """Every checkpoint that was tried is damaged."""

    attempted: int
    last_reason: str

    kind = "all_checkpoints_corrupt"
    text = "all {attempted} checkpoints that were tried are damaged; the last one: {last_reason}"
    hint = (
        "leave out --max-fallbacks, or give a greater number, where one was given; "
        "else restore the store from a backup"
    )


@dataclass(eq=False)
class FencedError(StopError):
    """Another writer holds the epoch. This one stops; nothing is lost."""

    kind = "fenced"
    exit_code = 5


@dataclass(eq=False)
class ObjectExists(FencedError):
    """A conditional write lost: another writer's object exists."""

    key: str

    kind = "object_exists"
    text = "{key} was written by somebody else"
    hint = "another process is working on the same epoch; let it finish"


@dataclass(eq=False)
class EpochTaken(FencedError):
    """Another attempt prepared or committed the epoch first."""

    epoch: int
    winner: str

    kind = "epoch_taken"
    text = "epoch {epoch} belongs to attempt {winner}"
    hint = "another process is working on the same epoch; let it finish"


@dataclass(eq=False)
class UpkeepFenced(FencedError):
    """Another process planned the epoch for something else."""

    epoch: int
    planned: str

    kind = "upkeep_fenced"
    text = "another process planned epoch {epoch} first: {planned}"
    hint = "stop whatever runs epochs of this pipeline, then run the command again"


@dataclass(eq=False)
class FencedOut(FencedError):
    """A sink's server says that a newer instance took over."""

    sink_id: str
    reason: str

    kind = "fenced_out"
    text = "sink {sink_id}: a newer instance took over: {reason}"
    hint = "another process commits to this sink; this one must not go on"


@dataclass(eq=False)
class FailedError(StopError):
    """Anything else that ended the work."""

    kind = "failed"


@dataclass(eq=False)
class GateFailed(FailedError):
    """A blocking check refused the epoch's output. Nothing was published.

    Attributes:
        subject: The view that the check is about; empty when it is the whole epoch.
    """

    epoch: int
    check: str
    reason: str
    subject: str = ""

    kind = "gate_failed"
    text = "epoch {epoch} did not pass check {check}: {reason}"
    hint = "nothing was published; mend the data or the contract and run the epoch again"


@dataclass(eq=False)
class DecodeFailed(FailedError):
    """A record is bad, and the pipeline is set to fail on bad records."""

    source_id: str
    position: str
    reason: str

    kind = "decode_failed"
    text = "source {source_id}, record at {position}: {reason}"
    hint = "set `on_bad_record: dead_letter` to keep bad records aside and go on"


@dataclass(eq=False)
class ReferenceUnfit(FailedError):
    """A reference table is not what was declared, so it cannot be joined with."""

    reference_id: str
    problem: str

    kind = "reference_unfit"
    text = "reference table {reference_id} cannot be used: {problem}"
    hint = "mend the table or its declaration; nothing was planned, so the next epoch sees it whole"


@dataclass(eq=False)
class NoCheckpointAvailable(FailedError):
    """There is nothing to recover from."""

    store: str

    kind = "no_checkpoint_available"
    text = "{store} holds no checkpoint"
    hint = "a new pipeline has none before its first epoch; otherwise check the store's URL"


@dataclass(eq=False)
class RecoveryTimeout(FailedError):
    """Recovery did not finish in time."""

    seconds: float

    kind = "recovery_timeout"
    text = "recovery did not finish within {seconds:g} s"
    hint = "raise the limit, or look at the store's throughput"


@dataclass(eq=False)
class TransactionBeginFailed(FailedError):
    """A sink could not open its transaction."""

    sink_id: str
    epoch: int
    reason: str

    kind = "transaction_begin_failed"
    text = "sink {sink_id} cannot begin epoch {epoch}: {reason}"
    hint = "the commit is redone from staged output on the next run"


@dataclass(eq=False)
class TransactionAbortFailed(FailedError):
    """A sink could not abort its transaction; its server does so by itself."""

    sink_id: str
    epoch: int
    reason: str

    kind = "transaction_abort_failed"
    text = "sink {sink_id} cannot abort epoch {epoch}: {reason}"
    hint = "the server ends the transaction by fencing or timeout; run the epoch again"


@dataclass(eq=False)
class WriteFailed(FailedError):
    """A sink refused a row of the epoch. Its transaction is rolled back."""

    sink_id: str
    epoch: int
    reason: str

    kind = "write_failed"
    text = "sink {sink_id} refused a row of epoch {epoch}: {reason}"
    hint = "nothing of the epoch is in this sink; mend the sink's table and run the commit again"


@dataclass(eq=False)
class ServiceFailed(FailedError):
    """A store, a source or a sink failed with an error that is not known to be transient."""

    service: str
    reason: str

    kind = "service_failed"
    text = "{service} failed: {reason}"
    hint = "it is not known to pass by itself: mend what the reason names, then run it again"


@dataclass(eq=False)
class BufferOverflow(FailedError):
    """The epoch's output is larger than one transaction of the sink may hold."""

    sink_id: str
    amount: int
    limit: int
    unit: str = "rows"

    kind = "buffer_overflow"
    text = "sink {sink_id}: {amount} {unit} in one epoch, its transaction may hold {limit}"
    hint = (
        "nothing was published; lower the epoch's `max_records` or `max_bytes`, or raise what the "
        "sink's transaction may hold"
    )


@dataclass(eq=False)
class ComputeFailed(FailedError):
    """The job of an epoch could not be carried out. Nothing was published."""

    operator_id: str
    reason: str

    kind = "compute_failed"
    text = "{operator_id}: {reason}"
    hint = "nothing was published; mend the query or the data and run the epoch again"


@dataclass(eq=False)
class SparkLost(FailedError):
    """Spark's Java process has died, and the running computation with it."""

    reason: str

    kind = "spark_lost"
    text = "Spark's Java process is gone: {reason}"
    hint = (
        "nothing is lost or doubled, run again; if the machine was out of memory, give Spark less "
        "(spark.driver.memory) or make epochs smaller"
    )


@dataclass(eq=False)
class ModelFailed(FailedError):
    """The Python of a model raised an error, or returned what it does not declare."""

    operator_id: str
    where: str
    reason: str

    kind = "model_failed"
    text = "model {operator_id}, {where}: {reason}"
    hint = "nothing was published; mend the model or the data and run the epoch again"
