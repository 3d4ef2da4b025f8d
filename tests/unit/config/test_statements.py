"""SHOW, DESCRIBE and DROP against a pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.config.mistakes import InvalidPipeline
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.config.statements import run_statement
from tests.unit.config.folders import load

SQL = """CREATE SOURCE TABLE orders (
    order_id BIGINT NOT NULL, amount DECIMAL(10, 2), ts TIMESTAMP,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (connector = 'kafka', topic = 'orders', password = 'hunter2', user = '${USER}',
        'schema.registry.url' = 'http://me:hunter2@host');
CREATE VIEW big AS SELECT order_id FROM orders WHERE amount > 100;
CREATE SINK out FROM big WITH (connector = 'sqlite', path = 'x.db', token = 'hunter2');
"""


@pytest.fixture
def model(tmp_path: Path) -> PipelineModel:
    return load(tmp_path, {"a.sql": SQL}, {"USER": "hunter2"})


def test_show(model: PipelineModel) -> None:
    at = model.sources[0].place.file
    sources = run_statement("SHOW SOURCES;", model)
    assert sources.columns == ("Source", "Connector", "Watermark", "Defined at")
    assert sources.rows == (("orders", "kafka", "ts - INTERVAL '5' SECOND", f"{at}:1"),)
    assert run_statement("show sinks", model).rows == (("out", "big", "sqlite", f"{at}:7"),)
    assert run_statement("SHOW MATERIALIZED VIEWS", model).rows == (
        ("big", "orders", "1", f"{at}:6"),
    )


def test_describe_hides_secrets(model: PipelineModel) -> None:
    answer = run_statement("DESCRIBE SOURCE Orders", model)
    assert answer.rows == (
        ("order_id", "BIGINT", "NO", ""),
        ("amount", "DECIMAL(10,2)", "YES", ""),
        ("ts", "TIMESTAMP", "YES", "ts - INTERVAL '5' SECOND"),
    )
    assert answer.notes == (
        "connector: kafka",
        "topic: orders",
        "password: ***",
        "user: ${USER}",
        "schema.registry.url: http://***@host",
    )
    assert ("token", "***") in run_statement("DESC SINK out", model).rows
    assert run_statement("DESCRIBE VIEW big", model).rows == (("order_id",),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "DROP SOURCE orders",
            "statement:1:13: source `orders` is defined in a file and stays until it is removed "
            "there (remove it from FILE:1; first, what reads it: view big)",
        ),
        (
            "DROP MATERIALIZED VIEW IF EXISTS big",
            "statement:1:34: view `big` is defined in a file and stays until it is removed there "
            "(remove it from FILE:6; first, what reads it: sink out)",
        ),
        (
            "DESCRIBE SOURCE oders",
            "statement:1:17: there is no source `oders` (did you mean `orders`?)",
        ),
        (
            "SHOW SORCES",
            "statement:1:6: SOURCES, REFERENCE TABLES, SINKS, MATERIALIZED VIEWS or VIEWS "
            "is expected here, "
            "not `SORCES` (did you mean `SOURCES`?)",
        ),
        ("SHOW SOURCES; SHOW SINKS", "statement:1:15: one statement at a time"),
        ("", "statement: there is no statement (for example SHOW SOURCES)"),
        ("SHOW SOURCES 'x", "statement:1: a ' is never closed (close it with ')"),
        ("x" * 20_000, "statement: it is longer than 10000 characters"),
    ],
)
def test_a_wrong_statement(model: PipelineModel, text: str, expected: str) -> None:
    with pytest.raises(InvalidPipeline) as caught:
        run_statement(text, model)
    found = "\n".join(caught.value.lines())
    assert found.replace(model.sources[0].place.file, "FILE") == expected
