"""An engine that dies at the worst moment."""

from __future__ import annotations

from dataclasses import dataclass

from laminar_dagster.core.ids import CheckpointId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import Engine, EpochOutput, Examination
from laminar_dagster.testing.crash import Crash


@dataclass
class DyingEngine:
    """Computes an epoch, and dies before anybody hears of it."""

    engine: Engine
    deaths: int = 1

    def compute(
        self, plan: EpochPlan, parent: CheckpointManifest | None, attempt: CheckpointId
    ) -> EpochOutput:
        output = self.engine.compute(plan, parent, attempt)
        if parent is not None and self.deaths:
            self.deaths -= 1
            raise Crash("after computing")
        return output

    def examine(self) -> Examination:
        return self.engine.examine()
