"""What most tests of recovery begin with."""

from __future__ import annotations

import pytest

from tests.unit.runtime.recovery.ruins import Ruin


@pytest.fixture
def ruin() -> Ruin:
    """Seven epochs that both sinks have."""
    return Ruin().run(7)
