"""Tables and sinks in ``pipeline.yml``, read as the same statements as in SQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from laminar_dagster.config.mistakes import Report
from laminar_dagster.config.model import Column
from laminar_dagster.config.pipeline import (
    PipelineConfig,
    ReferenceConfig,
    SinkConfig,
    SourceConfig,
)
from laminar_dagster.config.sql.reader import read_column_type
from laminar_dagster.config.sql.syntax import (
    CreateReference,
    CreateSink,
    CreateSource,
    Name,
    Options,
    WatermarkFor,
)
from laminar_dagster.config.sql.text import SqlText
from laminar_dagster.config.strict_yaml import Written, compose, read_model, written
from laminar_dagster.config.units import parse_duration

Places = Mapping[tuple[str | int, ...], Written]


def read_config(path: Path, environment: Mapping[str, str]) -> tuple[PipelineConfig, Places]:
    """Read ``pipeline.yml``, and the place of each of its values.

    Raises:
        InvalidConfig: With every mistake.
    """
    config = read_model(path, PipelineConfig, environment)
    return config, written(compose(path))


def definitions(
    path: Path, config: PipelineConfig, places: Places, report: Report
) -> Iterator[CreateSource | CreateReference | CreateSink]:
    """The sources, reference tables and sinks of a ``pipeline.yml``."""
    for number, source in enumerate(config.sources):
        yield _Item(path, ("sources", number), places, report).source(source)
    for number, table in enumerate(config.references):
        yield _Item(path, ("references", number), places, report).reference(table)
    for number, sink in enumerate(config.sinks):
        yield _Item(path, ("sinks", number), places, report).sink(sink)


class _Item:
    """One item of ``sources``, ``references`` or ``sinks``."""

    def __init__(
        self, path: Path, key: tuple[str | int, ...], places: Places, report: Report
    ) -> None:
        self._path = path
        self._key = key
        self._places = places
        self._report = report

    def source(self, source: SourceConfig) -> CreateSource:
        columns = self._columns(source, "source")
        watermark = self._watermark(source)
        name = self._name("name", source.name)
        return CreateSource(name, columns, watermark, self._options(source), self._key_of(source))

    def reference(self, table: ReferenceConfig) -> CreateReference:
        columns = self._columns(table, "reference table")
        name = self._name("name", table.name)
        return CreateReference(name, columns, self._key_of(table), self._options(table))

    def _key_of(self, item: SourceConfig | ReferenceConfig) -> tuple[Name, ...]:
        line = self._written("key").line
        return tuple(Name(each, self._where("key"), line) for each in item.key)

    def _columns(self, item: SourceConfig | ReferenceConfig, noun: str) -> tuple[Column, ...]:
        columns: list[Column] = []
        for column, kind in item.columns.items():
            where = self._where("columns", column)
            found = read_column_type(SqlText(where, kind), self._report)
            # Keep a column with a wrong type, or every use of it would be a mistake, too.
            columns.append(Column(column, *(found or ("timestamp", True))))
        seen: set[str] = set()
        for each in columns:
            if each.name.lower() in seen:
                problem = f"two columns are called `{each.name}`"
                self._report.add(self._where("columns", each.name), problem)
            seen.add(each.name.lower())
        if not item.columns:
            self._report.add(self._where("columns"), f"{noun} `{item.name}` has no columns")
        return tuple(columns)

    def sink(self, sink: SinkConfig) -> CreateSink:
        return CreateSink(
            self._name("name", sink.name), self._name("view", sink.view), self._options(sink)
        )

    def _watermark(self, source: SourceConfig) -> WatermarkFor | None:
        config = source.watermark
        if config is None:
            return None
        delay = None
        if config.delay is not None:
            delay = parse_duration(config.delay) // timedelta(microseconds=1)
        line = self._written("watermark", "column").line
        return WatermarkFor(Name(config.column, self._where("watermark", "column"), line), delay)

    def _options(self, item: SourceConfig | ReferenceConfig | SinkConfig) -> Options:
        values = {"connector": item.connector, **item.options}
        texts = {name: self._written("options", name).text for name in item.options}
        places = {name: self._where("options", name) for name in item.options}
        return Options(
            values,
            {"connector": self._written("connector").text, **texts},
            {"connector": self._where("connector"), **places},
            self._where(),
        )

    def _name(self, key: str, text: str) -> Name:
        written = self._written(key)
        return Name(str(text), self._where(key), written.line, written.column)

    def _written(self, *key: str) -> Written:
        return self._places.get((*self._key, *key)) or self._places[self._key]

    def _where(self, *key: str) -> str:
        return f"{self._path}:{self._written(*key).line}"
