"""Every use of a private Dagster API. No other module imports from ``dagster._...``.

Private names change without notice. They are gathered here, behind small typed functions, and
``tests/unit/orchestration/test_private_api.py`` tests these assumptions on the pinned release.
"""

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import dagster as dg
import sqlalchemy as sa
from dagster._cli import asset as asset_commands
from dagster._cli.api import _execute_run_command_body
from dagster._cli.utils import get_instance_for_cli
from dagster._core.code_pointer import CodePointer, FileCodePointer
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.definitions.reconstruct import ReconstructableJob
from dagster._core.definitions.repository_definition import SINGLETON_REPOSITORY_NAME
from dagster._core.events import EngineEventData
from dagster._core.execution.api import execute_run_iterator
from dagster._core.instance.ref import InstanceRef
from dagster._core.instance.utils import RUNLESS_RUN_ID
from dagster._core.launcher.base import (
    CheckRunHealthResult,
    LaunchRunContext,
    RunLauncher,
    WorkerStatus,
)
from dagster._core.origin import (
    JobPythonOrigin,
    RepositoryPythonOrigin,
    get_python_environment_entry_point,
)
from dagster._core.remote_origin import (
    GrpcServerCodeLocationOrigin,
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    ConcurrencySlotsTable,
    DynamicPartitionsTable,
    PendingStepsTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.noop_compute_log_manager import NoOpComputeLogManager
from dagster._core.storage.runs.schema import RunsTable, RunTagsTable
from dagster._core.storage.runs.sql_run_storage import SqlRunStorage
from dagster._core.storage.tags import GRPC_INFO_TAG, PARTITION_NAME_TAG
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.load import location_origins_from_yaml_paths
from dagster._serdes import ConfigurableClass, deserialize_value, serialize_value
from dagster._serdes.config_class import ConfigurableClassData
from dagster._utils.interrupts import capture_interrupts

__all__ = [
    "IMPLICIT_ASSET_JOB_NAME",
    "PARTITION_NAME_TAG",
    "CheckRunHealthResult",
    "CodeOrigin",
    "ConfigurableClass",
    "ConfigurableClassData",
    "LaunchRunContext",
    "ProjectCode",
    "RunLauncher",
    "WorkerStatus",
    "capture_interrupts",
    "code_origin",
    "create_run",
    "execute_here",
    "execute_run",
    "forget_partitions",
    "forget_runless_events",
    "forget_runs",
    "instance_text",
    "is_with_code_server",
    "let_launch_without_partition",
    "open_instance",
    "open_instance_for_runs",
    "open_quiet_instance",
    "report_engine_event",
    "set_partition",
]

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class CodeOrigin:
    """Where a run's code comes from.

    Attributes:
        text: The whole origin of the repository; equal texts mean equal code.
        executable: The Python that runs it.
        folder: Where its imports are looked up, or None for the process's own folder.
        image: The container image it lives in, or None.
        location: The name of its code location.
        is_local: Whether its code location is served on this machine.
    """

    text: str
    executable: str
    folder: Path | None
    image: str | None
    location: str
    is_local: bool


def code_origin(run: dg.DagsterRun) -> CodeOrigin | None:
    """Where the run's code comes from; None for a run without that information."""
    if run.job_code_origin is None or run.remote_job_origin is None:
        return None
    repository = run.job_code_origin.repository_origin
    pointer = repository.code_pointer
    folder: str | None = getattr(pointer, "working_directory", None)
    if folder is None and isinstance(pointer, FileCodePointer):
        folder = str(Path(pointer.python_file).parent)
    location = run.remote_job_origin.repository_origin.code_location_origin
    return CodeOrigin(
        text=serialize_value(repository),
        executable=repository.executable_path,
        folder=None if folder is None else Path(folder),
        image=repository.container_image,
        location=location.location_name,
        is_local=isinstance(location, ManagedGrpcPythonEnvCodeLocationOrigin)
        or (
            isinstance(location, GrpcServerCodeLocationOrigin)
            and (location.socket is not None or location.host in _LOOPBACK)
        ),
    )


def set_partition(instance: dg.DagsterInstance, run: dg.DagsterRun, key: str) -> None:
    """Give a partition to a run that is under way and was launched without one.

    What its steps report belongs to that partition from now on. The run is changed in place:
    Dagster reads it again only in other processes.
    """
    if not isinstance(run.tags, dict):
        raise TypeError(f"the tags of a run are {type(run.tags).__name__}, not a dict")
    instance.add_run_tags(run.run_id, {PARTITION_NAME_TAG: key})
    run.tags[PARTITION_NAME_TAG] = key


class _ChecksOfLaunch:
    """Dagster's checks, without that for a partition where the code chooses one."""

    def __init__(self, checks: Any, chooses: type[dg.PartitionsDefinition[str]]) -> None:
        self._checks, self._chooses = checks, chooses

    def __getattr__(self, name: str) -> Any:
        return getattr(self._checks, name)

    def failed(self, desc: str) -> None:
        """Fail, unless every partitioned asset that is launched chooses its partition itself."""
        frame = inspect.currentframe()
        launched = frame.f_back.f_locals if frame and frame.f_back else {}
        if "no '--partition' option" in desc and "implicit_job_def" in launched:
            layer = launched["implicit_job_def"].asset_layer
            found = [layer.get(key).partitions_def for key in launched["asset_keys"]]
            if all(each is None or isinstance(each, self._chooses) for each in found):
                return
        self._checks.failed(desc)


def let_launch_without_partition(chooses: type[dg.PartitionsDefinition[str]]) -> None:
    """Let ``dg launch --assets`` run assets that choose their partition without ``--partition``.

    Dagster refuses that before any code of the assets runs, and has no other way to say which
    partition is meant by default. It also refuses some assets of a step without the others, which
    its UI adds by itself: they are added here. Other assets are treated as before.
    """
    commands = vars(asset_commands)
    if isinstance(commands["check"], _ChecksOfLaunch):
        return
    commands["check"] = _ChecksOfLaunch(commands["check"], chooses)
    execute = commands["execute_job"]

    def execute_whole_steps(
        job: ReconstructableJob, asset_selection: Sequence[dg.AssetKey], **arguments: Any
    ) -> Any:
        graph = job.get_definition().asset_layer.asset_graph
        chosen = [
            key for key in asset_selection if isinstance(graph.get(key).partitions_def, chooses)
        ]
        whole = dg.AssetSelection.assets(*chosen).required_multi_asset_neighbors().resolve(graph)
        return execute(job, asset_selection=[*{*asset_selection, *whole}], **arguments)

    commands["execute_job"] = execute_whole_steps


def instance_text(instance: dg.DagsterInstance) -> str:
    """An instance as text, from which another process can open it. May hold a password."""
    return serialize_value(instance.get_ref())


def open_instance(text: str) -> contextlib.AbstractContextManager[dg.DagsterInstance]:
    """Open an instance from its text."""
    return dg.DagsterInstance.from_ref(deserialize_value(text, InstanceRef))


def open_instance_for_runs(text: str) -> contextlib.AbstractContextManager[dg.DagsterInstance]:
    """Open an instance as ``dagster api execute_run`` does: with the ``.env`` file that is here."""
    return get_instance_for_cli(instance_ref=deserialize_value(text, InstanceRef))


def execute_run(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Execute a run in this process, on its main thread, as ``dagster api execute_run`` does.

    Every outcome is in the event log, also that code does not load; failures raise nothing.

    Returns:
        Whether the run succeeded.
    """
    seen: set[str] = set()

    def note(event: dg.DagsterEvent) -> None:
        seen.add(event.event_type_value)

    _execute_run_command_body(run_id, instance, note, set_exit_code_on_failure=False)
    return dg.DagsterEventType.RUN_SUCCESS.value in seen


def report_engine_event(
    instance: dg.DagsterInstance,
    run: dg.DagsterRun,
    message: str,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a line into a run's event log."""
    instance.report_engine_event(message, run, EngineEventData(metadata=dict(metadata or {})))


def is_with_code_server(run: dg.DagsterRun) -> bool:
    """Whether Dagster's default launcher has handed the run to a code server."""
    return GRPC_INFO_TAG in run.tags


# --- runs without a launcher: the process that creates them executes them -------------------------


def open_quiet_instance(home: Path) -> contextlib.AbstractContextManager[dg.DagsterInstance]:
    """Open the instance of a home in a process that keeps its standard output and error.

    Dagster's compute logs would redirect both to files while a step runs, even from a terminal.
    """
    silent = {"module": NoOpComputeLogManager.__module__, "class": NoOpComputeLogManager.__name__}
    ref = InstanceRef.from_dir(str(home), overrides={"compute_logs": silent})
    return get_instance_for_cli(instance_ref=ref)


@dataclass(frozen=True, slots=True)
class ProjectCode:
    """Where the webserver finds a project's code: without it, a run cannot be re-executed there."""

    location: ManagedGrpcPythonEnvCodeLocationOrigin

    @classmethod
    def of(cls, project: Path, file: str, location: str) -> "ProjectCode":
        """The code of a project, as in its ``workspace.yaml``, or else the default.

        Args:
            project: The project's folder.
            file: The file with its definitions.
            location: The name of the code location, when no workspace says otherwise.
        """
        python_file = str(project / file)
        # Dagster itself reports a workspace that cannot be read, when it serves it.
        with contextlib.suppress(Exception):
            for origin in location_origins_from_yaml_paths([str(project / "workspace.yaml")]):
                if (
                    isinstance(origin, ManagedGrpcPythonEnvCodeLocationOrigin)
                    and origin.loadable_target_origin.python_file == python_file
                ):
                    return cls(origin)
        target = LoadableTargetOrigin(
            executable_path=None, python_file=python_file, working_directory=str(project)
        )
        return cls(ManagedGrpcPythonEnvCodeLocationOrigin(target, location))

    def python_origin(self, job: str) -> JobPythonOrigin:
        """How a process loads a job."""
        target = self.location.loadable_target_origin
        executable = target.executable_path or sys.executable
        pointer = CodePointer.from_python_file(
            target.python_file or "", target.attribute or "defs", target.working_directory
        )
        entry_point = get_python_environment_entry_point(executable)
        repository = RepositoryPythonOrigin(
            executable, pointer, entry_point=entry_point, container_context={}
        )
        return JobPythonOrigin(job, repository)

    def remote_origin(self, job: str) -> RemoteJobOrigin:
        """How the webserver knows a job."""
        return RemoteJobOrigin(
            RemoteRepositoryOrigin(self.location, SINGLETON_REPOSITORY_NAME), job
        )


def create_run(
    instance: dg.DagsterInstance,
    job: dg.JobDefinition,
    run_id: str,
    tags: Mapping[str, str],
    code: ProjectCode,
) -> dg.DagsterRun:
    """Record a run of a job, as the webserver would on a launch. Nothing executes it yet."""
    return instance.create_run_for_job(
        job,
        run_id=run_id,
        tags={**job.run_tags, **tags},
        status=dg.DagsterRunStatus.NOT_STARTED,
        job_code_origin=code.python_origin(job.name),
        remote_job_origin=code.remote_origin(job.name),
    )


def execute_here(
    instance: dg.DagsterInstance, job: dg.JobDefinition, run: dg.DagsterRun
) -> Iterator[dg.DagsterEvent]:
    """Execute a run of a loaded job in this thread, and yield its events.

    On the main thread, Dagster would handle Ctrl-C and SIGTERM meanwhile. Logs go to the run's
    event log only, not to standard error.
    """
    silent = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    return execute_run_iterator(InMemoryJob(job), run._replace(run_config=silent), instance)


# --- deleting history -----------------------------------------------------------------------------
#
# Dagster deletes one run at a time, the run before its events, and leaves things behind: on SQLite
# the file of the run's events and the run's tags, everywhere the results of its checks and its
# compute logs. Events that were reported without a run, it cannot delete at all.


def forget_runs(instance: dg.DagsterInstance, run_ids: Sequence[str]) -> None:
    """Delete runs and all their records. The runs go last, so a killed call can be repeated."""
    runs, events = instance.run_storage, instance.event_log_storage
    for run_id in run_ids:
        instance.compute_log_manager.delete_logs(prefix=[run_id])
    if not isinstance(events, SqlEventLogStorage) or not isinstance(runs, SqlRunStorage):
        for run_id in run_ids:
            events.delete_events(run_id)
            instance.delete_run(run_id)
        return
    logs, checks = SqlEventLogStorageTable.c, AssetCheckExecutionsTable.c
    with events.index_connection() as connection:
        theirs = sa.select(logs.id).where(logs.run_id.in_(run_ids))
        tags = AssetEventTagsTable.delete()
        connection.execute(tags.where(AssetEventTagsTable.c.event_id.in_(theirs)))
        connection.execute(AssetCheckExecutionsTable.delete().where(checks.run_id.in_(run_ids)))
        connection.execute(SqlEventLogStorageTable.delete().where(logs.run_id.in_(run_ids)))
        holders = {
            run_id
            for column in (ConcurrencySlotsTable.c.run_id, PendingStepsTable.c.run_id)
            for run_id in connection.scalars(sa.select(column).where(column.in_(run_ids)))
        }
    for run_id in run_ids:
        if isinstance(events, SqliteEventLogStorage):
            shard = Path(events.path_for_shard(run_id))
            for file in (shard, Path(f"{shard}-wal"), Path(f"{shard}-shm")):
                file.unlink(missing_ok=True)
    for run_id in holders:
        events.free_concurrency_slots_for_run(run_id)
    with runs.connect() as connection:
        connection.execute(RunTagsTable.delete().where(RunTagsTable.c.run_id.in_(run_ids)))
        connection.execute(RunsTable.delete().where(RunsTable.c.run_id.in_(run_ids)))


def forget_runless_events(
    instance: dg.DagsterInstance,
    asset: dg.AssetKey,
    is_old: Callable[[str], bool],
    at_once: int,
) -> Iterator[int]:
    """Delete events of an asset's old partitions that no run reported; yields the count by batch.

    Does nothing if the event log is not one of Dagster's own SQL storages.
    """
    events = instance.event_log_storage
    if not isinstance(events, SqlEventLogStorage):
        return
    logs = SqlEventLogStorageTable.c
    # SQLite stores such events twice: in a file of their own, and in the index.
    shards = [lambda: events.run_connection(RUNLESS_RUN_ID)] if events.is_run_sharded else []
    for connect in (*shards, events.index_connection):
        last = 0
        while True:
            page = (
                sa.select(logs.id, logs.partition)
                .where(logs.run_id == RUNLESS_RUN_ID, logs.asset_key == asset.to_string())
                .where(logs.partition.is_not(None), logs.id > last)
                .order_by(logs.id)
                .limit(at_once)
            )
            with connect() as connection:
                rows = connection.execute(page).all()
                old = [row.id for row in rows if is_old(row.partition)]
                if old:
                    tags = AssetEventTagsTable.delete()
                    connection.execute(tags.where(AssetEventTagsTable.c.event_id.in_(old)))
                    connection.execute(SqlEventLogStorageTable.delete().where(logs.id.in_(old)))
            if not rows:
                break
            last = rows[-1].id
            if old:
                yield len(old) if connect == events.index_connection else 0


def forget_partitions(instance: dg.DagsterInstance, definition: str, keys: Sequence[str]) -> None:
    """Delete keys of a dynamic partitions definition, in one transaction where possible."""
    events = instance.event_log_storage
    if not isinstance(events, SqlEventLogStorage):
        for key in keys:
            instance.delete_dynamic_partition(definition, key)
        return
    known = DynamicPartitionsTable.c
    with events.index_connection() as connection:
        connection.execute(
            DynamicPartitionsTable.delete().where(
                known.partitions_def_name == definition, known.partition.in_(keys)
            )
        )
