"""Loads a pipeline's folder into the engine's model, or reports every mistake in it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from laminar_dagster.config import yaml_tables
from laminar_dagster.config.connectors import Connectors, SourceTraits, check_options
from laminar_dagster.config.contracts import read_contract
from laminar_dagster.config.determinism import DeterminismWarning
from laminar_dagster.config.emission import check_columns, check_sinks
from laminar_dagster.config.files import PipelineFiles, find_files, leads_outside, read_text
from laminar_dagster.config.fingerprint import fingerprint
from laminar_dagster.config.mistakes import Report, listed, nearest
from laminar_dagster.config.model import (
    Contract,
    PipelineModel,
    Place,
    ReferenceTable,
    SinkTable,
    SourceTable,
    View,
)
from laminar_dagster.config.pipeline import PipelineConfig, find_pipelines
from laminar_dagster.config.python_views import ParsedModel
from laminar_dagster.config.references import (
    check_column_names,
    columns_with_key,
    read_key,
    reference_output,
)
from laminar_dagster.config.row_key_reader import RowReader
from laminar_dagster.config.sql.changelog import WEIGHT
from laminar_dagster.config.sql.column_types import declared_types
from laminar_dagster.config.sql.functions import WINDOW_COLUMNS
from laminar_dagster.config.sql.reader import Reader
from laminar_dagster.config.sql.scope import BROKEN, EventTime, Output
from laminar_dagster.config.sql.syntax import (
    CreateReference,
    CreateSink,
    CreateSource,
    CreateView,
    Definition,
    Name,
)
from laminar_dagster.config.sql.text import SqlText
from laminar_dagster.config.variables import empty_variables, secret_java_option
from laminar_dagster.config.views import ParsedView, parse_view, read_views
from laminar_dagster.config.watermarks import read_watermark
from laminar_dagster.core.errors import InvalidConfig, InvalidName
from laminar_dagster.core.ids import OperatorId, ReferenceId, SinkId, SourceId

IdT = TypeVar("IdT", SourceId, ReferenceId, OperatorId, SinkId)


def load_project(
    project: Path,
    environment: Mapping[str, str] = os.environ,
    connectors: Connectors | None = None,
    *,
    builds_contracts: bool = True,
) -> tuple[PipelineModel, ...]:
    """Load every pipeline of a project, by name. The arguments are those of ``load_pipeline``.

    Raises:
        InvalidPipeline: Lists every mistake of every pipeline.
    """
    report = Report()
    models: list[PipelineModel] = []
    for folder in find_pipelines(project):
        try:
            model = load_pipeline(
                folder, environment, connectors, builds_contracts=builds_contracts
            )
            models.append(model)
        except InvalidConfig as error:
            report.add_error(error)
    report.raise_if_any()
    return tuple(models)


def load_pipeline(
    folder: Path,
    environment: Mapping[str, str] = os.environ,
    connectors: Connectors | None = None,
    *,
    builds_contracts: bool = True,
) -> PipelineModel:
    """Load the pipeline that a folder describes.

    Args:
        folder: Holds ``pipeline.yml``, files of SQL, ``models/`` and ``contracts/``.
        environment: The variables that ``${NAME}`` stands for.
        connectors: The known connectors and their options; None to leave them unchecked.
        builds_contracts: Whether pandera reads the contracts, too; commands that only show a
            pipeline leave this out, which saves seconds.

    Raises:
        InvalidPipeline: Lists every mistake.
    """
    return _Loader(folder, environment, connectors, builds_contracts).load()


def read_sinks(folder: Path, environment: Mapping[str, str] = os.environ) -> tuple[SinkTable, ...]:
    """The sinks that a folder describes, as far as they can be read; mistakes are ignored.

    For finding out what other pipelines write to. Their views are not read.
    """
    return _Loader(folder, environment, None, builds_contracts=False).sinks()


class _Loader:
    """Reads one folder, and collects mistakes."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        connectors: Connectors | None,
        builds_contracts: bool,
    ) -> None:
        self._folder = folder
        self._builds_contracts = builds_contracts
        self._environment = environment
        self._connectors = connectors
        self._report = Report()
        self._names: dict[tuple[str, str], Name] = {}

    def load(self) -> PipelineModel:
        report = self._report
        files = find_files(self._folder, report)
        config, spark = self._config(files)
        definitions = [*self._definitions(files, config)]
        defined = [self._source(each) for each in definitions if isinstance(each, CreateSource)]
        sources = [each for each in defined if each is not None]
        tables = {str(each.source_id).lower(): self._table(each) for each in sources}
        declared = [
            self._reference(each) for each in definitions if isinstance(each, CreateReference)
        ]
        references = [each for each in declared if each is not None]
        tables |= {str(each.reference_id).lower(): reference_output(each) for each in references}
        parsed: list[ParsedView | ParsedModel] = [*self._views(definitions, tables)]
        parsed += self._python(files, config, tables)
        views, findings = read_views(parsed, tables, report)
        self._determinism(findings, config)
        names = [*(str(each.name) for each in parsed)]
        wanted = [each for each in definitions if isinstance(each, CreateSink)]
        found = [self._sink(each, names, tables) for each in wanted]
        sinks = [each for each in found if each is not None]
        check_columns(sinks, views, report)
        complete = len(views) == len(names)
        if not report.mistakes:
            # Keys of rows can be derived only from tables and queries without mistakes.
            traits = {
                each.source_id: self._traits(each.connector, each.options) for each in sources
            }
            rows = RowReader(sources, views, references, traits)
            sinks = [*check_sinks(sinks, views, rows, report)]
        contracts = self._contracts(files, views, complete=complete)
        if config is not None:
            self._assets(
                config,
                {
                    "sources": [
                        each.name.text for each in definitions if isinstance(each, CreateSource)
                    ],
                    "references": [
                        each.name.text for each in definitions if isinstance(each, CreateReference)
                    ],
                    "views": names,
                    "sinks": [each.name.text for each in wanted],
                },
            )
        report.raise_if_any()
        # Without a mistake there is a configuration.
        assert config is not None
        if not views:
            report.warn(str(files.folder), "the pipeline has no view", "so it computes nothing")
        mark = fingerprint(sources, views, config.buckets, spark, references)
        return PipelineModel(
            config,
            tuple(sorted(sources, key=lambda each: each.source_id)),
            tuple(views),
            tuple(sorted(sinks, key=lambda each: each.sink_id)),
            tuple(contracts),
            mark,
            tuple(report.warnings),
            spark,
            tuple(sorted(references, key=lambda each: each.reference_id)),
        )

    def sinks(self) -> tuple[SinkTable, ...]:
        """The sinks alone."""
        try:
            files = replace(find_files(self._folder, self._report), models=())
            config, _ = self._config(files)
            wanted = [
                each for each in self._definitions(files, config) if isinstance(each, CreateSink)
            ]
        except InvalidConfig:
            return ()
        found = [self._sink(each, [each.view.text], {}) for each in wanted]
        return tuple(each for each in found if each is not None)

    def _config(self, files: PipelineFiles) -> tuple[PipelineConfig | None, Mapping[str, str]]:
        path = files.config
        if leads_outside(self._folder, path):
            self._report.add(str(path), "it leads out of the pipeline's folder")
            return None, {}
        try:
            config, self._written = yaml_tables.read_config(path, self._environment)
        except InvalidConfig as error:
            self._report.add_error(error)
            return None, {}
        expected = self._folder.resolve().name
        if config.name != expected:
            where = f"{path}:{self._written[('name',)].line}"
            problem = f"`name` is {config.name!r}, and its folder is {expected!r}"
            self._report.add(where, problem, "give both the same name")
        store = self._written[("store",)]
        empty = empty_variables(store.text, self._environment)
        if empty:
            problem = f"`store` takes `${{{empty[0]}}}`, which is set, and empty"
            self._report.add(f"{path}:{store.line}", problem, "set it to something, or unset it")
        spark = {key: self._written["spark", key].text for key in config.spark}
        for key, text in spark.items():
            if key.endswith("JavaOptions") and (secret := secret_java_option(text)):
                problem = f"`{secret}` in `{key}` would be on a command line, for everybody to read"
                hint = "put Java's options into a file of mode 0600, and write `@/path/of/the/file`"
                self._report.add(f"{path}:{self._written['spark', key].line}", problem, hint)
        return config, spark

    def _assets(self, config: PipelineConfig, known: Mapping[str, list[str]]) -> None:
        """Refuse settings of assets that the pipeline does not have, and two of one asset."""
        path = self._folder / "pipeline.yml"
        for section, names in known.items():
            seen: set[str] = set()
            for place, asset in enumerate(getattr(config.assets, section)):
                line = self._written["assets", section, place, "name"].line
                where, what = f"{path}:{line}", f"`{asset.name}` under `assets.{section}`"
                if asset.name not in names:
                    hint = nearest(asset.name, names, listed(names, "there is"))
                    self._report.add(where, f"{what} is not in the pipeline", hint)
                elif asset.name in seen:
                    self._report.add(where, f"{what} stands here twice")
                seen.add(asset.name)

    def _definitions(
        self, files: PipelineFiles, config: PipelineConfig | None
    ) -> Iterator[Definition]:
        reader = Reader(self._environment, self._report)
        if config is not None:
            yield from yaml_tables.definitions(files.config, config, self._written, self._report)
        for path in files.statements:
            sql = self._sql(path)
            if sql is not None:
                yield from reader.definitions(sql)
        for path in files.models:
            sql = self._sql(path)
            if sql is None:
                continue
            before = len(self._report.mistakes)
            found = [*reader.definitions(sql, Name(path.stem, str(path), 1))]
            if not found and len(self._report.mistakes) == before:
                self._report.add(str(path), "the model is empty", "write a SELECT")
            yield from found

    def _sql(self, path: Path) -> SqlText | None:
        try:
            return SqlText(str(path), read_text(path))
        except InvalidConfig as error:
            self._report.add_error(error)
            return None

    def _identifier(self, kind: type[IdT], name: Name, space: str) -> IdT | None:
        """A valid name that no other object of its kind has; None, and a mistake, otherwise."""
        try:
            identifier = kind(name.text)
        except InvalidName as error:
            self._report.add(name.where, str(error), error.advice())
            return None
        reserved = name.text.startswith("_") or name.text.lower() in WINDOW_COLUMNS
        if reserved:
            hint = "choose one that begins with a letter"
            self._report.add(name.where, f"the name `{name.text}` is reserved", hint)
            return None
        first = self._names.setdefault((space, name.text.lower()), name)
        # By identity: two equal names on one line are still two.
        if first is not name:
            what = "source, reference table or view" if space == "table" else space
            problem = f"there is already a {what} `{name.text}`"
            self._report.add(name.exactly, problem, f"the other is at {first.exactly}")
            return None
        return identifier

    def _source(self, found: CreateSource) -> SourceTable | None:
        name = found.name
        identifier = self._identifier(SourceId, name, "table")
        connector = check_options(
            found.options, "source", name.text, self._connectors, self._environment, self._report
        )
        check_column_names(name, found.columns, self._report)
        options = _without_connector(found.options.values)
        traits = self._traits(connector, options)
        columns = (*found.columns, *traits.columns)
        watermark = read_watermark(found, columns, traits, self._report)
        key = read_key(found, self._report)
        if found.key and self._connectors and WEIGHT not in [each.name for each in traits.columns]:
            problem = f"source `{name.text}` only grows, so a PRIMARY KEY says nothing of its rows"
            hint = "leave it out; ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) = 1 chooses one row"
            self._report.add(found.key[0].where, problem, hint)
        if identifier is None:
            return None
        return SourceTable(
            identifier,
            columns,
            watermark,
            connector,
            options,
            _place(name),
            _without_connector(found.options.written),
            tuple(each.name for each in traits.columns),
            key,
        )

    def _reference(self, found: CreateReference) -> ReferenceTable | None:
        name = found.name
        identifier = self._identifier(ReferenceId, name, "table")
        connector = check_options(
            found.options,
            "reference table",
            name.text,
            self._connectors,
            self._environment,
            self._report,
        )
        check_column_names(name, found.columns, self._report)
        key = read_key(found, self._report)
        if identifier is None:
            return None
        return ReferenceTable(
            identifier,
            columns_with_key(found.columns, key),
            key,
            connector,
            _without_connector(found.options.values),
            _place(name),
            _without_connector(found.options.written),
        )

    def _traits(self, connector: str, options: Mapping[str, str]) -> SourceTraits:
        if self._connectors is None:
            return SourceTraits()
        return self._connectors.traits_of(connector, options)

    def _table(self, source: SourceTable) -> tuple[str, Output]:
        """A source as the queries see it."""
        names = tuple(each.name for each in source.columns)
        times: dict[str, EventTime] = {}
        if source.watermark is not None:
            times[source.watermark.column.lower()] = EventTime((str(source.source_id),))
        traits = self._traits(source.connector, source.options)
        lacks, hidden = traits.lacks_retractions, traits.hidden
        output = Output(
            names,
            times,
            lacks_retractions=lacks,
            hidden=hidden,
            required=frozenset(
                each.name
                for each in source.columns
                if not each.nullable or each.name.lower() in times
            ),
            types=declared_types(source.columns),
        )
        return str(source.source_id), output

    def _views(
        self, definitions: list[Definition], tables: dict[str, tuple[str, Output]]
    ) -> Iterator[ParsedView]:
        for found in definitions:
            if not isinstance(found, CreateView):
                continue
            identifier = self._identifier(OperatorId, found.name, "table")
            if identifier is None:
                continue
            parsed = parse_view(identifier, found, self._report)
            if parsed is not None:
                yield parsed
            else:
                tables[identifier.lower()] = (str(identifier), BROKEN)

    def _python(
        self,
        files: PipelineFiles,
        config: PipelineConfig | None,
        tables: dict[str, tuple[str, Output]],
    ) -> Iterator[ParsedModel]:
        for path in files.python:
            # Imported only if there are Python models: this loads Arrow, which is slow.
            from laminar_dagster.config.python_files import findings_in, parse_model
            from laminar_dagster.models.code import ModelCode

            name = self._identifier(OperatorId, Name(path.stem, str(path), 1), "table")
            try:
                code = ModelCode(str(path), read_text(path))
            except InvalidConfig as error:
                self._report.add_error(error)
                continue
            if name is None:
                continue
            before = len(self._report.mistakes)
            self._determinism(findings_in(name, code, self._report), config)
            # Do not run code that was refused.
            is_refused = len(self._report.mistakes) > before
            parsed = None if is_refused else parse_model(name, code, self._report)
            if parsed is not None:
                yield parsed
            else:
                tables[name.lower()] = (str(name), BROKEN)

    def _sink(
        self, found: CreateSink, views: list[str], tables: Mapping[str, tuple[str, Output]]
    ) -> SinkTable | None:
        identifier = self._identifier(SinkId, found.name, "sink")
        connector = check_options(
            found.options,
            "sink",
            found.name.text,
            self._connectors,
            self._environment,
            self._report,
        )
        wanted = found.view.text
        view = next((each for each in views if each.lower() == wanted.lower()), None)
        if view is None:
            broken = tables.get(wanted.lower())
            if broken is not None and broken[1].unknown:
                return None
            hint = nearest(wanted, views, listed(views, "views"))
            if broken is not None:
                hint = f"it is a source; make a view of it: SELECT * FROM {wanted}"
            problem = f"sink `{found.name.text}` reads from `{wanted[:80]}`, which is no view"
            self._report.add(found.view.where, problem, hint)
        if identifier is None or view is None:
            return None
        return SinkTable(
            identifier,
            OperatorId(view),
            connector,
            _without_connector(found.options.values),
            _place(found.name),
            _without_connector(found.options.written),
        )

    def _contracts(
        self, files: PipelineFiles, views: list[View], *, complete: bool
    ) -> list[Contract]:
        if not complete:
            # A contract of a view with mistakes would report false ones of its own.
            return []
        found = [
            read_contract(path, views, self._report, builds=self._builds_contracts)
            for path in files.contracts
        ]
        contracts = [each for each in found if each is not None]
        seen: dict[str, Contract] = {}
        for each in contracts:
            other = seen.setdefault(each.view, each)
            if other is not each:
                problem = f"view `{each.view}` has two contracts"
                self._report.add(each.place.file, problem, f"the other is {other.place.file}")
        return contracts

    def _determinism(
        self, findings: list[DeterminismWarning], config: PipelineConfig | None
    ) -> None:
        allowed = config is not None and config.determinism == "warn"
        note = self._report.warn if allowed else self._report.add
        for each in findings:
            note(each.where, each.problem, each.suggestion)


def _without_connector(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if name != "connector"}


def _place(name: Name) -> Place:
    file = name.where
    for _ in range(2):
        head, _, tail = file.rpartition(":")
        if head and tail.isdigit():
            file = head
    return Place(file, name.line)
