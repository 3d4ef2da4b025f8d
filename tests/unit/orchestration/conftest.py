from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from tests.unit.orchestration.conditions import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Stage(tmp_path, instance)
