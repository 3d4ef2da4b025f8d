"""CREATE SOURCE TABLE and CREATE SINK, in SQL and in YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from laminar_dagster.config.connectors import Connectors
from laminar_dagster.config.model import Column, Place, WatermarkSpec
from tests.unit.config.folders import CONFIG, load, mistakes

# The examples of the Kafka source's specification, in which a secret stands in plain text.
SPECIFIED = """
-- Multi-topic Kafka source with Avro + Schema Registry
CREATE SOURCE TABLE trades (
    symbol VARCHAR,
    price DOUBLE,
    volume BIGINT,
    trade_time TIMESTAMP,
    WATERMARK FOR trade_time AS trade_time - INTERVAL '3' SECOND
) WITH (
    connector = 'kafka',
    topics = 'trades-nyse, trades-nasdaq, trades-cboe',
    'bootstrap.servers' = 'broker1:9092,broker2:9092,broker3:9092',
    'group.id' = 'laminardb-trades',
    format = 'avro',
    'schema.registry.url' = 'http://registry:8081',
    'max.poll.records' = '5000'
);
CREATE SOURCE TABLE sensor_readings (
    sensor_id VARCHAR NOT NULL,
    reading_time TIMESTAMP,
    WATERMARK FOR reading_time AS reading_time
) WITH (
    connector = 'kafka',
    topic = 'sensor-readings',
    'kafka.sasl.username' = 'user',
    'kafka.sasl.password' = 'hunter2'
);
"""


def test_the_specified_statements_are_read(tmp_path: Path) -> None:
    model = load(tmp_path, {"sources.sql": SPECIFIED})
    sensors, trades = model.sources
    assert trades.columns == (
        Column("symbol", "string"),
        Column("price", "double"),
        Column("volume", "bigint"),
        Column("trade_time", "timestamp"),
    )
    assert trades.watermark == WatermarkSpec("trade_time", 3_000_000)
    assert (trades.connector, trades.options["format"]) == ("kafka", "avro")
    assert "connector" not in trades.options
    assert sensors.columns[0] == Column("sensor_id", "string", nullable=False)
    assert sensors.watermark == WatermarkSpec("reading_time", 0)
    assert sensors.place == Place(f"{tmp_path}/shop/sources.sql", 18)
    assert "hunter2" not in repr(model)
    assert len([each for each in model.warnings if "holds a secret" in each]) == 2


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("INTEGER", "int"),
        ("dec(5)", "decimal(5,0)"),
        ("NUMERIC(38, 38)", "decimal(38,38)"),
        ("double precision", "double"),
        ("VARCHAR(20)", "string"),
        ("TIMESTAMP_NTZ", "timestamp_ntz"),
        ("array<Array<bigint>>", "array<array<bigint>>"),
        (
            "MAP<STRING, ARRAY<STRUCT<a: INT, `b c` DATE>>>",
            "map<string,array<struct<a:int,`b c`:date>>>",
        ),
    ],
)
def test_a_type_is_spelled_as_spark_spells_it(tmp_path: Path, written: str, canonical: str) -> None:
    statement = f"CREATE SOURCE TABLE s (x {written} COMMENT 'c') WITH (connector = 'file')"
    assert load(tmp_path, {"a.sql": statement}).sources[0].columns == (Column("x", canonical),)
    yaml = f"{CONFIG}sources: [{{name: s, connector: file, columns: {{x: '{written}'}}}}]\n"
    files = {"pipeline.yml": yaml, "a.sql": ""}
    assert load(tmp_path, files).sources[0].columns == (Column("x", canonical),)


def test_sources_and_sinks_in_yaml_are_the_same_as_in_sql(tmp_path: Path) -> None:
    sql = """
    CREATE SOURCE TABLE s (
        x INT NOT NULL, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '2' MINUTE
    ) WITH (connector = 'file', path = '${DIR}/x', header = true, skip = 3);
    CREATE SINK out FROM v WITH (connector = 'sqlite', path = 'a.db')
    """
    yaml = f"""{CONFIG}
sources:
  - name: s
    connector: file
    columns: {{x: INT NOT NULL, ts: TIMESTAMP}}
    watermark: {{column: ts, delay: 2m}}
    options: {{path: "${{DIR}}/x", header: true, skip: 3}}
sinks:
  - {{name: out, view: v, connector: sqlite, options: {{path: a.db}}}}
