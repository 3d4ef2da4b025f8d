"""A pipeline of a project whose adapters are in memory, its definitions, an instance of Dagster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import dagster as dg

from laminar_dagster.config.project import load_pipeline
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.ports import Reference, Violation
from laminar_dagster.orchestration.names import epoch_of, partition_key
from laminar_dagster.orchestration.pipeline_defs import build_definitions
from laminar_dagster.orchestration.stream import Stream
from laminar_dagster.runtime.assembly import Adapters, known_connectors
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.survey import survey
from laminar_dagster.stores.local import LocalStore
from laminar_dagster.testing.memory_pipeline import MemoryEngine, MemorySink, MemorySource
from tests.unit.runtime.conditions import World

FILES: Mapping[str, str] = {
    "pipeline.yml": (
        "name: clicks\n"
        "store: state\n"
        "owners: [team:growth, ann@example.com]\n"
        "checks: {freshness: 15m}\n"
        "epoch: {max_records: 4, max_delay: 20s}\n"
        "retention: {checkpoints: 3, grace: 0s, history: 4}\n"
        "sinks:\n"
        "  - {name: table, view: totals, connector: sqlite, options: {path: out.db, table: t}}\n"
    ),
    "sources.sql": (
        "CREATE SOURCE TABLE numbers (value BIGINT NOT NULL, ts TIMESTAMP,\n"
        "  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)\n"
        "WITH (connector = 'file', path = 'input', pattern = '*.ndjson', format = 'ndjson');\n"
    ),
    "models/totals.sql": "SELECT value * 2 AS twice, ts FROM numbers WHERE value > 0\n",
    "contracts/totals.yml": "schema_type: dataframe\ncolumns:\n  twice: {dtype: int64}\n",
}


def write_pipeline(project: Path, name: str, files: Mapping[str, str]) -> Path:
    folder = project / "dbt_like_configs" / name
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


class MemoryStream(Stream):
    """The pipeline of the files, on adapters in memory and a store on disk."""

    world: World
    gate: Callable[[EpochPlan], tuple[Violation, ...]]
    tables: tuple[Reference, ...]

    @cached_property
    def adapters(self) -> Adapters:
        source, sink = MemorySource(self.world.log), MemorySink(self.world.table)
        source.address, sink.address = "file:///input", "sqlite:///out.db/t"
        return Adapters((source,), (sink,), self.tables)

    def open(self, session: object) -> Pipeline:
        store = LocalStore(self.project / "state")
        made = self.world.pipeline(store, fingerprint=self.model.fingerprint, retain=3)
        engine = cast(MemoryEngine, made.engine)
        engine.gate = self.gate
        return replace(made, references=self.tables)


@dataclass
class Stage:
    """Everything that a test of the orchestration plays with."""

    project: Path
    instance: dg.DagsterInstance
    world: World = field(default_factory=World)
    files: dict[str, str] = field(default_factory=lambda: dict(FILES))
    violations: tuple[Violation, ...] = ()
    tables: tuple[Reference, ...] = ()

    def arrive(self, *numbers: int) -> None:
        self.world.log.partitions[0].extend(numbers)

    @cached_property
    def stream(self) -> MemoryStream:
        folder = write_pipeline(self.project, "clicks", self.files)
        stream = MemoryStream(load_pipeline(folder, {}, known_connectors()), self.project)
        stream.world = self.world
        stream.gate = lambda _plan: self.violations
        stream.tables = self.tables
        return stream

    @cached_property
    def defs(self) -> dg.Definitions:
        return build_definitions(self.stream)

    def load_again(self) -> None:
        """Dagster loads the code anew, after a file was changed."""
        del self.stream, self.defs

    @property
    def checkpoints(self) -> CheckpointStore:
        return CheckpointStore(LocalStore(self.project / "state"))

    @property
    def newest(self) -> int:
        return int(survey(self.checkpoints).newest_epoch)

    def runner(self) -> EpochRunner:
        return EpochRunner(self.stream.open(None))

    def run(self, job: str, epochs: Iterable[int] = (), **config: Any) -> dg.ExecuteInProcessResult:
        """Run a job on epochs; a failure is in the result."""
        keys = [partition_key(EpochNumber(epoch)) for epoch in epochs]
        self.instance.add_dynamic_partitions("laminar_clicks_epochs", keys)
        tags = {}
        if len(keys) > 1:
            tags = {
                "dagster/asset_partition_range_start": keys[0],
                "dagster/asset_partition_range_end": keys[-1],
            }
        return self.defs.resolve_job_def(f"clicks_{job}").execute_in_process(
            instance=self.instance,
            partition_key=keys[0] if len(keys) == 1 else None,
            tags=tags,
            raise_on_error=False,
            run_config=config or None,
        )

    def tick(self, sensor: str, cursor: str | None = None) -> dg.SensorResult:
        """What a sensor says; partitions it asks for are added, as the daemon does."""
        definition = self.defs.resolve_sensor_def(f"clicks_{sensor}")
        context = dg.build_sensor_context(instance=self.instance, cursor=cursor)
        result = definition(context)
        assert isinstance(result, dg.SensorResult)
        for request in result.dynamic_partitions_requests or ():
            self.instance.add_dynamic_partitions(
                request.partitions_def_name, list(request.partition_keys)
            )
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        return result

    def follow(self, result: dg.SensorResult) -> dg.ExecuteInProcessResult:
        """Run what a sensor asked for."""
        (request,) = result.run_requests or ()
        assert request.job_name and request.partition_key
        return self.defs.resolve_job_def(request.job_name).execute_in_process(
            instance=self.instance,
            partition_key=request.partition_key,
            tags=dict(request.tags),
            raise_on_error=False,
        )

    def metadata(
        self, result: dg.ExecuteInProcessResult, asset: str, epoch: int | None = None
    ) -> dict[str, Any]:
        """The metadata of an asset's materialisation in a run."""
        events = [
            event
            for event in result.get_asset_materialization_events()
            if event.asset_key and event.asset_key.path[-1] == asset
            if epoch is None or event.partition == partition_key(EpochNumber(epoch))
        ]
        found = events[-1].materialization.metadata
        return {
            name: value if isinstance(value, dg.TableMetadataValue) else value.value
            for name, value in found.items()
        }

    def error_kind(self, result: dg.ExecuteInProcessResult) -> str | None:
        run = self.instance.get_run_by_id(result.run_id)
        assert run
        return run.tags.get("laminar/error_kind")

    def materialized(self, asset: str) -> list[int]:
        keys = self.instance.get_materialized_partitions(dg.AssetKey(["clicks", asset]))
        return sorted(int(epoch_of(key)) for key in keys)


def failure_text(result: dg.ExecuteInProcessResult) -> str:
    """The description of the failure that a run ended with."""
    for event in result.all_events:
        if event.is_step_failure and event.step_failure_data.user_failure_data:
            return event.step_failure_data.user_failure_data.description or ""
    raise AssertionError("no step failed by name")
