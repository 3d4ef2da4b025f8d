"""Every type through PostgreSQL, and what another client reads there."""

from __future__ import annotations

import json
import math
import uuid
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg import sql

from tests.integration.sinks.databases.any_values import (
    ZONED,
    check_digits,
    columns_of,
    decimals,
    tables,
)
from tests.integration.sinks.databases.epochs import commit
from tests.integration.sinks.databases.postgres_place import PostgresPlace

pytestmark = pytest.mark.service("postgres")

COLUMNS = columns_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
    float32=(pa.float32(), st.floats(width=32)),
    float64=(pa.float64(), st.floats()),
    longest_decimal=(pa.decimal256(76, 3), decimals(76, 3)),
    zoned=(pa.timestamp("us", "UTC"), ZONED),
    duration=(
        pa.duration("us"),
        st.timedeltas(timedelta(days=-90_000_000), timedelta(days=90_000_000)),
    ),
)


def as_read(name: str, value: Any) -> Any:
    """What psycopg makes of a value that is there as it should be."""
    if value is None:
        return None
    if isinstance(value, float):
        if math.isnan(value):
            return "nan"
        return value
    return Decimal(value) if name == "uint64" else value


def as_stored(name: str, value: Any) -> Any:
    """What psycopg has read, as the column has it.

    It reads a float4 from the text that the server shortens it to: any that rounds to the same.
    """
    if isinstance(value, float):
        value = float(np.float32(value)) if name == "float32" else value
        return "nan" if math.isnan(value) else value
    return value


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables(COLUMNS))
# Halfway between two shorter texts: the server and NumPy shorten it differently.
@example(table=pa.table({"row": [0], "float32": pa.array([65097648.0], pa.float32())}))
def test_what_is_written_is_what_another_client_reads(
    postgres_place: PostgresPlace, table: pa.Table
) -> None:
    name = f"t{uuid.uuid4().hex}"
    postgres_place.query("DROP TABLE IF EXISTS _laminar_ledger")
    commit(postgres_place.sink(name, schema="public"), 1, table)
    names = sql.SQL(", ").join(map(sql.Identifier, table.column_names)).as_string()
    # As they lie there: rows are added in their order.
    found = postgres_place.query(f"SELECT {names} FROM {name} ORDER BY ctid")
    expected = [
        tuple(as_read(name, value) for name, value in row.items()) for row in table.to_pylist()
    ]
    assert [tuple(map(as_stored, table.column_names, row)) for row in found] == expected
    for at, field in enumerate(table.schema):
        check_digits(field, [row[at] for row in found])


def test_documents_are_json_to_postgres(postgres_place: PostgresPlace) -> None:
    rows = pa.array(
        [{"list": [1, None], "map": [("a", 1.5)], "nan": float("nan")}],
        pa.struct(
            [
                ("list", pa.list_(pa.int8())),
                ("map", pa.map_(pa.string(), pa.float64())),
                ("nan", pa.float64()),
            ]
        ),
    )
    commit(postgres_place.sink(), 1, pa.table({"x": rows}))
    (found,) = postgres_place.query(
        "SELECT x #>> '{list,0}', x #>> '{map,a}', x ->> 'nan', x::text FROM t"
    )
    assert found[:3] == ("1", "1.5", None)
    assert json.loads(found[3])["map"] == {"a": 1.5}
