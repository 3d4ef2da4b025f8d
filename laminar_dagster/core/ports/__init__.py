"""The ports: what the core asks of the world, as Protocols.

Each docstring states the guarantee, what is idempotent, and which errors are raised. A published
contract suite in ``laminar_dagster.testing`` checks an adapter against the words here.
"""

from __future__ import annotations

from laminar_dagster.core.ports.checkpoint_index import CheckpointIndex, RecordedCheckpoint
from laminar_dagster.core.ports.clock import Clock
from laminar_dagster.core.ports.engine import Engine, EpochOutput, Examination, Violation
from laminar_dagster.core.ports.reference import (
    Reference,
    ReferenceFreshness,
    ReferenceRows,
)
from laminar_dagster.core.ports.restorable import Restorable
from laminar_dagster.core.ports.sink import (
    ArrowRows,
    ArrowSchema,
    Attesting,
    GroupOffsets,
    HeldKeys,
    PendingTransaction,
    Published,
    Searchable,
    Sink,
    StagedOutput,
    Transactional,
    TransactionProgress,
    Unconstrained,
    Unwatched,
)
from laminar_dagster.core.ports.snapshots import SnapshotDraft, SnapshotKeeper, Snapshotting
from laminar_dagster.core.ports.source import (
    Admission,
    DecodedChunk,
    Grouped,
    Observable,
    PinsItsEnd,
    ReadByName,
    ReadingCost,
    Replayable,
    Source,
    SplitReader,
)
from laminar_dagster.core.ports.store import ObjectInfo, ObjectStore, VersionedObject

__all__ = [
    "Admission",
    "ArrowRows",
    "ArrowSchema",
    "Attesting",
    "CheckpointIndex",
    "Clock",
    "DecodedChunk",
    "Engine",
    "EpochOutput",
    "Examination",
    "GroupOffsets",
    "Grouped",
    "HeldKeys",
    "ObjectInfo",
    "ObjectStore",
    "Observable",
    "PendingTransaction",
    "PinsItsEnd",
    "Published",
    "ReadByName",
    "ReadingCost",
    "RecordedCheckpoint",
    "Reference",
    "ReferenceFreshness",
    "ReferenceRows",
    "Replayable",
    "Restorable",
    "Searchable",
    "Sink",
    "SnapshotDraft",
    "SnapshotKeeper",
    "Snapshotting",
    "Source",
    "SplitReader",
    "StagedOutput",
    "TransactionProgress",
    "Transactional",
    "Unconstrained",
    "Unwatched",
    "VersionedObject",
    "Violation",
]
