"""Connectors are found by the metadata of installed distributions, and loaded by name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from laminar_dagster.config.model import SinkTable
from laminar_dagster.config.project import load_pipeline
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.core.ids import PipelineName
from laminar_dagster.plugins import (
    INTERFACE,
    Extra,
    SinkConnector,
    SourceConnector,
    StoreConnector,
)
from laminar_dagster.plugins.declarations import Connector, ReferenceConnector
from laminar_dagster.plugins.registry import find, find_usable, known_names, use
from laminar_dagster.runtime.assembly import build_sink, check_models, known_connectors
from laminar_dagster.sinks.sqlite.sink import SqliteSink
from laminar_dagster.stores.local import LocalStore
from laminar_dagster.stores.url import open_store
from tests.unit.config.folders import load, mistakes
from tests.unit.plugins.distributions import install

# A sink of somebody else's, which writes as ours does.
SINK = """
from laminar_dagster.plugins import Extra, SinkConnector

def build(table, context):
    from laminar_dagster.sinks.sqlite.sink import SqliteSink
    return SqliteSink.from_table(table, context.project, context.pipeline)

CONNECTOR = SinkConnector(interface={interface}, build=build{more})
"""
PIPELINE = """CREATE SOURCE TABLE s (n INT)
WITH (connector = 'file', path = 'in', format = 'ndjson');
CREATE VIEW v AS SELECT n FROM s;
CREATE SINK kept FROM v WITH (
    {lines}connector = '{connector}',
    path = 'out.db'
);
"""
Install = Callable[..., None]


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs distributions into a folder of the search path, and forgets their modules."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    loaded = set(sys.modules)

    def installed(name: str, module: str, text: str, connector: str = "nest") -> None:
        groups = {"laminar.sinks": {connector: f"{module}:CONNECTOR"}}
        install(folder, name, groups, {module: text})

    yield installed
    for name in set(sys.modules) - loaded:
        if (spec := sys.modules[name].__spec__) and str(folder) in str(spec.origin):
            del sys.modules[name]


def sql(connector: str = "nest", lines: str = "") -> dict[str, str]:
    return {"a.sql": PIPELINE.format(connector=connector, lines=lines)}


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (SourceConnector, ("file", "kafka", "mysql-cdc", "postgres-cdc")),
        (SinkConnector, ("delta", "kafka", "mysql", "postgres", "sqlite")),
        (ReferenceConnector, ("delta", "file", "postgres")),
        (StoreConnector, ("file", "s3")),
    ],
)
def test_ours_are_registered_like_anybodys(kind: type[Connector], names: tuple[str, ...]) -> None:
    assert known_names(kind) == names
    for name in names:
        assert find_usable(kind, name, {}, "here").interface == INTERFACE


def test_one_that_is_installed_is_named_and_builds(put: Install, tmp_path: Path) -> None:
    put("laminar-nest", "nest_sinks", SINK.format(interface=1, more=""))
    assert "nest" in known_names(SinkConnector)
    assert "nest_sinks" not in sys.modules
    model = load(tmp_path, sql(), connectors=known_connectors())
    sink = build_sink(model.sinks[0], tmp_path, PipelineName("p"))
    assert isinstance(sink, SqliteSink)


@pytest.mark.parametrize(("more", "is_shared"), [("", False), (", system='sqlite'", True)])
def test_plug_ins_of_one_system_may_share_no_target(
    put: Install, tmp_path: Path, more: str, is_shared: bool
) -> None:
    """Sinks of other pipelines are compared by their targets, if they write to the same system."""
    put("laminar-nest", "nest_sinks", SINK.format(interface=1, more=more))
    (tmp_path / "in").mkdir()
    for name, connector in (("one", "sqlite"), ("two", "nest")):
        folder = tmp_path / "dbt_like_configs" / name
        folder.mkdir(parents=True)
        (folder / "pipeline.yml").write_text(f"name: {name}\nstore: {name}\n")
        (folder / "a.sql").write_text(PIPELINE.format(connector=connector, lines=""))
    model = load_pipeline(tmp_path / "dbt_like_configs" / "two", {}, known_connectors())
    if is_shared:
        with pytest.raises(InvalidConfig, match="writes where `kept` does"):
            check_models([model], tmp_path)
    else:
        assert check_models([model], tmp_path)


def test_an_unknown_one_is_told_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig) as caught:
        find(SinkConnector, "sqlit", "sinks.sql:3")
    assert "did you mean `sqlite`?" in caught.value.advice()
    told = mistakes(tmp_path, sql("postgre"), connectors=known_connectors())
    assert len(told) == 1 and "did you mean `postgres`?" in told[0]


def test_two_of_one_name_are_refused_where_they_are_named(put: Install, tmp_path: Path) -> None:
    put("laminar-nest", "nest_sinks", SINK.format(interface=1, more=""))
    put("nest-egg", "egg_sinks", SINK.format(interface=1, more=""))
    (told,) = mistakes(tmp_path, sql(lines="\n    "), connectors=known_connectors())
    assert "a.sql:6" in told
    assert "two plug-ins offer the connector `nest`: laminar-nest 0.1 and nest-egg 0.1" in told
    assert load(tmp_path / "other", sql("sqlite"), connectors=known_connectors()).sinks


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import no_such_client", "ModuleNotFoundError: No module named 'no_such_client'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("CONNECTOR = 7", "is declared by nest_sinks:CONNECTOR, which is no SinkConnector"),
        ("", "AttributeError: module 'nest_sinks' has no attribute 'CONNECTOR'"),
        (SINK.format(interface=INTERFACE + 1, more=""), f"interface {INTERFACE + 1} of"),
        (
            "from laminar_dagster.plugins import SinkConnector\n"
            "CONNECTOR = SinkConnector(interface=1, build=print, of_tomorrow=True)",
            "TypeError",
        ),
    ],
)
def test_a_broken_one_breaks_who_names_it_alone(
    put: Install, tmp_path: Path, text: str, problem: str
) -> None:
    put("laminar-nest", "nest_sinks", text)
    (told,) = mistakes(tmp_path, sql(), connectors=known_connectors())
    assert problem in told
    assert "connector `nest` of laminar-nest 0.1" in told
    assert "a.sql:5" in told
    assert load(tmp_path / "other", sql("sqlite"), connectors=known_connectors()).sinks


def test_a_client_that_is_missing_only_when_it_is_built(put: Install, tmp_path: Path) -> None:
    build = "    from laminar_dagster.sinks.sqlite.sink import SqliteSink"
    text = SINK.format(interface=1, more="").replace(build, "    import no_such_client")
    put("laminar-nest", "nest_sinks", text)
    table: SinkTable = load(tmp_path, sql(), connectors=known_connectors()).sinks[0]
    with pytest.raises(InvalidConfig) as caught:
        build_sink(table, tmp_path, PipelineName("p"))
    assert caught.value.where == str(table.place)
    assert "laminar-nest 0.1 cannot be loaded" in caught.value.problem


def test_an_extra_of_a_plug_in_is_one_of_its_distribution(put: Install, tmp_path: Path) -> None:
    more = ', extras=(Extra("twigs", ("no_such_client",)),)'
    put("laminar-nest", "nest_sinks", SINK.format(interface=1, more=more))
    (told,) = mistakes(tmp_path, sql(), connectors=known_connectors())
    assert 'pip install "laminar-nest[twigs]"' in told


@pytest.mark.parametrize(
    ("module", "extra", "options", "place"),
    [
        ("confluent_kafka", "kafka", "connector = 'kafka', topic = 't'", 2),
        ("psycopg", "postgres", "connector = 'postgres', host = 'h'", 2),
        ("pymysql", "mysql", "connector = 'mysql', host = 'h'", 2),
        ("deltalake", "delta", "connector = 'delta', path = 'p'", 2),
        ("fastavro", "avro", "connector = 'kafka', topic = 't',\nformat = 'avro'", 3),
        ("fastavro", "avro", "connector = 'kafka', topic = 't',\n'key.format' = 'avro'", 3),
        ("grpc_tools", "protobuf", "connector = 'kafka', topic = 't',\nformat = 'protobuf'", 3),
    ],
)
def test_what_is_not_installed_is_told_with_the_command(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    extra: str,
    options: str,
    place: int,
) -> None:
    # As if it were not there: an import of it fails.
    monkeypatch.setitem(sys.modules, module, None)
    files = sql("sqlite") | {"b.sql": f"CREATE SINK more FROM v WITH (\n{options});\n"}
    (told,) = mistakes(tmp_path, files, connectors=known_connectors())
    assert f'pip install "laminar-dagster[{extra}]"' in told
    assert f"b.sql:{place}" in told
    assert "needs packages that are not installed" in told


def test_a_source_without_its_client_is_told_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns that it adds are known all the same, so the queries are not wrong."""
    monkeypatch.setitem(sys.modules, "pymysql", None)
    files = {
        "a.sql": "CREATE SOURCE TABLE s (n INT) WITH (connector = 'mysql-cdc', tables = 't');\n"
        "CREATE VIEW v AS SELECT n, _weight FROM s;"
    }
    (told,) = mistakes(tmp_path, files, connectors=known_connectors())
    assert 'pip install "laminar-dagster[mysql]"' in told


