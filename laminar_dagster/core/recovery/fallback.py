"""Candidates for recovery: checkpoints, and whether their operators are the pipeline's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from laminar_dagster.core.errors import LaminarError, OperatorMismatch
from laminar_dagster.core.ids import CheckpointId, OperatorId
from laminar_dagster.core.manifest import CheckpointManifest


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint that was found: its manifest, or why it cannot be read."""

    checkpoint_id: CheckpointId
    manifest: CheckpointManifest | LaminarError


def check_operators(
    manifest: CheckpointManifest, current: Iterable[OperatorId], *, allow_mismatch: bool = False
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Compare a checkpoint's operators with the pipeline's.

    Returns:
        The operators only the checkpoint has, and those only the pipeline has.

    Raises:
        OperatorMismatch: They differ, and that is not allowed.
    """
    stored = {entry.operator_id for entry in manifest.operators}
    wanted = set(current)
    only_stored = tuple(sorted(stored - wanted))
    only_wanted = tuple(sorted(wanted - stored))
    if (only_stored or only_wanted) and not allow_mismatch:
        raise OperatorMismatch(only_stored, only_wanted)
    return only_stored, only_wanted
