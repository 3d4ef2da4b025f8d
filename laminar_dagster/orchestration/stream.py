"""A pipeline as Dagster's definitions hold it: opened only when a step or sensor needs it.

Definitions are loaded by every process of Dagster, so loading them reads the pipeline's files and
touches no service.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import dagster as dg

from laminar_dagster.config.lineage import Lineage, column_lineage
from laminar_dagster.config.model import (
    PipelineModel,
    ReferenceTable,
    SinkTable,
    SourceTable,
    View,
)
from laminar_dagster.config.pipeline import config_file
from laminar_dagster.config.variables import shown
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.core.ids import GENESIS, EpochNumber, SinkId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.orchestration.epoch_partitions import EpochPartitions
from laminar_dagster.orchestration.names import Names
from laminar_dagster.orchestration.translator import AssetKind, LaminarTranslator, StreamAsset
from laminar_dagster.runtime.assembly import Adapters, build_adapters, existing_checkpoints
from laminar_dagster.runtime.backlog import Backlog, measure
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.clock import SystemClock
from laminar_dagster.runtime.epoch import EpochReport
from laminar_dagster.runtime.pipeline import Pipeline
from laminar_dagster.runtime.survey import survey

if TYPE_CHECKING:
    from laminar_dagster.spark.session import SessionFactory


class Watcher(Protocol):
    """Follows the steps of a run in the same process, and decides about retries."""

    def step(self, epoch: EpochNumber, name: str) -> None:
        """Note that a step of the protocol begins."""

    def done(self, report: EpochReport) -> None:
        """Note that one half of an epoch, computing or committing, is finished."""

    def failed(self, error: Exception) -> None:
        """Note that a step ends with an error. Retrying is up to the watcher."""


@dataclass(eq=False)
class Stream:
    """One pipeline of a project.

    Attributes:
        watcher: Set in a resident loop, which only finishes epochs: a committed one is not run
            again.
        translator: Names and describes its assets.
        published: The assets of the project's sinks, by the address that they write to.
    """

    model: PipelineModel
    project: Path
    watcher: Watcher | None = None
    translator: LaminarTranslator = field(default_factory=LaminarTranslator)
    published: Mapping[str, dg.AssetKey] = field(default_factory=dict)

    @cached_property
    def names(self) -> Names:
        """The names of its parts in Dagster."""
        return Names(self.model.config.name)

    @cached_property
    def partitions(self) -> EpochPartitions:
        """The partitions definition of its epochs."""
        return EpochPartitions(self.names.partitions, self.newest_possible_epoch)

    @cached_property
    def adapters(self) -> Adapters:
        """Its sources and sinks; none is opened yet.

        Raises:
            InvalidPipeline: Lists every option that is wrong.
        """
        return build_adapters(self.model, self.project)

    @cached_property
    def lineage(self) -> Lineage:
        """For every column of every view, the columns that it is computed from."""
        return column_lineage(self.model)

    @cached_property
    def revision(self) -> str:
        """A hash that changes with everything an author may change to fix an epoch that fails.

        It covers more than ``model.fingerprint``: also contracts, options, and the handling of bad
        records and gaps. Short enough for a tag.
        """
        config = self.model.config
        model = self.model
        tables: list[SourceTable | ReferenceTable | SinkTable]
        tables = [*model.sources, *model.references, *model.sinks]
        options = [
            (name, shown(name, text))
            for table in tables
            for name, text in sorted(table.written.items())
        ]
        contracts = [(each.view, each.yaml) for each in self.model.contracts]
        parts = (self.model.fingerprint, contracts, options, config.on_bad_record, config.on_gap)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]

    def checkpoints(self) -> CheckpointStore | None:
        """Its checkpoints; None when it has no store yet."""
        return existing_checkpoints(self.model.config, self.project)

    def next_epoch(self) -> EpochNumber:
        """The oldest epoch that is not finished, or else a new one."""
        checkpoints = self.checkpoints()
        if checkpoints is None:
            return GENESIS.next()
        standing = survey(checkpoints)
        return min(standing.unfinished, default=standing.newest_epoch.next())

    def newest_possible_epoch(self) -> EpochNumber:
        """The newest epoch that a run may be for; it commits one before it that is prepared."""
        epoch = self.next_epoch()
        checkpoints = self.checkpoints()
        while checkpoints and checkpoints.prepared(epoch):
            epoch = epoch.next()
        return epoch

    def open(self, session: SessionFactory | None) -> Pipeline:
        """The pipeline, ready to run.

        Args:
            session: Gives the Spark session; without it, nothing can be computed.
        """
        from laminar_dagster.runtime.assembly import assemble

        return assemble(self.model, self.project, session)

    def asset(self, kind: AssetKind, name: str) -> StreamAsset:
        """A part of the pipeline, for the translator."""
        return StreamAsset(
            self.model.config, kind, name, self._addresses.get((kind, name), ""), self.project
        )

    @cached_property
    def _addresses(self) -> Mapping[tuple[str, str], str]:
        adapters = self.adapters
        return {
            **{("source", str(each.source_id)): each.address for each in adapters.sources},
            **{("reference", str(each.reference_id)): each.address for each in adapters.references},
            **{("sink", str(each.sink_id)): each.address for each in adapters.sinks},
        }

    def source_key(self, table: SourceTable) -> dg.AssetKey:
        """The asset that a source reads."""
        return self._read_key(self.asset("source", table.source_id))

    def reference_key(self, table: ReferenceTable) -> dg.AssetKey:
        """The asset of a reference table."""
        return self._read_key(self.asset("reference", table.reference_id))

    def _read_key(self, asset: StreamAsset) -> dg.AssetKey:
        # What one pipeline writes and another reads is one asset, unless its author names another.
        if asset.settings.asset_key is None and asset.address in self.published:
            return self.published[asset.address]
        return self.translator.get_asset_key(asset)

    def read_keys(self) -> tuple[dg.AssetKey, ...]:
        """The assets of everything that is read from outside, each once."""
        sources = (self.source_key(table) for table in self.model.sources)
        tables = (self.reference_key(table) for table in self.model.references)
        return tuple(dict.fromkeys((*sources, *tables)))

    def view_key(self, name: str) -> dg.AssetKey:
        """The asset of a view's rows, staged and not yet published."""
        return self.translator.get_asset_key(self.asset("view", name))

    def sink_key(self, table: SinkTable) -> dg.AssetKey:
        """The asset that a sink writes."""
        return self.translator.get_asset_key(self.asset("sink", table.sink_id))

    def table_key(self, name: str) -> dg.AssetKey:
        """The asset of what a view reads: a source, a reference table, or another view."""
        for table in self.model.sources:
            if table.source_id == name:
                return self.source_key(table)
        for reference in self.model.references:
            if reference.reference_id == name:
                return self.reference_key(reference)
        return self.view_key(name)

    def view(self, name: str) -> View:
        """A view by its name."""
        return next(view for view in self.model.views if view.name == name)

    def sinks_of(self, view: View) -> tuple[SinkId, ...]:
        """The sinks that publish the rows of a view."""
        return tuple(each.sink_id for each in self.model.sinks if each.view == view.name)

    def backlog_after(self, manifest: CheckpointManifest | None, plan: EpochPlan | None) -> Backlog:
        """The backlog beyond a checkpoint; for a source that cannot answer, its error."""
        return measure(
            self.adapters.sources,
            manifest,
            plan,
            SystemClock().now(),
            self.model.config.epoch.admission,
        )


