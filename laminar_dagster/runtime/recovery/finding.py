"""What a recovery has found and is about to do, as values that exist before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from laminar_dagster.core.ids import OperatorId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import Restorable
from laminar_dagster.core.recovery import (
    Damage,
    Repair,
)
from laminar_dagster.runtime.recovery.found import Discovery
from laminar_dagster.runtime.recovery.inspection import (
    Inspector,
    RestoredChain,
)
from laminar_dagster.runtime.recovery.rebuilding import Rebuild, Rebuilder
from laminar_dagster.runtime.recovery.repair import DocumentRepairs


@dataclass(frozen=True, slots=True)
class Remedy:
    """Every repair that a recovery is about to make."""

    documents: DocumentRepairs
    rebuild: Rebuild

    @property
    def is_needed(self) -> bool:
        """Whether there is damage at all."""
        return bool(self.repairs or self.left)

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """The repairs, in order."""
        return (
            *self.rebuild.repairs(),
            *(each.repair for each in self.documents.ordered),
        )

    @property
    def left(self) -> tuple[Damage, ...]:
        """The damage that is not repaired."""
        files = (Damage(each.file.key, each.file.epoch, each.problem) for each in self.rebuild.left)
        return (*self.documents.left, *files)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a recovery has found in the store, and the repairs that it is about to make."""

    found: Discovery
    target: CheckpointManifest | None
    takers: Mapping[OperatorId, Restorable]
    restored: list[RestoredChain]
    inspector: Inspector
    rebuilder: Rebuilder
    remedy: Remedy
