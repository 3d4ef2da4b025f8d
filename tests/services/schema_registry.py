"""A fixture for a real schema registry: `schema_registry_service`."""

from __future__ import annotations

import pytest

from infra.schema_registry import SchemaRegistry, SchemaRegistryEndpoint
from tests.services.sharing import Services


@pytest.fixture(scope="session")
def schema_registry_service(services: Services) -> SchemaRegistryEndpoint:
    """One registry per run; tests share it and use subjects of their own."""
    return services.endpoint("schema_registry", SchemaRegistry)
