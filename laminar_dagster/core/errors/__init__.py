"""Every error the system raises, in one tree grouped by what the handler does.

::

    LaminarError
    ├── RetryError      nothing happened; the same call may succeed later     exit 75
    │   ├── StoreUnavailable   SourceUnavailable   SinkUnavailable   RegistryUnavailable
    │   │   ReferenceUnavailable
    │   ├── CheckpointListFailed   ManifestWriteFailed   AcknowledgeFailed
    │   └── EpochWaits   UpkeepWaits   EpochNotPrepared   TransactionInitFailed   ConnectionLost
    │       PipelineMovesOn
    │       RecoveryOvertaken
    ├── UnknownOutcome  it may have happened; read the durable fact, then decide  exit 75
    │   ├── WriteOutcomeUnknown    (read the object back)
    │   └── CommitOutcomeUnknown   (read the sink's ledger)
    └── StopError       retrying cannot help
        ├── UsageError       the caller or the configuration is wrong          exit 2
        │   └── InvalidName   InvalidCheckpointId   InvalidConfig   AuthFailed
        │       UnknownOperator   UnknownSource   EpochNotCommitted   InvalidState
        │       UnknownBranch   NoPipelines   SeveralPipelines   UnknownPipeline   NoEpochs
        │       UnknownEpoch   EpochWithoutCheckpoint   UnknownCheckpoint
        │       IncompleteCheckpoint   NoLetters   JavaMissing   UnknownView   UnlikeColumns
        ├── RefusedError     going on would lose or duplicate data             exit 3
        │   └── RetentionExpired   SlotNotFound   SeekFailed   SourceReplaced   LedgerMismatch
        │       OperatorMismatch   NonDeterministicOperator   ConditionsIgnored   EpochOutOfOrder
        │       StateIncompatible   PipelineChanged   AlreadyReplayed   NotReproduced
        │       CannotRebuild   StoreSetBack   VersionReplaced   BranchMismatch   CannotFork
        │       CannotReplay   CannotRetract   OutputMismatch   SchemaChanged
        │       TableChanged   TimelineChanged
        ├── IntegrityError   bytes are missing, damaged or not what they say   exit 4
        │   └── MalformedDocument   UnsupportedVersion   InvalidManifest   ChecksumMismatch
        │       ObjectMissing   DeltaWithoutBase   RestoreFailed   AllCheckpointsCorrupt
        ├── FencedError      another writer holds the epoch                    exit 5
        │   └── ObjectExists   EpochTaken   UpkeepFenced   FencedOut
        └── FailedError      anything else that ended the work                 exit 1
            └── GateFailed   DecodeFailed   ComputeFailed   NoCheckpointAvailable
                RecoveryTimeout   TransactionBeginFailed   TransactionAbortFailed   WriteFailed
                BufferOverflow   ModelFailed   ReferenceUnfit   ServiceFailed   SparkLost

An error is a small record: ``kind`` is stable and meant for programs, the fields say where, the
text says what happened and ``hint`` what to do. Errors pickle, because they cross process
boundaries on Spark's executors.
"""

