"""Pipelines from Python: what the commands do, as methods that return Arrow tables and records.

::

    import laminar_dagster as laminar

    pipeline = laminar.open("shop").pipeline("clickstream")
    pipeline.run(epochs=1)
    pipeline.read("clicks_per_minute").to_pandas()

Errors are those of the command line, with the same ``kind``. Epochs run without Dagster here; in a
Dagster project the assets run them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa

from laminar_dagster.config.mistakes import listed, nearest
from laminar_dagster.config.pipeline import (
    PipelineConfig,
    find_pipeline,
    find_pipelines,
    read_pipeline,
)
from laminar_dagster.core import layout
from laminar_dagster.core.errors import (
    IntegrityError,
    NoEpochs,
    UnknownEpoch,
    UnknownView,
    UnlikeColumns,
)
from laminar_dagster.core.ids import GENESIS, CheckpointId, EpochNumber, SourceId
from laminar_dagster.core.manifest import CheckpointManifest, FileEntry, RecordCounts, SinkEntry
from laminar_dagster.core.protocol import Step
from laminar_dagster.core.recovery import Standing
from laminar_dagster.runtime.assembly import Adapters, assemble, existing_checkpoints
from laminar_dagster.runtime.backlog import Backlog, measure
from laminar_dagster.runtime.checked_files import read_verified
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.clock import SystemClock
from laminar_dagster.runtime.dead_letters import (
    LetterKind,
    all_letters,
    letters_of_epoch,
    read_letters,
)
from laminar_dagster.runtime.epoch import EpochRunner
from laminar_dagster.runtime.history import (
    EpochState,
    PastEpoch,
    confirmed_epoch,
    epoch_manifest,
    epoch_numbers,
    read_epoch,
)
from laminar_dagster.runtime.ledgers import Ledgers
from laminar_dagster.runtime.loading import load_pipelines
from laminar_dagster.runtime.loop import EpochDone, EpochLoop, Event
from laminar_dagster.runtime.rerun import Rerun, rerun
from laminar_dagster.runtime.spark_start import start_spark
from laminar_dagster.runtime.standing import Look, SinkStanding
from laminar_dagster.runtime.state_reader import read_state
from laminar_dagster.runtime.survey import newest_manifest, survey

if TYPE_CHECKING:
    import pandas as pd

    from laminar_dagster.config.model import PipelineModel
    from laminar_dagster.runtime.pipeline import Pipeline

_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def open_project(path: str | Path = ".") -> Project:
    """Open the project in a folder. Nothing is read yet, and no service is contacted."""
    return Project(Path(path))


@dataclass(frozen=True)
class Project:
    """A folder with pipelines.

    Attributes:
        root: The folder, from which the pipelines' relative paths are taken.
    """

    root: Path

    @property
    def pipelines(self) -> tuple[str, ...]:
        """The names of the pipelines."""
        return tuple(folder.name for folder in find_pipelines(self.root))

    def pipeline(self, name: str | None = None) -> ProjectPipeline:
        """A pipeline of the project.

        Args:
            name: Its name; the only one need not be named.

        Raises:
            UnknownPipeline, SeveralPipelines, NoPipelines: As their names say.
        """
        return ProjectPipeline(self, find_pipeline(self.root, name))


@dataclass(frozen=True)
class ProjectPipeline:
    """A pipeline: run it, see how far it is, read what it put out and what it keeps.

    Its files are read when they are first needed, and once: open the project anew after a change.
    Looking at epochs, state and dead letters starts no Spark; ``run`` and ``verify`` do.

    Attributes:
        project: The project it belongs to.
        folder: Where its ``pipeline.yml`` is.
    """

    project: Project
    folder: Path

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.config.name)

    @cached_property
    def config(self) -> PipelineConfig:
        """What ``pipeline.yml`` says.

        Raises:
            InvalidConfig: Lists every mistake of the file.
        """
        return read_pipeline(self.folder)

    @cached_property
    def model(self) -> PipelineModel:
        """All that its files say: sources, views, sinks.

        Raises:
            InvalidPipeline: Lists every mistake.
        """
        return self._loaded[0]

    def run(
        self, epochs: int | None = None, *, on_event: Callable[[Event], None] | None = None
    ) -> tuple[Epoch, ...]:
        """Run epochs: by default until nothing is left to read.

        What an earlier run left unfinished is finished first, and counts. The first call starts
        Spark, which takes seconds.

        Args:
            epochs: How many to run, with data or without.
            on_event: Called with each finished epoch (``EpochDone``).

        Returns:
            The epochs that were run, oldest first.

        Raises:
            GateFailed: A contract does not hold; nothing is published.
            RefusedError, IntegrityError: Going on would be wrong.
            FencedError: Another process runs the pipeline.
            RetryError, UnknownOutcome: A service is unavailable; run again later.
        """
        opened = self._opened
        done: list[EpochDone] = []

        def heard(event: Event) -> None:
            if isinstance(event, EpochDone):
                done.append(event)
            if on_event:
                on_event(event)

        loop = EpochLoop(opened, EpochRunner(opened), heard)
        if epochs is None:
            loop.run_until_caught_up()
        else:
            loop.run_epochs(epochs)
        return tuple(_epoch_of(each.manifest, "done") for each in done)

    def status(self) -> PipelineStatus:
        """How far it is: the last epoch, what waits, the sinks' ledgers, what comes next.

        Raises:
            LaminarError: The store is unavailable, or too damaged to tell.
        """
        sources, sinks = self._adapters.sources, self._adapters.sinks
        checkpoints = existing_checkpoints(self.config, self.project.root)
        now = SystemClock().now()
        if checkpoints is None:
            look = Look(Standing(GENESIS, ()), None, Ledgers.read(sinks))
            waiting = measure(sources, None, None, now)
            return PipelineStatus(None, (), waiting, tuple(look.sinks()))
        look = Look.take(checkpoints, sinks)
        manifest = look.manifest
        previous = checkpoints.plan(manifest.epoch) if manifest else None
        return PipelineStatus(
            None if manifest is None else _epoch_of(manifest, _state(look, manifest)),
            tuple((epoch, look.next_step(epoch)) for epoch in look.standing.unfinished),
            measure(sources, manifest, previous, now),
            tuple(look.sinks()),
        )

    def epochs(self, limit: int | None = None) -> tuple[Epoch, ...]:
        """The epochs that have begun, newest first; also those whose checkpoint is collected.

        Args:
            limit: At most so many.

        Raises:
            IntegrityError: A document of one of them is damaged.
        """
        checkpoints = existing_checkpoints(self.config, self.project.root)
        if checkpoints is None:
            return ()
        latest = confirmed_epoch(checkpoints)
        past = (
            read_epoch(checkpoints, each, latest) for each in epoch_numbers(checkpoints)[:limit]
        )
        return tuple(_past_epoch(each) for each in past if each)

    def read(self, view: str, epoch: int | None = None) -> ArrowRows:
        """The rows that a view put out in an epoch, as they were handed to its sinks.

        A view whose rows change puts out differences: ``_weight`` is 1 for a row that is added, -1
        for one that is taken back. The rows are kept as long as the epoch's checkpoint
        (``retention.checkpoints``).

        Args:
            view: A view that a sink writes, or the sink itself, where several sinks with different
                columns write one view.
            epoch: Its number; by default the newest.

        Raises:
            UnknownView: Neither a view with a sink nor a sink goes by the name.
            NoEpochs, UnknownEpoch, EpochWithoutCheckpoint: There is no such epoch.
            ObjectMissing, ChecksumMismatch: A file is gone, or damaged.
        """
        manifest = self._manifest(epoch)
        entry = self._output(view, manifest)
        tables = [
            pa.ipc.open_file(pa.py_buffer(self._file(manifest, each))).read_all()
            for each in entry.files
        ]
        return ArrowRows(pa.concat_tables(tables) if tables else pa.table({}), self._session)

    def state(self, view: str, epoch: int | None = None) -> ArrowRows:
        """What a view keeps: its open windows, or its keys, with what is stored of each.

        Args:
            view: A view with state, or an operator of it, as ``laminar state show`` names it.
            epoch: As it was after this epoch; by default the newest.

        Raises:
            UnknownOperator: There is no such state; names the nearest.
            NoEpochs, UnknownEpoch, EpochWithoutCheckpoint: There is no such epoch.
            ObjectMissing, ChecksumMismatch, RestoreFailed: A file is damaged.
        """
        manifest = self._manifest(epoch)
        return ArrowRows(read_state(self._history, manifest, view).rows, self._session)

    def dead_letters(
        self, epoch: int | None = None, *, source: str | None = None, kind: LetterKind = "bad"
    ) -> ArrowRows:
        """Records that were set aside, with ``epoch`` and ``source`` as the first columns.

        Args:
            epoch: Of this epoch; by default of every epoch that still has some, oldest first.
            source: Of one source.
            kind: ``bad`` ones have ``partition``, ``position``, ``raw``, ``reason`` and
                ``is_whole``; ``late`` ones the columns of their source.

        Raises:
            NoLetters: The epoch that was asked for has none, or none any more.
            UnknownEpoch: It has not begun.
            UnlikeColumns: Late records of several sources do not fit into one table.
            IntegrityError: A document or file is damaged.
        """
        checkpoints = self._history
        if epoch is not None:
            found = letters_of_epoch(checkpoints, epoch, source, kind)
        else:
            every = [*all_letters(checkpoints, _raise)]
            found = [
                each
                for each in reversed(every)
                if each.kind == kind and source in (None, each.source_id)
            ]
        tables = [
            _placed(table, letters.epoch, letters.source_id)
            for letters in found
            for table in read_letters(checkpoints, letters)
        ]
        if not tables:
            return ArrowRows(pa.table({}), self._session)
        try:
            together = pa.concat_tables(tables, promote_options="default")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise UnlikeColumns(tuple(sorted({str(each.source_id) for each in found}))) from error
        return ArrowRows(together, self._session)

    def verify(self, epoch: int | None = None) -> Rerun:
        """Run a committed epoch again from its plan, and compare every hash. Publishes nothing.

        Args:
            epoch: Its number; by default the newest.

        Returns:
            What was compared, and what differs: ``is_identical``, ``differences``.

        Raises:
            NoEpochs, EpochNotCommitted: There is no such epoch.
            PipelineChanged: Another version of the pipeline computed it.
            ObjectMissing: Its checkpoint, or the one it builds on, has been collected.
            SourceReplaced, RetentionExpired: A source no longer holds what the epoch read.
        """
        number = self._newest.epoch if epoch is None else EpochNumber(epoch)
        return rerun(self._opened, number)

    @cached_property
    def _loaded(self) -> tuple[PipelineModel, Adapters]:
        (loaded,) = load_pipelines([self.folder], self.project.root)
        return loaded.model, loaded.adapters

    @property
    def _adapters(self) -> Adapters:
        return self._loaded[1]

    @cached_property
    def _opened(self) -> Pipeline:
        return assemble(self.model, self.project.root, self._session)

    @cached_property
    def _spark(self) -> Any:
        model = self.model
        return start_spark(
            model.config.spark, written=model.written_spark, withheld=model.secret_variables
        )

    def _session(self) -> Any:
        return self._spark

    @property
    def _history(self) -> CheckpointStore:
        checkpoints = existing_checkpoints(self.config, self.project.root)
        if checkpoints is None:
            raise NoEpochs(self.name)
        return checkpoints

    @property
    def _newest(self) -> CheckpointManifest:
        checkpoints = self._history
        manifest = newest_manifest(checkpoints, survey(checkpoints))
        if manifest is None:
            raise NoEpochs(self.name)
        return manifest

    def _manifest(self, epoch: int | None) -> CheckpointManifest:
        if epoch is None:
            return self._newest
        numbers = epoch_numbers(self._history)
        if not numbers:
            raise NoEpochs(self.name)
        if epoch not in numbers:
            raise UnknownEpoch(epoch, numbers[0])
        return epoch_manifest(self._history, EpochNumber(epoch))

    def _output(self, view: str, manifest: CheckpointManifest) -> SinkEntry:
        """What an epoch put out for a view, or for a sink."""
        staged = {str(each.sink_id): each for each in manifest.sinks}
        written = {str(table.view): str(table.sink_id) for table in reversed(self.model.sinks)}
        name = written.get(view, view)
        if name not in staged:
            known = sorted({*staged, *(each for each, sink in written.items() if sink in staged)})
            suggestion = nearest(view, known, listed(known, "there is"))
            raise UnknownView(view[:80], int(manifest.epoch), suggestion)
        return staged[name]

    def _file(self, manifest: CheckpointManifest, file: FileEntry) -> bytes:
        key = layout.checkpoint_key(manifest.checkpoint_id, file.path)
        return read_verified(self._history.objects, key, file.size_bytes, file.sha256)


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch of a pipeline.

    Attributes:
        number: Its number, from 1 on.
        state: ``done`` when every sink has confirmed it, ``collected`` when also its checkpoint is
            gone; before that how far it came: ``planned``, ``prepared``, ``committed``.
        checkpoint_id: Its checkpoint; None until one attempt has won, as are all that follow.
        counts: The records it read, processed, filtered, and set aside.
        rows_out: The rows it put out, over all sinks.
        watermark: The event time up to which it is complete.
        seconds: From the beginning of the attempt that won to its commit.
        fingerprint: The version of the pipeline that computed it.
    """

    number: int
    state: EpochState
    checkpoint_id: CheckpointId | None = None
    counts: RecordCounts | None = None
    rows_out: int | None = None
    watermark: datetime | None = None
    committed_at: datetime | None = None
    seconds: float | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """How far a pipeline is.

    Attributes:
        last_epoch: The newest committed epoch; None before the first.
        unfinished: Epochs that have begun, and the step that the next run takes for each.
        backlog: What waits in each source; a source that cannot be asked has its ``error`` there.
        sinks: How far each sink's ledger is.
    """

    last_epoch: Epoch | None
    unfinished: tuple[tuple[EpochNumber, Step], ...]
    backlog: Backlog
    sinks: tuple[SinkStanding, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ArrowRows:
    """A table that can be had as Arrow, pandas or Spark.

    Libraries that read the Arrow PyCapsule interface (Polars, DuckDB, pandas) take it as it is.
    """

    _table: pa.Table
    _session: Callable[[], Any]

    def __len__(self) -> int:
        """How many rows there are."""
        return int(self._table.num_rows)

    def __repr__(self) -> str:
        """The table's columns and first rows."""
        return repr(self._table)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows for any Arrow library."""
        return self._table.__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        """The first rows, as a notebook shows them."""
        shown: str = self._table.slice(0, 50).to_pandas()._repr_html_()
        return shown

    def to_arrow(self) -> pa.Table:
        """As an Arrow table."""
        return self._table

    def to_pandas(self) -> pd.DataFrame:
        """As a pandas data frame."""
        return self._table.to_pandas()

    def to_spark(self) -> Any:
        """As a data frame of the pipeline's Spark session, which starts if it has not."""
        return self._session().createDataFrame(self._table)


def _past_epoch(past: PastEpoch) -> Epoch:
    if past.manifest is None:
        return Epoch(int(past.epoch), past.state)
    return _epoch_of(past.manifest, past.state)


def _epoch_of(manifest: CheckpointManifest, state: EpochState) -> Epoch:
    return Epoch(
        number=int(manifest.epoch),
        state=state,
        checkpoint_id=manifest.checkpoint_id,
        counts=manifest.counts,
        rows_out=sum(file.rows for sink in manifest.sinks for file in sink.files),
        watermark=_moment(manifest.watermark),
        committed_at=manifest.completed_at,
        seconds=(manifest.completed_at - manifest.started_at).total_seconds(),
        fingerprint=manifest.fingerprint,
    )


def _state(look: Look, manifest: CheckpointManifest) -> EpochState:
    latest = look.standing.latest
    return "done" if latest and latest.epoch >= manifest.epoch else "committed"


def _moment(micros: int | None) -> datetime | None:
    """A time in microseconds since 1970; None where Python's calendar ends before it."""
    if micros is None:
        return None
    try:
        return _UNIX_EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return None


def _placed(table: pa.Table, epoch: EpochNumber, source: SourceId) -> pa.Table:
    """A table of dead letters, with the epoch that set them aside and their source."""
    rows = table.num_rows
    numbered = table.add_column(0, "source", pa.repeat(pa.scalar(str(source)), rows))
    return numbered.add_column(0, "epoch", pa.repeat(pa.scalar(int(epoch), pa.int64()), rows))


def _raise(error: IntegrityError) -> NoReturn:
    raise error
