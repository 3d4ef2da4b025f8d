"""A Delta Lake table, on a local disk or an object store."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, SchemaMismatchError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from laminar_dagster.clients.delta import Meaning, meaning_of, readable
from laminar_dagster.clients.transience import shown as named
from laminar_dagster.config.model import SinkTable
from laminar_dagster.core.errors import (
    AuthFailed,
    CommitOutcomeUnknown,
    InvalidConfig,
    LaminarError,
    ServiceFailed,
    SinkUnavailable,
    WriteFailed,
)
from laminar_dagster.core.ids import EpochNumber, PipelineName, SinkId
from laminar_dagster.core.ports import HeldKeys, Published, StagedOutput
from laminar_dagster.sinks.changes import (
    Mode,
    Unwritable,
    check_columns,
    split,
    stored_columns,
)
from laminar_dagster.sinks.delta import writes
from laminar_dagster.sinks.delta.columns import cast, check_staged, target_schema
from laminar_dagster.sinks.delta.others import (
    APPLICATIONS,
    NO_VERSION,
    accepted_version,
    check_others,
)
from laminar_dagster.sinks.delta.partitions import (
    check_partition_types,
    check_partition_values,
)
from laminar_dagster.sinks.delta.stream import RowStream, watched
from laminar_dagster.sinks.durable_folder import make_folder, sync
from laminar_dagster.sinks.key_counts import NONE_HELD, shown
from laminar_dagster.sinks.ledger import Decision, decide
from laminar_dagster.sinks.options import SinkOptions, problem_with_key
from laminar_dagster.sinks.staged import staged_tables

_TRIES: Final = 12
_LONGEST_PAUSE: Final = 1.0
# Storage options with which a commit silently overwrites another writer's.
_UNSAFE: Final = ("aws_s3_allow_unsafe_rename", "allow_unsafe_rename")
# Metadata in the log entry of an epoch: the sink's application id and the digest of the output.
_SINK: Final = "laminarSink"
_OUTPUT: Final = "laminarOutputSha256"
# How many log entries to search for the newest epoch, as other writers may have committed since.
_LOOKED_AT: Final = 100
_FORGETS_LEDGER: Final = "delta.setTransactionRetentionDuration"


class DeltaSink:
    """Appends or merges rows into one Delta table; see ``columns`` for types.

    An epoch is one Delta commit, which carries the application transaction
    ``laminar:{pipeline}:{sink}`` with the epoch as its version: rows and ledger are published
    atomically, by one file in the table's log. A commit is made only for the table version at
    which the ledger was read, so of two committers one loses, reads the ledger again, and
    finds its epoch there. Parquet files of a commit that never happened are orphans; VACUUM
    removes them.

    Upsert mode holds an epoch's rows in memory, append mode one staged file at a time.

    On a local disk an epoch is flushed before ``commit`` returns. Within a commit the client
    does not order its writes: a power failure (not a kill) at that moment may leave a log entry
    whose files are not whole, as with any writer of Delta to a local disk.
    """

    def __init__(
        self,
        sink_id: SinkId,
        pipeline: PipelineName,
        location: str | Path,
        *,
        mode: Mode = "append",
        key: tuple[str, ...] = (),
        create: bool = True,
        accept_changes_until: float = NO_VERSION,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        """Describe the sink. Nothing is opened.

        Args:
            sink_id: The sink's name within the pipeline.
            pipeline: The pipeline's name, part of the ledger's application id.
            location: A folder (a relative one is resolved against the current folder, now) or the
                URL of one in an object store.
            mode: Whether rows are appended, or replace the rows with the same key.
            key: The columns that identify a row in upsert mode.
            create: Whether to create the table, and to add columns that the view gains.
            accept_changes_until: Accept that others removed or changed rows up to this version of
                the table; infinite for every version.
            storage_options: For the object store; their values are never shown.

        Raises:
            InvalidConfig: Mode and key contradict each other, or the options are not safe.
        """
        where = f"sink {sink_id}"
        if problem := problem_with_key(mode, key):
            raise InvalidConfig(where, *problem)
        self._options = dict(storage_options or {})
        if problem := _problem_with_location(str(location), self._options):
            raise InvalidConfig(where, *problem)
        self._sink_id = sink_id
        self._folder = None if "://" in str(location) else Path(os.path.abspath(location))
        self._location = str(self._folder or location)
        self._key = key
        self._create = create
        self._accepted = accept_changes_until
        self._application = f"{APPLICATIONS}{pipeline}:{sink_id}"

    @classmethod
    def from_table(cls, table: SinkTable, project: Path, pipeline: PipelineName) -> DeltaSink:
        """Build the sink that a ``CREATE SINK`` describes.

        Options: ``path`` (from the project's folder, or a URL), ``mode``, ``key``, ``create``,
        ``accept_changes_until``, and ``storage.…`` for the object store.

        Raises:
            InvalidConfig: Lists every mistake.
        """
        options = SinkOptions(table)
        path = options.text("path")
        mode, key = options.mode_and_key()
        create = options.flag("create", True)
        accepted = options.text("accept_changes_until", "none")
        storage = options.prefixed("storage.")
        if problem := _problem_with_location(path, storage):
            options.refuse(*problem)
        if (version := accepted_version(accepted)) is None:
            options.refuse(
                f"accept_changes_until = {accepted!r} is no version",
                "write the number of a version of the table, or 'any'",
            )
        options.finish()
        assert version is not None
        location = path if "://" in path else project / path
        return cls(
            table.sink_id,
            pipeline,
            location,
            mode=mode,
            key=key,
            create=create,
            accept_changes_until=version,
            storage_options=storage,
        )

    @property
    def sink_id(self) -> SinkId:
        """The sink's name within the pipeline."""
        return self._sink_id

    @property
    def address(self) -> str:
        """The table's folder."""
        return f"file://{self._folder}" if self._folder else self._location

    @property
    def targets(self) -> frozenset[str]:
        """The folder with links resolved; in an object store, bucket, path and endpoint."""
        if self._folder:
            return frozenset({f"file://{os.path.realpath(self._folder)}"})
        parts = urlsplit(self._location)
        scheme = "s3" if parts.scheme in ("s3a", "s3n") else parts.scheme
        path = "/".join(part for part in parts.path.split("/") if part)
        ends = [
            value.rstrip("/").lower()
            for name, value in self._options.items()
            if name.lower().endswith(("endpoint", "endpoint_url"))
        ]
        return frozenset({f"{scheme}://{parts.netloc.lower()}/{path}@{','.join(sorted(ends))}"})

    def __repr__(self) -> str:
        """The sink and its location, without the storage options."""
        return f"DeltaSink({self._sink_id!r}, {self._location!r})"

    def ledger(self) -> EpochNumber | None:
        """See ``Sink.ledger``."""
        table = self._open()
        return self._ledger_of(table) if table else None

    def published(self) -> Published | None:
        """See ``Attesting.published``. None if others made the last ``_LOOKED_AT`` commits."""
        table = self._open()
        ledger = self._ledger_of(table) if table else None
        if table is None or ledger is None:
            return None
        own = (each for each in table.history(_LOOKED_AT) if each.get(_SINK) == self._application)
        newest = next(own, None)
        return Published(ledger, str(newest[_OUTPUT])) if newest else None

    def check(self, schema: pa.Schema, staged: StagedOutput | None = None) -> None:
        """See ``Sink.check``. Makes no folder."""
        table = self._open()
        try:
            self._check_table(table)
            check_columns(schema, self._key)
            there = writes.columns_of(table) if table else None
            target = target_schema(stored_columns(schema), there, create=self._create)
            partitioned_by = writes.partitioned_by(table)
            check_partition_types(partitioned_by, target)
            if staged is not None:
                check_staged(staged, target, self._key, partitioned_by)
        except Unwritable as problem:
            where = f"sink {self._sink_id}"
            raise InvalidConfig(where, f"{self._location}: {problem}") from problem

    def held_keys(self, schema: pa.Schema, keys: pa.Table) -> HeldKeys:
        """See ``Searchable.held_keys``."""
        table = self._open()
        there = writes.columns_of(table) if table else None
        if table is None or there is None:
            return NONE_HELD
        try:
            target = target_schema(stored_columns(schema), there, create=self._create)
            wanted = cast(
                keys.select(self._key), pa.schema([target.field(name) for name in self._key])
            )
        except Unwritable as problem:
            where = f"sink {self._sink_id}"
            raise InvalidConfig(where, f"{self._location}: {problem}") from problem
        try:
            return shown(writes.matching(table, wanted, self._key), self._key)
        # The client raises bare exceptions too.
        except Exception as error:
            raise self._named(error) from None

    def repeated_keys(self) -> HeldKeys:
        """See ``Unconstrained.repeated_keys``."""
        table = self._open()
        there = writes.columns_of(table) if table else None
        if table is None or there is None or not self._key or not {*self._key} <= {*there.names}:
            return NONE_HELD
        try:
            return shown(writes.repeated(table, self._key), self._key)
        # The client raises bare exceptions too.
        except Exception as error:
            raise self._named(error) from None

    def commit(self, epoch: EpochNumber, staged: StagedOutput) -> None:
        """See ``Sink.commit``.

        1. Load the table; the commit is valid for this version only.
        2. Read the ledger of that version, and decide.
        3. Write Parquet files and, last, the one log entry that publishes them with the ledger.
        4. If another writer committed first, begin again: the ledger may have moved.
        """
        for attempt in range(_TRIES):
            # Step 1.
            table = self._open()
            # Step 2.
            ledger = self._ledger_of(table) if table else None
            if decide(self._sink_id, epoch, staged.entry.joined_at, ledger) is Decision.SKIP:
                return
            # Step 3.
            staged.progress.begun()
            if self._try_to_publish(table, epoch, staged):
                return
            staged.progress.aborted()
            # Step 4. The random pause keeps writers that collided from colliding again.
            time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.02 * 2**attempt)))
        reason = f"other writers committed to the table first, {_TRIES} times in a row"
        raise SinkUnavailable(self._sink_id, reason)

    # --- one attempt ------------------------------------------------------------------------------

    def _try_to_publish(
        self, table: DeltaTable | None, epoch: EpochNumber, staged: StagedOutput
    ) -> bool:
        """Try one commit. True if the epoch is in the table; False if another writer was first."""
        before = None if table is None else table.version()
        try:
            self._publish(table, epoch, staged)
        except LaminarError:
            raise
        except Unwritable as problem:
            raise WriteFailed(self._sink_id, epoch, str(problem)) from problem
        # The client raises bare exceptions too.
        except Exception as error:
            if not self._went_through(before, epoch, error):
                return False
        self._make_durable(0 if before is None else before + 1, epoch)
        return True

    def _publish(self, table: DeltaTable | None, epoch: EpochNumber, staged: StagedOutput) -> None:
        self._check_table(table)
        if table is None and self._folder:
            make_folder(self._folder)
        properties = CommitProperties(
            custom_metadata={
                _SINK: self._application,
                _OUTPUT: staged.entry.output_sha256,
            },
            # A retry by the client would commit on a newer version, whose ledger was not read.
            max_commit_retries=0,
            app_transactions=[Transaction(self._application, int(epoch))],
        )
        self._write(table, staged, properties)

    def _check_table(self, table: DeltaTable | None) -> None:
        if table is None:
            if not self._create:
                raise Unwritable("there is no Delta table; make it, or set create = 'true'")
        elif _FORGETS_LEDGER in table.metadata().configuration:
            raise Unwritable(f"the table's property {_FORGETS_LEDGER} would delete the ledger")
        elif self._ledger_of(table) is not None:
            check_others(self._application, table.version(), self._accepted, self._log_entry)

    def _write(
        self, table: DeltaTable | None, staged: StagedOutput, properties: CommitProperties
    ) -> None:
        files = watched(staged_tables(staged), staged.progress)
        first = next(files, None)
        if first is None:
            if table is None:
                writes.create_pending(self._location, self._options or None, properties)
            else:
                writes.move_ledger_only(table, properties)
            return
        check_columns(first.schema, self._key)
        there = writes.columns_of(table) if table else None
        target = target_schema(stored_columns(first.schema), there, create=self._create)
        partitioned_by = writes.partitioned_by(table)
        check_partition_types(partitioned_by, target)
        if self._key:
            everything = pa.concat_tables([first, *files])
            changes = split(everything, self._key, one_row_per_key=True)
            rows = cast(changes.rows, target)
            check_partition_values(partitioned_by, rows)
            if table is not None and there is not None:
                keys = pa.schema([target.field(name) for name in self._key])
                deleted = cast(changes.deleted, keys) if changes.deleted else keys.empty_table()
                writes.merge(table, rows, deleted, self._key, properties)
                return
            # The table is new or has no columns yet, so there is nothing to replace or delete.
            self._add(table, rows, properties)
            return
        stream = RowStream(target, chain([first], files), partitioned_by)
        try:
            self._add(table, stream.reader(), properties)
        except Exception:
            if stream.failure:
                # The client turned the stream's error into a text, and committed nothing.
                raise stream.failure from None
            raise

    def _add(
        self,
        table: DeltaTable | None,
        rows: pa.Table | pa.RecordBatchReader,
        properties: CommitProperties,
    ) -> None:
        if table is None:
            writes.create(self._location, rows, self._options or None, properties)
        else:
            writes.append(table, rows, properties)

    # --- outcomes ---------------------------------------------------------------------------------

    def _went_through(self, before: int | None, epoch: EpochNumber, error: Exception) -> bool:
        """Whether the commit took effect in spite of an error. False: another writer was first.

        Decided by the table, not by the error, whose type and text may change with the client.
        """
        reason = self._shown(error)
        try:
            table = self._open()
            ledger = self._ledger_of(table) if table else None
        except (SinkUnavailable, ServiceFailed, AuthFailed):
            raise CommitOutcomeUnknown(self._sink_id, epoch, reason) from None
        if ledger == epoch:
            # The commit succeeded; a later step failed, such as writing the log's checkpoint.
            return True
        if table is not None and table.version() != before:
            return False
        if isinstance(error, SchemaMismatchError):
            raise WriteFailed(self._sink_id, epoch, reason) from None
        is_passing = meaning_of(error) is Meaning.PASSING
        if self._folder is None and (is_passing or isinstance(error, CommitFailedError)):
            # A request that timed out may still arrive.
            raise CommitOutcomeUnknown(self._sink_id, epoch, reason) from None
        if is_passing or isinstance(error, CommitFailedError):
            raise SinkUnavailable(self._sink_id, reason) from None
        if isinstance(error, OSError):
            # A failure of the disk or the object store, not of the rows.
            raise self._named(error) from None
        raise WriteFailed(self._sink_id, epoch, reason) from None

    def _make_durable(self, version: int, epoch: EpochNumber) -> None:
        """Flush a commit and its files: the client leaves that to the operating system."""
        if self._folder is None:
            return
        log = self._folder / "_delta_log"
        entry = log / f"{version:020d}.json"
        try:
            # Not `splitlines`: a JSON value may contain other line separators, such as U+2028.
            for line in filter(None, entry.read_text("utf-8").split("\n")):
                if added := json.loads(line).get("add"):
                    sync(self._folder / unquote(added["path"]))
            for path in (self._folder, entry, log):
                sync(path)
        except OSError as error:
            reason = f"it is committed, and could not be flushed: {error}"
            raise CommitOutcomeUnknown(self._sink_id, epoch, reason) from error

    def _open(self) -> DeltaTable | None:
        try:
            return DeltaTable(self._location, storage_options=self._options or None)
        except TableNotFoundError:
            return None
        except Exception as error:
            raise self._named(error) from None

    def _named(self, error: Exception) -> LaminarError:
        """Translate an error of the client from a read, which leaves no commit in doubt."""
        reason, meaning = self._shown(error), meaning_of(error)
        if meaning is Meaning.PASSING:
            return SinkUnavailable(self._sink_id, reason)
        if meaning is Meaning.REFUSED:
            return AuthFailed(f"sink {self._sink_id}", reason)
        return ServiceFailed(f"sink {self._sink_id}", reason)

    def _log_entry(self, version: int) -> str | None:
        """An entry of the table's log; None if it was cleaned up."""
        files = DeltaStorageHandler(self._location, self._options or None)
        try:
            with files.open_input_file(f"_delta_log/{version:020d}.json") as file:
                data: bytes = file.read()
                return data.decode()
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._named(error) from None

    def _ledger_of(self, table: DeltaTable) -> EpochNumber | None:
        version = table.transaction_version(self._application)
        return None if version is None else EpochNumber(version)

    def _shown(self, error: Exception) -> str:
        """An error's text without storage options, which may be secrets, and without a backtrace.

        For the same reason callers raise ``from None``: a chained error would show them.
        """
        text = named(error)
        for value in sorted(self._options.values(), key=len, reverse=True):
            if value:
                text = text.replace(value, "***")
        return f"{self._location}: {readable(text)}"


def _problem_with_location(location: str, options: Mapping[str, str]) -> tuple[str, str] | None:
    if "://" not in location:
        if options:
            return "a local path takes no `storage.` options", "remove them"
        if "%" in location:
            # The client decodes "%20" to a space in some places, but not in others.
            return "`path` holds a '%'", "choose another folder"
        return None
    parts = urlsplit(location)
    if parts.scheme == "file":
        return "`path` is a file: URL", "write a plain path"
    if parts.username or parts.password or parts.query:
        return "`path` must not carry credentials or options", "use `storage.` options"
    for name, value in {**os.environ, **options}.items():
        if name.lower() in _UNSAFE and value.lower() not in ("", "0", "false"):
            return f"{name} lets one commit overwrite another", "remove it"
    return None
