"""A pipeline's ``pipeline.yml``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from laminar_dagster.config.assets import AssetsConfig, check_owners
from laminar_dagster.config.cron import check_cron
from laminar_dagster.config.metrics import MetricsConfig
from laminar_dagster.config.mistakes import listed, nearest
from laminar_dagster.config.strict_yaml import read_model
from laminar_dagster.config.units import parse_duration, parse_size
from laminar_dagster.core.errors import (
    InvalidConfig,
    NoPipelines,
    SeveralPipelines,
    UnknownPipeline,
)
from laminar_dagster.core.ids import OperatorId, PipelineName, ReferenceId, SinkId, SourceId
from laminar_dagster.core.ports import Admission

FOLDER: Final = "dbt_like_configs"
MAX_BUCKETS: Final = 65_536

Text = Annotated[str, Meta(min_length=1)]


class RetentionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How much history to keep.

    Attributes:
        checkpoints: How many of the newest checkpoints to keep.
        grace: How long to keep files of an attempt that lost.
        dead_letters: How long to keep dead letters, whether or not their checkpoint is kept.
        history: For how many epochs Dagster keeps partitions, runs and their events.
    """

    checkpoints: Annotated[int, Meta(ge=1)] = 10
    grace: str = "1h"
    dead_letters: str = "7d"
    history: Annotated[int, Meta(ge=1)] = 10_000

    def __post_init__(self) -> None:
        """Refuse a duration that cannot be read."""
        parse_duration(self.grace)
        parse_duration(self.dead_letters)

    @property
    def letters_period(self) -> timedelta:
        """``dead_letters`` as a duration."""
        return parse_duration(self.dead_letters)

    @property
    def grace_period(self) -> timedelta:
        """``grace`` as a duration."""
        return parse_duration(self.grace)


class EpochConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How much an epoch takes at most.

    Attributes:
        max_records: The limit of each source.
        max_bytes: A number, or a text such as ``256MiB``.
        max_delay: How long records may wait until an epoch starts that is not full.
        max_drift: How far a partition may run ahead of the slowest one in event time, such as
            ``5m``; records further ahead are read later. None is no limit.
        sensor: Whether Dagster's sensor for epochs is on in an instance that was never told:
            ``running`` or ``stopped``.
    """

    max_records: Annotated[int, Meta(ge=1, le=2**53)] = 1_000_000
    max_bytes: int | str = "1GiB"
    max_delay: str = "10s"
    max_drift: str | None = None
    sensor: Literal["running", "stopped"] = "stopped"

    def __post_init__(self) -> None:
        """Refuse a size or a duration that cannot be read."""
        parse_size(self.max_bytes)
        parse_duration(self.max_delay)
        if self.max_drift is not None:
            parse_duration(self.max_drift)

    @property
    def byte_limit(self) -> int:
        """``max_bytes`` as a number."""
        return parse_size(self.max_bytes)

    @property
    def admission(self) -> Admission:
        """The limits as a source takes them."""
        return Admission(self.max_records, self.byte_limit)

    @property
    def drift_micros(self) -> int | None:
        """``max_drift`` in microseconds."""
        if self.max_drift is None:
            return None
        return parse_duration(self.max_drift) // timedelta(microseconds=1)

    @property
    def longest_wait(self) -> timedelta:
        """``max_delay`` as a duration."""
        return parse_duration(self.max_delay)


class WatermarkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Event time of a source, and how far behind the newest event it may lag.

    Attributes:
        column: The column of event time.
        delay: None for the connector's default, which is zero for most.
    """

    column: Text
    delay: str | None = None

    def __post_init__(self) -> None:
        """Refuse a duration that cannot be read."""
        if self.delay is not None:
            parse_duration(self.delay)


class ChecksConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Thresholds at which Dagster warns, without stopping anything.

    Attributes:
        max_epochs_behind: Warn when the backlog is larger than so many epochs.
        max_state_growth: Warn when the state has grown by this factor within ten epochs.
        freshness: Warn when the newest checkpoint is older; None for no such warning.
        min_retention_headroom: Warn when a source may soon delete unread records: when less than
            this share of what it holds has been read.
    """

    max_epochs_behind: Annotated[int, Meta(ge=1)] = 10
    max_state_growth: Annotated[float, Meta(gt=1)] = 2.0
    freshness: str | None = None
    min_retention_headroom: Annotated[float, Meta(ge=0, le=1)] = 0.1

    def __post_init__(self) -> None:
        """Refuse a duration that cannot be read, or is shorter than Dagster can watch."""
        if self.freshness is not None and parse_duration(self.freshness) < timedelta(minutes=1):
            raise ValueError("`freshness` is a minute at least")

    @property
    def freshness_window(self) -> timedelta | None:
        """``freshness`` as a duration."""
        return parse_duration(self.freshness) if self.freshness else None


class SourceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A source in YAML: the same as a ``CREATE SOURCE TABLE``.

    Attributes:
        name: What queries call it.
        connector: The kind of system: ``kafka``, ``file``, ….
        columns: Types by name, as SQL spells them, for example ``TIMESTAMP NOT NULL``.
        watermark: Its event time; without it, it has none.
        key: The columns of its primary key.
        options: The options of the connector.
    """

    name: SourceId
    connector: Text
    columns: dict[str, str]
    watermark: WatermarkConfig | None = None
    key: list[str] = []
    options: dict[str, str] = {}


class ReferenceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A reference table in YAML: the same as a ``CREATE REFERENCE TABLE``.

    Attributes:
        name: What queries call it.
        connector: The kind of system: ``file``, ``delta``, ….
        columns: Types by name, as SQL spells them.
        key: The columns of its primary key.
        options: The options of the connector.
    """

    name: ReferenceId
    connector: Text
    columns: dict[str, str]
    key: list[str] = []
    options: dict[str, str] = {}


class SinkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A sink in YAML: the same as a ``CREATE SINK``.

    Attributes:
        name: What the sink is called.
        view: The view whose rows it writes.
        connector: The kind of system: ``postgres``, ``delta``, ….
        options: The options of the connector.
    """

    name: SinkId
    view: OperatorId
    connector: Text
    options: dict[str, str] = {}


class PipelineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``pipeline.yml``.

    Attributes:
        name: What the pipeline is called.
        store: Where checkpoints live: a path (from the project's folder), ``file://`` or ``s3://``.
        description: What it is for, in a sentence that Dagster shows.
        retention: How much history to keep.
        epoch: How much an epoch takes at most.
        buckets: Hash buckets of each operator's state; ``laminar rescale`` follows a change.
        determinism: Whether to refuse views that are not deterministic, or only warn of them.
        idle_timeout: After how long without records a partition no longer holds the watermark.
        on_bad_record: Make a dead letter of a record that cannot be decoded, or is too far ahead of
            the clock; or stop.
        on_gap: Stop when a source lost records, or go on from the earliest it has.
        schedule: A cron expression for epochs; without it, they run whenever there is data.
        owners: The owners in Dagster: mail addresses, or ``team:name``.
        assets: How Dagster names and shows its assets.
        checks: When Dagster warns.
        metrics: Where measurements go.
        sources: Sources, as ``CREATE SOURCE TABLE`` in SQL.
        references: Reference tables, as ``CREATE REFERENCE TABLE`` in SQL.
        sinks: Sinks, as ``CREATE SINK`` in SQL.
        spark: Settings of Spark, for example ``spark.sql.shuffle.partitions``.
    """

    name: PipelineName
    store: Text
    description: str = ""
    retention: RetentionConfig = RetentionConfig()
    epoch: EpochConfig = EpochConfig()
    buckets: Annotated[int, Meta(ge=1, le=MAX_BUCKETS)] = 8
    determinism: Literal["block", "warn"] = "block"
    idle_timeout: str = "30s"
    on_bad_record: Literal["dead_letter", "fail"] = "dead_letter"
    on_gap: Literal["fail", "earliest"] = "fail"
    schedule: str | None = None
    owners: tuple[str, ...] = ()
    assets: AssetsConfig = AssetsConfig()
    checks: ChecksConfig = ChecksConfig()
    metrics: MetricsConfig = MetricsConfig()
    sources: tuple[SourceConfig, ...] = ()
    references: tuple[ReferenceConfig, ...] = ()
    sinks: tuple[SinkConfig, ...] = ()
    spark: dict[str, str] = {}

    def __post_init__(self) -> None:
        """Refuse an empty store, and a duration or a schedule that cannot be read."""
        if not self.store.strip():
            raise ValueError("`store` is empty")
        parse_duration(self.idle_timeout)
        if self.schedule is not None:
            check_cron(self.schedule)
        check_owners(self.owners)
        for key in self.spark:
            if not key.startswith("spark."):
                raise ValueError(f"`{key[:80]}` under `spark` is no setting of Spark: spark.…")

    @property
    def idle_after(self) -> timedelta:
        """``idle_timeout`` as a duration."""
        return parse_duration(self.idle_timeout)


def read_pipeline(folder: Path, environment: Mapping[str, str] = os.environ) -> PipelineConfig:
    """Read the pipeline that a folder describes.

    Raises:
        InvalidConfig: Lists every mistake.
    """
    path = folder / "pipeline.yml"
    config = read_model(path, PipelineConfig, environment)
    if config.name != folder.name:
        problem = f"`name` is {config.name!r}, and its folder is {folder.name!r}"
        raise InvalidConfig(str(path), problem, "give both the same name")
    return config


def config_file(project: Path, name: PipelineName) -> Path:
    """The ``pipeline.yml`` of a pipeline of a project."""
    return project / FOLDER / name / "pipeline.yml"


def find_pipelines(project: Path) -> tuple[Path, ...]:
    """The folders of a project that describe a pipeline, by name."""
    return tuple(sorted(each.parent for each in (project / FOLDER).glob("*/pipeline.yml")))


def find_pipeline(project: Path, name: str | None = None) -> Path:
    """The folder of a pipeline.

    Args:
        project: The project's folder.
        name: The pipeline; the only one need not be named.

    Raises:
        UnknownPipeline, SeveralPipelines, NoPipelines: As their names say.
    """
    folders = {folder.name: folder for folder in find_pipelines(project)}
    if not folders:
        raise NoPipelines(str(project.absolute()))
    if name is None:
        if len(folders) > 1:
            raise SeveralPipelines(tuple(folders))
        return next(iter(folders.values()))
    if name not in folders:
        suggestion = nearest(name, folders, listed(folders, "there is"))
        raise UnknownPipeline(name[:80], suggestion)
    return folders[name]
