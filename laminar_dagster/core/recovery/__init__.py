"""Recovery, as decisions: what was found, what it means, what is damaged, what to do about it.

A crash needs none of this: ``core.protocol`` goes on from whatever facts it finds. Recovery is for
*damage*: objects of the store that are missing, cut off, altered or swapped. Nothing here reads or
writes; ``runtime.recovery`` does.
"""

from laminar_dagster.core.recovery.damage import (
    Damage,
    KeptFile,
    Need,
    Repair,
    RepairKind,
    choose_winner,
    describe_ranges,
    find_confirmed,
    other_files,
)
from laminar_dagster.core.recovery.fallback import Candidate, check_operators
from laminar_dagster.core.recovery.outcome import (
    OperatorRecoveryResult,
    RecoveryPhase,
    RecoveryProgress,
    RecoveryResult,
    UnfinishedEpoch,
)
from laminar_dagster.core.recovery.plan import OperatorSnapshotRef, RecoveryPlan
from laminar_dagster.core.recovery.settings import PartitionAssignment, RecoveryConfig
from laminar_dagster.core.recovery.standing import FoundEpoch, Standing, facts_of

__all__ = [
    "Candidate",
    "Damage",
    "FoundEpoch",
    "KeptFile",
    "Need",
    "OperatorRecoveryResult",
    "OperatorSnapshotRef",
    "PartitionAssignment",
    "RecoveryConfig",
    "RecoveryPhase",
    "RecoveryPlan",
    "RecoveryProgress",
    "RecoveryResult",
    "Repair",
    "RepairKind",
    "Standing",
    "UnfinishedEpoch",
    "check_operators",
    "choose_winner",
    "describe_ranges",
    "facts_of",
    "find_confirmed",
    "other_files",
]