from laminar_dagster.core.errors.base import (
    LaminarError,
    RetryError,
    StopError,
    UnknownOutcome,
)
from laminar_dagster.core.errors.failures import (
    AllCheckpointsCorrupt,
    BufferOverflow,
    ChecksumMismatch,
    ComputeFailed,
    DecodeFailed,
    DeltaWithoutBase,
    EpochTaken,
    FailedError,
    FencedError,
    FencedOut,
    GateFailed,
    IntegrityError,
    InvalidManifest,
    MalformedDocument,
    ModelFailed,
    NoCheckpointAvailable,
    ObjectExists,
    ObjectMissing,
    RecoveryTimeout,
    ReferenceUnfit,
    RestoreFailed,
    ServiceFailed,
    SparkLost,
    TransactionAbortFailed,
    TransactionBeginFailed,
    UnsupportedVersion,
    UpkeepFenced,
    WriteFailed,
)
from laminar_dagster.core.errors.refusals import (
    AlreadyReplayed,
    BranchMismatch,
    CannotFork,
    CannotRebuild,
    CannotReplay,
    CannotRetract,
    ConditionsIgnored,
    EpochOutOfOrder,
    LedgerMismatch,
    NonDeterministicOperator,
    NotReproduced,
    OperatorMismatch,
    OutputMismatch,
    PipelineChanged,
    RefusedError,
    RetentionExpired,
    SchemaChanged,
    SeekFailed,
    SlotNotFound,
    SourceReplaced,
    StateIncompatible,
    StoreSetBack,
    TableChanged,
    TimelineChanged,
    VersionReplaced,
)
from laminar_dagster.core.errors.requests import (
    EpochWithoutCheckpoint,
    IncompleteCheckpoint,
    JavaMissing,
    NoEpochs,
    NoLetters,
    NoPipelines,
    SeveralPipelines,
    UnknownCheckpoint,
    UnknownEpoch,
    UnknownOperator,
    UnknownPipeline,
    UnknownView,
    UnlikeColumns,
)
from laminar_dagster.core.errors.transient import (
    AcknowledgeFailed,
    CheckpointListFailed,
    CommitOutcomeUnknown,
    ConnectionLost,
    EpochNotPrepared,
    EpochWaits,
    ManifestWriteFailed,
    PipelineMovesOn,
    RecoveryOvertaken,
    ReferenceUnavailable,
    RegistryUnavailable,
    SinkUnavailable,
    SourceUnavailable,
    StoreUnavailable,
    TransactionInitFailed,
    UpkeepWaits,
    WriteOutcomeUnknown,
)
from laminar_dagster.core.errors.usage import (
    AuthFailed,
    EpochNotCommitted,
    InvalidCheckpointId,
    InvalidConfig,
    InvalidName,
    InvalidState,
    UnknownBranch,
    UnknownSource,
    UsageError,
)

__all__ = [
    "AcknowledgeFailed",
    "AllCheckpointsCorrupt",
    "AlreadyReplayed",
    "AuthFailed",
    "BranchMismatch",
    "BufferOverflow",
    "CannotFork",
    "CannotRebuild",
    "CannotReplay",
    "CannotRetract",
    "CheckpointListFailed",
    "ChecksumMismatch",
    "CommitOutcomeUnknown",
    "ComputeFailed",
    "ConditionsIgnored",
    "ConnectionLost",
    "DecodeFailed",
    "DeltaWithoutBase",
    "EpochNotCommitted",
    "EpochNotPrepared",
    "EpochOutOfOrder",
    "EpochTaken",
    "EpochWaits",
    "EpochWithoutCheckpoint",
    "FailedError",
    "FencedError",
    "FencedOut",
    "GateFailed",
    "IncompleteCheckpoint",
    "IntegrityError",
    "InvalidCheckpointId",
    "InvalidConfig",
    "InvalidManifest",
    "InvalidName",
    "InvalidState",
    "JavaMissing",
    "LaminarError",
    "LedgerMismatch",
    "MalformedDocument",
    "ManifestWriteFailed",
    "ModelFailed",
    "NoCheckpointAvailable",
    "NoEpochs",
    "NoLetters",
    "NoPipelines",
    "NonDeterministicOperator",
    "NotReproduced",
    "ObjectExists",
    "ObjectMissing",
    "OperatorMismatch",
    "OutputMismatch",
    "PipelineChanged",
    "PipelineMovesOn",
    "RecoveryOvertaken",
    "RecoveryTimeout",
    "ReferenceUnavailable",
    "ReferenceUnfit",
    "RefusedError",
    "RegistryUnavailable",
    "RestoreFailed",
    "RetentionExpired",
    "RetryError",
    "SchemaChanged",
    "SeekFailed",
    "ServiceFailed",
    "SeveralPipelines",
    "SinkUnavailable",
    "SlotNotFound",
    "SourceReplaced",
    "SourceUnavailable",
    "SparkLost",
    "StateIncompatible",
    "StopError",
    "StoreSetBack",
    "StoreUnavailable",
    "TableChanged",
    "TimelineChanged",
    "TransactionAbortFailed",
    "TransactionBeginFailed",
    "TransactionInitFailed",
    "UnknownBranch",
    "UnknownCheckpoint",
    "UnknownEpoch",
    "UnknownOperator",
    "UnknownOutcome",
    "UnknownPipeline",
    "UnknownSource",
    "UnknownView",
    "UnlikeColumns",
    "UnsupportedVersion",
    "UpkeepFenced",
    "UpkeepWaits",
    "UsageError",
    "VersionReplaced",
    "WriteFailed",
    "WriteOutcomeUnknown",
]
