"""A fixture for a real schema registry: `schema_registry_service`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.schema_registry import SchemaRegistry, SchemaRegistryEndpoint


@pytest.fixture(scope="session")
def schema_registry_service(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SchemaRegistryEndpoint]:
    """One registry per test process; tests share it and use subjects of their own."""
    with SchemaRegistry() as server:
        yield server.start(tmp_path_factory.mktemp("schema_registry"))
