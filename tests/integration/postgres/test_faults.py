"""A wire that is cut: the outcome is an error that says to try again, and a second try is right."""

from __future__ import annotations

import pytest

from laminar_dagster.core.errors import AcknowledgeFailed, SourceUnavailable
from tests.integration.postgres.tables import Reading, Tables, read, rows_of
from tests.services.faulty_wire import WireFactory

pytestmark = pytest.mark.service("postgres")

COLUMNS = {"id": "bigint!"}


def test_a_cut_wire(tables: Tables, faulty_wire: WireFactory) -> None:
    tables.run("CREATE TABLE orders (id bigint)", "INSERT INTO orders VALUES (1)")
    wire = faulty_wire(tables.endpoint.host, tables.endpoint.port)
    options = {"port": str(wire.port), "retain__wal": "none"}
    reading = Reading(tables.source(COLUMNS, tables="orders", **options))

    # The slot is made, and nobody is told: what is left is removed, and the copy starts over.
    wire.swallow_next_reply(lambda request: b"CREATE_REPLICATION_SLOT" in request)
    with pytest.raises(SourceUnavailable):
        reading.plan()
    assert [row["id"] for row in reading.rows()] == [1]

    tables.run("INSERT INTO orders SELECT generate_series(2, 5000)")
    plan = reading.plan()
    wire.cut_next_request(lambda request: b"COPY" in request)
    with pytest.raises(SourceUnavailable):
        read(reading.source, plan)
    assert [row["id"] for row in rows_of(read(reading.source, plan))] == [*range(2, 5001)]

    # The slot has moved, and nobody is told. The next epoch goes on all the same.
    reading.previous = plan
    wire.swallow_next_reply(lambda request: b"slot_advance" in request)
    with pytest.raises(AcknowledgeFailed):
        reading.source.acknowledge(reading.at)
    tables.run("INSERT INTO orders VALUES (6000)")
    assert [row["id"] for row in reading.rows()] == [6000]
    reading.source.acknowledge(reading.at)

    wire.refuse()
    with pytest.raises(SourceUnavailable):
        reading.plan()
