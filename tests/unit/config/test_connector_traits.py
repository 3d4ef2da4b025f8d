"""What a connector adds to a source: columns, and the delay of its watermark."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from laminar_dagster.config.connectors import Connectors
from laminar_dagster.config.model import Column, PipelineModel, SourceTable, WatermarkSpec
from laminar_dagster.config.statements import run_statement
from laminar_dagster.sources.connectors import MYSQL_CDC
from laminar_dagster.sources.kafka.options import KafkaOptions
from laminar_dagster.sources.kafka.traits import METADATA, kafka_traits
from laminar_dagster.sources.postgres.traits import postgres_cdc_traits
from laminar_dagster.spark import columns
from tests.unit.config.folders import CONFIG, load, mistakes

CONNECTORS = Connectors(
    sources={"kafka": ("*",), "file": ("*",)},
    sinks={"delta": ("*",)},
    traits={"kafka": kafka_traits},
)
DELAY = "'watermark.max.out.of.orderness.ms' = '{}'"


def sql(watermark: str = "", connector: str = "kafka", *options: str) -> str:
    columns = f"id INT, ts TIMESTAMP{', ' if watermark else ''}{watermark}"
    given = ", ".join([f"connector = '{connector}'", *options])
    return f"CREATE SOURCE TABLE s ({columns}) WITH ({given});\n"


def load_sql(folder: Path, *texts: str) -> PipelineModel:
    return load(folder, {"a.sql": "".join(texts)}, connectors=CONNECTORS)


def wrong(folder: Path, *texts: str) -> list[str]:
    return mistakes(folder, {"a.sql": "".join(texts)}, connectors=CONNECTORS)


def source(folder: Path, *texts: str) -> SourceTable:
    (found,) = load_sql(folder, *texts).sources
    return found


def test_the_default_delay_is_that_of_the_options() -> None:
    options = KafkaOptions(bootstrap_servers="b", group_id="g", topics=("t",))
    delay = kafka_traits({}).delay_micros
    assert timedelta(microseconds=delay) == options.max_out_of_orderness


def test_metadata_columns_stand_behind_the_declared_ones(tmp_path: Path) -> None:
    found = source(tmp_path, sql("", "kafka", "'include.metadata' = 'true'"))
    assert found.columns == (Column("id", "int"), Column("ts", "timestamp"), *METADATA)
    assert found.declared == found.columns[:2]
    assert found.added == tuple(each.name for each in METADATA)


def test_a_connector_without_traits_adds_nothing(tmp_path: Path) -> None:
    found = source(tmp_path, sql("WATERMARK FOR ts", "file", "'include.metadata' = 'true'"))
    assert (len(found.columns), found.added) == (2, ())
    assert found.watermark == WatermarkSpec("ts", 0)


def test_what_is_added_is_described_and_fingerprinted(tmp_path: Path) -> None:
    with_it = load_sql(tmp_path, sql("", "kafka", "'include.metadata' = 'true'"))
    without = load_sql(tmp_path, sql("", "kafka"))
    assert with_it.fingerprint != without.fingerprint
    answer = run_statement("DESCRIBE SOURCE s", with_it)
    assert ("_timestamp", "TIMESTAMP", "YES", "") in answer.rows


@pytest.mark.parametrize(
    ("watermark", "options", "expected"),
    [
        ("WATERMARK FOR ts", (), 5_000_000),
        ("WATERMARK FOR ts", (DELAY.format(250),), 250_000),
        ("WATERMARK FOR ts AS ts", (), 0),
        ("WATERMARK FOR ts AS ts - INTERVAL '2' SECOND", (), 2_000_000),
        ("WATERMARK FOR ts AS ts - INTERVAL '2' SECOND", (DELAY.format(2000),), 2_000_000),
        ("WATERMARK FOR ts", (DELAY.format("soon"),), 5_000_000),
    ],
)
def test_the_delay_is_the_statements_or_the_connectors(
    tmp_path: Path, watermark: str, options: tuple[str, ...], expected: int
) -> None:
    found = source(tmp_path, sql(watermark, "kafka", *options))
    assert found.watermark == WatermarkSpec("ts", expected)


def test_event_time_may_be_a_column_that_the_connector_adds(tmp_path: Path) -> None:
    text = sql("WATERMARK FOR _timestamp", "kafka", "'include.metadata' = 'true'")
    view = "CREATE VIEW v AS SELECT window_end, _topic, count(*) AS n FROM s "
    view += "GROUP BY TUMBLE(_timestamp, INTERVAL '1' MINUTE), _topic;"
    model = load_sql(tmp_path, text, view)
    assert model.sources[0].watermark == WatermarkSpec("_timestamp", 5_000_000)
    assert model.views[0].columns == ("window_end", "_topic", "n")
    (problem,) = wrong(tmp_path, sql("WATERMARK FOR _timestamp"))
    assert "the watermark of `s` is for `_timestamp`, no column of it" in problem


def test_two_delays_are_an_error_that_names_both(tmp_path: Path) -> None:
    text = sql("WATERMARK FOR ts AS ts - INTERVAL '2' SECOND", "kafka", DELAY.format(5000))
    (problem,) = wrong(tmp_path, text)
    assert problem == (
        "a.sql:1:119: the watermark of `s` lags by INTERVAL '2' SECOND, and "
        "`watermark.max.out.of.orderness.ms` says INTERVAL '5' SECOND (leave one of the two out)"
    )


def test_a_delay_without_a_watermark_is_an_error(tmp_path: Path) -> None:
    (problem,) = wrong(tmp_path, sql("", "kafka", DELAY.format(5000)))
    assert problem.endswith(
        "`watermark.max.out.of.orderness.ms` is given, and `s` has no watermark "
        "(add WATERMARK FOR and the column of event time)"
    )


AHEAD = "'watermark.max.ahead' = '{}'"
DAY = 86_400_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, DAY),
        ("1d", DAY),
        ("30m", 1_800_000_000),
        ("0s", 0),
        ("unbounded", None),
        ("999999999d", 2**63 - 1),
    ],
)
def test_how_far_event_time_may_be_ahead(
    tmp_path: Path, text: str | None, expected: int | None
) -> None:
    options = (AHEAD.format(text),) if text else ()
    found = source(tmp_path, sql("WATERMARK FOR ts", "file", *options))
    assert found.watermark and found.watermark.max_ahead_micros == expected


@pytest.mark.parametrize("text", ["soon", "-1d", "1 day", "none", ""])
def test_a_bound_that_is_none_is_an_error(tmp_path: Path, text: str) -> None:
    (problem,) = wrong(tmp_path, sql("WATERMARK FOR ts", "file", AHEAD.format(text)))
    assert problem == (
        f"a.sql:1:90: `watermark.max.ahead` must be a duration such as 1d or 30m, or unbounded, "
        f"not {text!r}"
    )


def test_a_bound_without_a_watermark_is_an_error(tmp_path: Path) -> None:
    (problem,) = wrong(tmp_path, sql("", "kafka", AHEAD.format("1d")))
    assert problem.endswith(
        "`watermark.max.ahead` is given, and `s` has no watermark "
        "(add WATERMARK FOR and the column of event time)"
    )


def test_the_bound_is_no_part_of_the_fingerprint(tmp_path: Path) -> None:
    """Each plan pins it, so whoever changes it goes on, and old epochs stay what they were."""
    found = {
        load_sql(tmp_path, sql("WATERMARK FOR ts", "file", *given)).fingerprint
        for given in ((), (AHEAD.format("1h"),), (AHEAD.format("unbounded"),))
    }
    assert len(found) == 1


def test_a_bound_stands_among_the_options_in_yaml_too(tmp_path: Path) -> None:
    text = f"{CONFIG}sources:\n  - name: s\n    connector: file\n    columns: {{ts: TIMESTAMP}}\n"
    text += "    watermark: {column: ts}\n    options: {watermark.max.ahead: 2h}\n"
    (found,) = load(tmp_path, {"pipeline.yml": text}, connectors=CONNECTORS).sources
    assert found.watermark and found.watermark.max_ahead_micros == DAY // 12


@pytest.mark.parametrize(
    ("connector", "watermark", "expected"),
    [
        ("kafka", "{column: ts}", 5_000_000),
        ("kafka", "{column: ts, delay: 0s}", 0),
        ("kafka", "{column: TS, delay: 1m}", 60_000_000),
        ("file", "{column: ts}", 0),
    ],
)
def test_yaml_leaves_the_delay_to_the_connector_too(
    tmp_path: Path, connector: str, watermark: str, expected: int
) -> None:
    text = f"{CONFIG}sources:\n  - name: s\n    connector: {connector}\n"
    text += f"    columns: {{ts: TIMESTAMP}}\n    watermark: {watermark}\n"
    (found,) = load(tmp_path, {"pipeline.yml": text}, connectors=CONNECTORS).sources
    assert found.watermark == WatermarkSpec("ts", expected)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("{at: TIMESTAMP}", "pipeline.yml:7: the watermark of `s` is for `ts`, no column of it"),
        ("{ts: STRING}", "pipeline.yml:7: event time `ts` of `s` is of type string"),
        ("{ts: STRIN}", "pipeline.yml:6: "),
    ],
)
def test_a_wrong_watermark_in_yaml_is_told_once(
    tmp_path: Path, columns: str, expected: str
) -> None:
    text = f"{CONFIG}sources:\n  - name: s\n    connector: file\n"
    text += f"    columns: {columns}\n    watermark: {{column: ts}}\n"
    (problem,) = mistakes(tmp_path, {"pipeline.yml": text})
    assert problem.startswith(expected)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, _offset FROM s",
        "SELECT id, _OFFSET FROM s",
        "SELECT s.id, s._offset AS _offset FROM s",
        "SELECT id, _offset FROM (SELECT * FROM s)",
    ],
)
def test_a_view_may_hand_an_added_column_on(tmp_path: Path, query: str) -> None:
    text = sql("", "kafka", "'include.metadata' = 'true'")
    model = load_sql(tmp_path, text, f"CREATE VIEW v AS {query};")
    assert model.views[0].columns == ("id", "_offset")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id AS _offset FROM s",
        "SELECT _offset AS _part FROM s",
        "SELECT _offset + 1 AS _x FROM s",
    ],
)
def test_a_view_makes_no_column_with_an_underscore(tmp_path: Path, query: str) -> None:
    text = sql("", "kafka", "'include.metadata' = 'true'")
    (problem,) = wrong(tmp_path, text, f"CREATE VIEW v AS {query};")
    assert "is reserved (begin it with a letter)" in problem


def test_an_author_declares_no_column_with_an_underscore(tmp_path: Path) -> None:
    text = "CREATE SOURCE TABLE s (_weight INT) WITH (connector = 'kafka')"
    (problem,) = wrong(tmp_path, text)
    assert "the column `_weight` of `s` has a reserved name" in problem


CHANGES = {
    "postgres-cdc": "tables = 'orders', slot = 'a', before = 'required'",
    "mysql-cdc": "tables = 'orders'",
    "kafka": "format = 'debezium-json', 'debezium.before' = 'required'",
}


@pytest.mark.parametrize("connector", CHANGES)
def test_one_view_runs_on_every_source_of_changes(tmp_path: Path, connector: str) -> None:
    """Unchanged, with ``_op`` in it; ``*`` stands for the row and its weight."""
    connectors = Connectors(
        sources=dict.fromkeys(CHANGES, ("*",)),
        sinks={},
        traits={
            "kafka": kafka_traits,
            "mysql-cdc": MYSQL_CDC.traits,
            "postgres-cdc": postgres_cdc_traits,
        },
    )
    text = (
        "CREATE SOURCE TABLE orders (id BIGINT, price BIGINT)"
        f" WITH (connector = '{connector}', {CHANGES[connector]});\n"
        "CREATE MATERIALIZED VIEW since AS SELECT id, _op AS op, _weight FROM orders"
        " WHERE _op <> 'r';\n"
        "CREATE MATERIALIZED VIEW whole AS SELECT * FROM orders;\n"
    )
    model = load(tmp_path, {"a.sql": text}, connectors=connectors)
    assert model.sources[0].added == ("_op", "_weight")
    columns = {str(view.name): view.columns for view in model.views}
    assert columns == {"since": ("id", "op", "_weight"), "whole": ("id", "price", "_weight")}


def test_no_added_column_has_a_name_of_the_engines_own() -> None:
    own = {value for name, value in vars(columns).items() if name.isupper()}
    added = kafka_traits({"include.metadata": "TRUE", "format": "debezium-json"}).columns
    assert len(added) == len(METADATA) + 2
    assert not own & {each.name for each in added}
    # Keys, aggregates and expressions of a window are numbered.
    assert not [each.name for each in added if re.fullmatch(r"_[a-z]\d+", each.name)]