def test_a_store_without_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(InvalidConfig) as caught:
        open_store("s3://bucket/prefix")
    assert caught.value.advice() == 'pip install "laminar-dagster[s3]"'


def test_a_store_of_somebody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
from laminar_dagster.plugins import StoreConnector
from laminar_dagster.stores.local import LocalStore

CONNECTOR = StoreConnector(interface=1, open=lambda url, base: LocalStore(base / url[7:]))
"""
    groups = {"laminar.stores": {"nest": "nest_stores:CONNECTOR"}}
    install(tmp_path / "site", "laminar-nest", groups, {"nest_stores": text})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    store = open_store("nest://twigs", tmp_path)
    monkeypatch.delitem(sys.modules, "nest_stores")
    assert isinstance(store, LocalStore)
    assert store.url == f"file://{tmp_path}/twigs"
    with pytest.raises(InvalidConfig, match="holds credentials"):
        open_store("nest://me@twigs", tmp_path)


def test_without_metadata_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/nowhere"])
    with pytest.raises(InvalidConfig) as caught:
        find(SinkConnector, "sqlite", "sinks.sql:3")
    assert "install laminar-dagster again" in caught.value.advice()


def test_an_extra_is_wanted_by_the_value_of_an_option() -> None:
    avro = Extra("avro", ("fastavro",), "format", frozenset({"avro"}))
    assert avro.is_wanted({"format": "avro"})
    assert not avro.is_wanted({"format": "json"})
    assert not avro.is_wanted({})
    assert Extra("kafka", ("confluent_kafka",)).is_wanted({})
    assert not Extra("none", ("no_such_client.inside",)).is_installed()


def test_a_foreign_error_is_not_taken_for_a_missing_module() -> None:
    def fail(_: SinkConnector) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use(SinkConnector, "sqlite", {}, "here", fail)
