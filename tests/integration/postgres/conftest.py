"""Tables of a database that no other test uses."""

from __future__ import annotations

import pytest

from infra.postgres import PostgresEndpoint
from tests.integration.postgres.tables import Tables


@pytest.fixture
def tables(postgres_service: PostgresEndpoint, postgres_database: str) -> Tables:
    return Tables(postgres_service, postgres_database)
