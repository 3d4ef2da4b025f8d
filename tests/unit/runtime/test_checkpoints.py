"""Checkpoints in memory and on a local disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.stores.local import LocalStore
from laminar_dagster.testing.memory_store import MemoryStore
from tests.unit.runtime.checkpoint_behaviour import CheckpointBehaviour


class TestInMemory(CheckpointBehaviour):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryStore()


class TestOnDisk(CheckpointBehaviour):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return LocalStore(tmp_path)
