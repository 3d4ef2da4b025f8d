"""A source that becomes another one while an epoch reads it, under the same name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from laminar_dagster.core.errors import SourceReplaced
from laminar_dagster.core.plan import SourcePlan
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.testing.memory_pipeline import MemorySource
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.conditions import World


class NamedSource(MemorySource):
    """Asked after it was read whether it was what the plan says."""

    is_another = False

    def require_not_replaced(self, plan: SourcePlan) -> None:
        if self.is_another:
            raise SourceReplaced(str(self.source_id), "the old one", "a new one")


def pipeline_of(world: World, store: MemoryStore, source: NamedSource) -> Pipeline:
    return replace(world.pipeline(store), sources=(source,))


def test_what_may_be_of_another_source_is_not_published() -> None:
    store, world = MemoryStore(), World()
    world.log.partitions = [list(range(3))]
    source = NamedSource(world.log)
    source.is_another = True
    with pytest.raises(SourceReplaced):
        EpochRunner(pipeline_of(world, store, source)).run()
    assert not world.table.rows
    assert not [each.key for each in store.list("") if "prepared" in each.key]
    source.is_another = False
    EpochRunner(pipeline_of(world, store, source)).run()
    assert world.table.rows == world.log.expected()