def require_own_assets(streams: tuple[Stream, ...]) -> None:
    """Refuse pipelines or sinks that would share a name or an asset key in Dagster.

    Raises:
        InvalidConfig: Names both of them.
    """
    pipelines: dict[str, Stream] = {}
    for stream in streams:
        own, group = stream.names.pipeline, stream.names.group
        other = pipelines.setdefault(group, stream)
        if other is not stream:
            theirs = other.names.pipeline
            problem = f"pipelines `{own}` and `{theirs}` are both `{group}` to Dagster"
            hint = "it knows letters, digits and '_' only: rename one of them"
            raise InvalidConfig(str(config_file(stream.project, own)), problem, hint)
    seen: dict[dg.AssetKey, str] = {}
    for stream in streams:
        for key, what, place in _written_assets(stream):
            first = seen.setdefault(key, f"{what} at {place}")
            if first != f"{what} at {place}":
                problem = f"{what} is the asset {key.to_user_string()}, and so is {first}"
                raise InvalidConfig(place, problem, "give it an `asset_key` in pipeline.yml")


def _written_assets(stream: Stream) -> Iterator[tuple[dg.AssetKey, str, str]]:
    """Every asset that runs of a pipeline materialise: its key, what it is, where it is defined."""
    name = stream.names.pipeline
    for part in ("epoch_plan", "state_snapshot", "checkpoint_manifest"):
        key, place = stream.names.asset(part), str(config_file(stream.project, name))
        yield key, f"`{part}` of `{name}`", place
    for view in stream.model.views:
        yield stream.view_key(view.name), f"view `{view.name}`", str(view.place)
    for table in stream.model.sinks:
        yield stream.sink_key(table), f"sink `{table.sink_id}`", str(table.place)