"""
    view = {"models/v.sql": "SELECT x FROM s"}
    one = load(tmp_path / "1", {"a.sql": sql, **view}, {"DIR": "/data"})
    two = load(tmp_path / "2", {"pipeline.yml": yaml, **view}, {"DIR": "/data"})
    for first, second in ((one.sources[0], two.sources[0]), (one.sinks[0], two.sinks[0])):
        assert (first.connector, first.options) == (second.connector, second.options)
        assert first.written == second.written
    assert one.sources[0].columns == two.sources[0].columns
    assert one.sources[0].watermark == two.sources[0].watermark
    assert one.sources[0].options == {"path": "/data/x", "header": "true", "skip": "3"}
    assert one.sources[0].written["path"] == "${DIR}/x"
    assert one.fingerprint == two.fingerprint
    assert two.sinks[0].place.line == 11


WRONG = [
    (
        "CREATE SOURCE TABLE s (x INT)",
        "1:30: source `s` needs WITH (connector = '…', …), not the end",
    ),
    (
        "CREATE SOURCE TABLE s (x INT) WIHT (a = '1')",
        "1:31: source `s` needs WITH (connector = '…'",
    ),
    ("CREATE SOURCE TABLE s (x INT) WITH (a = '1')", "1:31: source `s` has no `connector`"),
    ("CREATE SOURCE TABLE s (x INT,) WITH (connector = 'file')", "1:30: the name of a column is"),
    ("CREATE SOURCE TABLE s () WITH (connector = 'file')", "1:21: source `s` has no columns"),
    ("CREATE SOURCE TABLE s (x INT, X INT) WITH (connector = 'file')", "1:21: source `s` has two"),
    ("CREATE SOURCE TABLE s (x ARRAY) WITH (connector = 'file')", "1:31: ARRAY needs its types in"),
    ("CREATE SOURCE TABLE s (x DECIMAL(40)) WITH (connector = 'file')", "1:26: DECIMAL(40, 0) is"),
    (
        "CREATE SOURCE TABLE s (_x INT) WITH (connector = 'file')",
        "1:21: the column `_x` of `s` has",
    ),
    ("CREATE SOURCE TABLE _s (x INT) WITH (connector = 'file')", "1:21: the name `_s` is reserved"),
    ("CREATE SOURCE TABLE `../s` (x INT) WITH (connector = 'file')", "1:21: source id '../s' must"),
    (
        "CREATE SOURCE TABLE 's' (x INT) WITH (connector = 'file')",
        "1:21: a text in quotes is a text",
    ),
    ("CREATE SOURCE TABLE a.b (x INT) WITH (connector = 'file')", "1:22: a name has one part"),
    ("CREATE TABLE s (x INT)", "1:8: CREATE TABLE is not supported (did you mean CREATE SOURCE"),
    (
        "CREATE SOURCE TABLE s (x INT) WITH (connector = kafka)",
        "1:49: the value of `connector` has",
    ),
    ("CREATE SOURCE TABLE s (x INT) WITH (connector = ${X})", "1:49: the value of `connector` has"),
    (
        "CREATE SOURCE TABLE s (x INT) WITH (connector = 'a', A = '', a = '')",
        "1:62: the option `a`",
    ),
    (
        "CREATE SOURCE TABLE s (x INT) WITH (connector = 'a') x",
        "1:54: the statement should end here",
    ),
    (
        "CREATE SOURCE TABLE s (x INT, WATERMARK FOR x AS x) WITH (connector = 'file')",
        "1:45: event time `x` of `s` is of type int (it has to be TIMESTAMP)",
    ),
    (
        "CREATE SOURCE TABLE s (ts TIMESTAMP, WATERMARK FOR t AS t) WITH (connector = 'file')",
        "1:52: the watermark of `s` is for `t`, no column of it (did you mean `ts`?)",
    ),
    (
        "CREATE SOURCE TABLE s (ts TIMESTAMP, WATERMARK FOR ts AS now()) WITH (connector = 'file')",
        "1:58: a watermark is `ts` minus an INTERVAL (write ts - INTERVAL '5' SECOND)",
    ),
    (
        "CREATE SOURCE TABLE s (ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1' YEAR) "
        "WITH (connector = 'file')",
        "1:58: a YEAR has no fixed length; give it in days or shorter",
    ),
    (
        "CREATE SINK s FROM x WITH (connector = 'a')",
        "1:20: sink `s` reads from `x`, which is no view",
    ),
    ("CREATE SINK s AS SELECT 1", "1:15: a sink takes its rows FROM a view"),
    ("DROP SOURCE x", "1:1: DROP defines nothing (ask it with `laminar sql"),
    ("SELECT 1", "1:1: a query needs a name (put CREATE MATERIALIZED VIEW … AS before it)"),
]


@pytest.mark.parametrize(("sql", "expected"), WRONG)
def test_a_wrong_definition_says_what_is_wrong(tmp_path: Path, sql: str, expected: str) -> None:
    (found,) = mistakes(tmp_path, {"sources.sql": sql})
    assert found.startswith(f"sources.sql:{expected}")


def test_an_expression_that_breaks_off_is_told_with_its_line(tmp_path: Path) -> None:
    sql = (
        "CREATE SOURCE TABLE s (ts TIMESTAMP,\n WATERMARK FOR ts AS ts -) WITH (connector = 'file')"
    )
    found = mistakes(tmp_path, {"sources.sql": sql})
    assert found and found[0].startswith("sources.sql:2")


def test_a_value_from_the_environment_is_never_shown(tmp_path: Path) -> None:
    sql = "CREATE SOURCE TABLE s (x INT) WITH (connector = '${C}', password = '${P}', p = '${P}')"
    connectors = Connectors(sources={"file": ("path",)}, sinks={})
    found = mistakes(tmp_path, {"a.sql": sql}, {"C": "hunter2", "P": "hunter2"}, connectors)
    assert found and "hunter2" not in str(found)


def test_connectors_and_options_are_checked_if_they_are_known(tmp_path: Path) -> None:
    connectors = Connectors(
        sources={"file": ("path", "format"), "kafka": ("topic", "kafka.*")},
        sinks={"sqlite": ("path",)},
    )
    files = {
        "a.sql": "CREATE SOURCE TABLE a (x INT) WITH (connector = 'fle', path = 'p');\n"
        "CREATE SOURCE TABLE b (x INT) WITH (connector = 'kafka', tpic = 't', 'kafka.a' = '1');",
        "models/v.sql": "SELECT x FROM a",
        "sinks.sql": "CREATE SINK s FROM v WITH (connector = 'sqlite', paht = 'p')",
    }
    assert mistakes(tmp_path, files, connectors=connectors) == [
        "a.sql:1:37: source `a` asks for a connector `fle` that does not exist "
        "(did you mean `file`?)",
        "a.sql:2:58: connector `kafka` has no option `tpic` (did you mean `topic`?)",
        "sinks.sql:1:50: connector `sqlite` has no option `paht` (did you mean `path`?)",
    ]


def test_names_are_told_apart_whatever_their_case(tmp_path: Path) -> None:
    files = {
        "a.sql": "CREATE SOURCE TABLE s (x INT) WITH (connector = 'file');\n"
        "CREATE VIEW v AS SELECT x FROM s; CREATE SINK o FROM v WITH (connector = 'a');",
        "b.sql": "CREATE VIEW S AS SELECT x FROM v; CREATE SINK O FROM V WITH (connector = 'a');",
    }
    assert mistakes(tmp_path, files) == [
        "b.sql:1:13: there is already a source, reference table or view `S` "
        "(the other is at a.sql:1:21)",
        "b.sql:1:47: there is already a sink `O` (the other is at a.sql:2:47)",
    ]


@pytest.mark.parametrize(
    ("option", "environment", "told"),
    [
        ("path = '${DIR}/in'", {"DIR": ""}, "takes `${DIR}`, which is set, and empty"),
        ("path = '${DIR:-in}'", {"DIR": " "}, "takes `${DIR}`, which is set, and empty"),
        ("path = ' '", {}, "`path` is empty"),
        ("path = 'in', pattern = '${P:-}'", {}, "`pattern` is empty"),
    ],
)
@pytest.mark.parametrize("kind", ["SOURCE TABLE", "REFERENCE TABLE"])
def test_a_place_that_is_empty_is_refused(
    kind: str, option: str, environment: dict[str, str], told: str, tmp_path: Path
) -> None:
    """What is left of the path would be the root, or the folder of the project."""
    sql = f"CREATE {kind} s (n INT) WITH (connector = 'file', format = 'ndjson', {option});"
    (mistake,) = mistakes(tmp_path, {"a.sql": sql}, environment)
    assert mistake.startswith("a.sql:1:")
    assert told in mistake


def test_a_store_that_is_empty_is_refused(tmp_path: Path) -> None:
    config = "name: shop\nstore: '${ROOT}/store'\n"
    (mistake,) = mistakes(tmp_path, {"pipeline.yml": config}, {"ROOT": ""})
    assert mistake.startswith("pipeline.yml:2: `store` takes `${ROOT}`, which is set, and empty")
    (mistake,) = mistakes(tmp_path, {"pipeline.yml": "name: shop\nstore: ' '\n"})
    assert "`store` is empty" in mistake


def test_an_empty_secret_is_none_of_our_business(tmp_path: Path) -> None:
    sql = (
        "CREATE SOURCE TABLE s (n INT) WITH (connector = 'postgres-cdc', host = 'h',"
        " password = '${SECRET}');"
    )
    (source,) = load(tmp_path, {"a.sql": sql}, {"SECRET": ""}).sources
    assert source.options["password"] == ""
