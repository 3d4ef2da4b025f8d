"""Checkpoints in memory and on a local disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from laminar_dagster.core.definition import PipelineDefinition
from laminar_dagster.core.ids import PipelineName
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.stores.local import LocalStore
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.core.test_deployment import OPERATOR
from tests.unit.runtime.checkpoint_behaviour import CheckpointBehaviour


class TestInMemory(CheckpointBehaviour):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryStore()


class TestOnDisk(CheckpointBehaviour):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return LocalStore(tmp_path)


def test_what_an_earlier_release_wrote_of_a_pipeline_stays() -> None:
    """It may have written down less; the fingerprint is the same."""
    earlier = PipelineDefinition(
        version=1, pipeline=PipelineName("shop"), fingerprint="f", buckets=8, operators=(OPERATOR,)
    )
    later = structs.replace(earlier, operators=(structs.replace(OPERATOR, input="1"),))
    store = MemoryStore()
    CheckpointStore(store).create_definition(earlier)
    for _ in range(2):
        CheckpointStore(store).create_definition(later)
    assert CheckpointStore(store).definition("f") == earlier
