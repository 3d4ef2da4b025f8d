"""``CREATE SINK … WITH (…)``: known options only, and every mistake at once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from laminar_dagster.config.model import Place, SinkTable
from laminar_dagster.core.errors import InvalidConfig, InvalidName, LaminarError, WriteFailed
from laminar_dagster.core.ids import EpochNumber, OperatorId, PipelineName, SinkId
from laminar_dagster.sinks.delta.sink import DeltaSink
from laminar_dagster.sinks.sqlite.sink import SqliteSink
from tests.unit.sinks.staging import staged

PIPELINE = PipelineName("clicks")


def sink_table(connector: str, **options: str) -> SinkTable:
    named = {name.replace("__", "."): value for name, value in options.items()}
    place = Place("sinks.sql", 7)
    return SinkTable(SinkId("table"), OperatorId("view"), connector, named, place)


def test_a_sqlite_sink_from_its_options(tmp_path: Path) -> None:
    table = sink_table("sqlite", path="out/a b.db", mode="UPSERT", key="k, v", busy_timeout="5s")
    sink = SqliteSink.from_table(table, tmp_path, PIPELINE)
    sink.commit(EpochNumber(1), staged(pa.table({"k": [1], "v": [2], "w": [3]})))
    assert (tmp_path / "out" / "a b.db").is_file()
    again = SqliteSink(SinkId("table"), PIPELINE, tmp_path / "out" / "a b.db", "table")
    assert again.ledger() == sink.ledger() == 1


def test_a_delta_sink_from_its_options(tmp_path: Path) -> None:
    table = sink_table("delta", path="out/a b#?c,é", mode="upsert", key="k")
    sink = DeltaSink.from_table(table, tmp_path, PIPELINE)
    sink.commit(EpochNumber(1), staged(pa.table({"k": [1]})))
    assert (tmp_path / "out" / "a b#?c,é" / "_delta_log").is_dir()
    assert sink.ledger() == 1


@pytest.mark.parametrize(
    ("text", "is_taken"), [("0", False), ("1", True), ("17", True), ("any", True), ("none", False)]
)
def test_changes_by_others_that_are_meant(tmp_path: Path, text: str, is_taken: bool) -> None:
    table = sink_table("delta", path="out", accept_changes_until=text)
    sink = DeltaSink.from_table(table, tmp_path, PIPELINE)
    sink.commit(EpochNumber(1), staged(pa.table({"k": [1]})))
    DeltaTable(str(tmp_path / "out")).delete()
    if is_taken:
        sink.commit(EpochNumber(2), staged(pa.table({"k": [2]})))
        return
    with pytest.raises(WriteFailed, match="accept_changes_until = '1'"):
        sink.commit(EpochNumber(2), staged(pa.table({"k": [2]})))


@pytest.mark.parametrize("text", ["-1", "1.5", "all", "²", " 1"])
def test_what_is_no_version_is_told(tmp_path: Path, text: str) -> None:
    table = sink_table("delta", path="out", accept_changes_until=text)
    with pytest.raises(InvalidConfig, match="is no version"):
        DeltaSink.from_table(table, tmp_path, PIPELINE)


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        ({}, ["`path` is missing"]),
        ({"path": ""}, ["`path` is empty"]),
        ({"path": "a", "mod": "append"}, ["unknown option `mod`"]),
        ({"path": "a", "mode": "upsrt"}, ["`mode` must be one of: append, upsert"]),
        ({"path": "a", "mode": "upsert"}, ["needs a key"]),
        ({"path": "a", "key": "k"}, ["takes no key"]),
        ({"path": "a", "mode": "upsert", "key": "k,,v"}, ["none between two commas"]),
        ({"path": "a", "mode": "upsert", "key": "k,K"}, ["twice"]),
        ({"path": "a", "create": "yes"}, ["`create` must be one of: true, false"]),
        ({"pat": "a", "create": "1", "x": ""}, ["`path` is missing", "`create`", "`pat`", "`x`"]),
    ],
)
@pytest.mark.parametrize("kind", [SqliteSink, DeltaSink])
def test_every_mistake_is_told(
    tmp_path: Path,
    kind: type[SqliteSink] | type[DeltaSink],
    options: dict[str, str],
    problems: list[str],
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        kind.from_table(sink_table("any", **options), tmp_path, PIPELINE)
    assert caught.value.where == "sinks.sql:7"
    for problem in problems:
        assert problem in caught.value.problem


def test_the_nearest_spelling_is_suggested(tmp_path: Path) -> None:
    for options, hint in (
        ({"path": "a", "mod": "append"}, "`mode`"),
        ({"path": "a", "mode": "upsrt"}, "`upsert`"),
    ):
        with pytest.raises(InvalidConfig) as caught:
            SqliteSink.from_table(sink_table("sqlite", **options), tmp_path, PIPELINE)
        assert hint in caught.value.suggestion


@pytest.mark.parametrize(
    "options",
    [
        {"path": ":memory:"},
        {"path": "file:a.db?mode=memory"},
        {"path": "sqlite:///a.db"},
        {"path": "a.db", "busy_timeout": "soon"},
        {"path": "a.db", "table": "_laminar_ledger"},
        {"path": "a.db", "table": "SQLite_master"},
        {"path": "a.db", "table": "nul\0"},
        {"path": "a.db", "storage__key": "v"},
    ],
)
def test_what_sqlite_cannot_take_is_refused(tmp_path: Path, options: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig) as caught:
        SqliteSink.from_table(sink_table("sqlite", **options), tmp_path, PIPELINE)
    assert caught.value.where == "sinks.sql:7"
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("table", ["", "a\0b", "\ud800"])
def test_a_name_that_is_no_identifier_is_refused(tmp_path: Path, table: str) -> None:
    with pytest.raises(InvalidName):
        SqliteSink(SinkId("table"), PIPELINE, tmp_path / "a.db", table)


@pytest.mark.parametrize(
    "options",
    [
        {"path": "local", "storage__aws_region": "eu"},
        {"path": "file:///a"},
        {"path": "a%20b"},
        {"path": "s3://user:hunter2@bucket/a"},
        {"path": "s3://bucket/a?secret=hunter2"},
        {"path": "s3://bucket/a", "storage__AWS_S3_ALLOW_UNSAFE_RENAME": "true"},
    ],
)
def test_what_delta_cannot_take_is_refused(tmp_path: Path, options: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig) as caught:
        DeltaSink.from_table(sink_table("delta", **options), tmp_path, PIPELINE)
    assert "hunter2" not in str(caught.value) + caught.value.advice()


def test_an_unsafe_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "1")
    with pytest.raises(InvalidConfig, match="overwrite"):
        DeltaSink(SinkId("table"), PIPELINE, "s3://bucket/a")


def test_storage_options_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody listens on port 1: the client's error is a real one.
    options = {
        "aws_access_key_id": "AKIAHUNTER2",
        "aws_secret_access_key": "hunter2hunter2",
        "aws_endpoint_url": "http://127.0.0.1:1/hunter2path",
        "aws_region": "us-east-1",
        "allow_http": "true",
        "max_retries": "0",
        "retry_timeout": "1s",
    }
    sink = DeltaSink(SinkId("table"), PIPELINE, "s3://bucket/a", storage_options=options)
    assert "hunter2" not in repr(sink).lower()
    for call in (
        sink.ledger,
        lambda: sink.commit(EpochNumber(1), staged(pa.table({"k": [1]}))),
    ):
        with pytest.raises(LaminarError) as caught:
            call()
        assert caught.value.kind == "sink_unavailable"
        assert "hunter2" not in str(caught.value).lower()
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
