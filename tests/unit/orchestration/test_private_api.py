"""What is assumed of Dagster's private API. A new release that breaks it fails here, by name."""

import ast
import importlib
import inspect
import json
import signal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._cli import asset as asset_commands
from dagster._core.code_pointer import CodePointer, FileCodePointer
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin
from dagster._core.remote_origin import (
    CodeLocationOrigin,
    GrpcServerCodeLocationOrigin,
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

import laminar_dagster
from laminar_dagster.orchestration import private_api

# Module, name, and the parameters that are given.
ASSUMED: list[tuple[str, str, list[str]]] = [
    (
        "dagster._cli.api",
        "_execute_run_command_body",
        ["run_id", "instance", "write_stream_fn", "set_exit_code_on_failure"],
    ),
    ("dagster._cli.utils", "get_instance_for_cli", ["instance_ref"]),
    ("dagster._core.events", "EngineEventData", ["metadata"]),
    ("dagster._core.launcher.base", "CheckRunHealthResult", ["status", "msg", "run_worker_id"]),
    ("dagster._core.launcher.base", "LaunchRunContext", ["dagster_run", "workspace"]),
    ("dagster._serdes", "serialize_value", ["val"]),
    ("dagster._serdes", "deserialize_value", ["val", "as_type"]),
    ("dagster._utils.interrupts", "capture_interrupts", []),
    ("dagster._core.execution.api", "execute_run_iterator", ["job", "dagster_run", "instance"]),
    ("dagster._core.definitions.job_base", "InMemoryJob", ["job_def"]),
    ("dagster._core.workspace.load", "location_origins_from_yaml_paths", ["yaml_paths"]),
    ("dagster._core.origin", "get_python_environment_entry_point", ["executable_path"]),
    (
        "dagster._core.types.loadable_target_origin",
        "LoadableTargetOrigin",
        ["executable_path", "python_file", "working_directory"],
    ),
]


def test_these_are_the_releases_that_were_read() -> None:
    assert version("dagster") == "1.13.27"
    assert version("dagster-webserver") == "1.13.27"


def test_the_command_that_launches_assets_is_as_it_was_read() -> None:
    """Its refusal, the variables that it has by then, and the function that runs the assets."""
    source = inspect.getsource(asset_commands.execute_materialize_command)
    refusal = source.index("no '--partition' option")
    for name in ("asset_keys = ", "implicit_job_def = "):
        assert 0 < source.index(name) < refusal
    assert 'check.failed("Asset has partitions' in source
    assert source.index("execute_job(", refusal) < source.index("asset_selection=list(asset_keys)")
    assert {"check", "execute_job"} <= vars(asset_commands).keys()


def test_no_other_module_uses_a_private_name() -> None:
    package = Path(laminar_dagster.__file__).parent
    allowed = Path(private_api.__file__)
    users = {
        str(path.relative_to(package)): names
        for path in package.rglob("*.py")
        if path != allowed and (names := private_imports(path))
    }
    assert users == {}


def private_imports(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return [name for name in names if name.startswith("dagster") and "._" in name]


@pytest.mark.parametrize(("module", "name", "given"), ASSUMED)
def test_a_private_name_takes_what_it_is_given(module: str, name: str, given: list[str]) -> None:
    found = getattr(importlib.import_module(module), name, None)

    assert found is not None, f"{module}.{name} is gone"
    parameters = list(inspect.signature(found).parameters)
    missing = [parameter for parameter in given if parameter not in parameters]
    assert not missing, f"{module}.{name} no longer takes {missing}, but {parameters}"


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("launch_run", ["context"]),
        ("terminate", ["run_id"]),
        ("dispose", []),
        ("join", ["timeout"]),
        ("check_run_worker_health", ["run"]),
        ("get_run_worker_debug_info", ["run", "include_container_logs"]),
        ("register_instance", ["instance"]),
    ],
)
def test_a_launcher_is_asked_for_what_it_offers(name: str, given: list[str]) -> None:
    for launcher in (private_api.RunLauncher, dg.DefaultRunLauncher):
        found = getattr(launcher, name, None)
        assert found is not None, f"{launcher.__name__}.{name} is gone"
        assert list(inspect.signature(found).parameters)[1:] == given, f"{launcher}.{name}"


def test_the_health_of_a_worker_has_these_names() -> None:
    assert {status.name for status in private_api.WorkerStatus} == {
        "RUNNING",
        "NOT_FOUND",
        "FAILED",
        "SUCCESS",
        "UNKNOWN",
    }


def test_a_configurable_class_is_made_from_its_config() -> None:
    names = ("inst_data", "config_type", "from_config_value")
    gone = [name for name in names if not hasattr(private_api.ConfigurableClass, name)]
    assert not gone, f"ConfigurableClass.{gone} is gone"


def test_interrupts_are_captured_and_given_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with private_api.capture_interrupts():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) == before


def test_an_instance_is_opened_from_its_text(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        text = private_api.instance_text(instance)

    with private_api.open_instance(text) as opened:
        assert opened.root_directory == str(tmp_path)
    json.loads(text)


@dg.op
def succeeds() -> None:
    pass


@dg.job(executor_def=dg.in_process_executor)
def succeeding() -> None:
    succeeds()


defs = dg.Definitions(jobs=[succeeding])


def created(instance: dg.DagsterInstance, **origin: Any) -> dg.DagsterRun:
    return instance.create_run_for_job(succeeding, **origin)


def code(attribute: str = "defs", **more: Any) -> JobPythonOrigin:
    pointer = CodePointer.from_python_file(__file__, attribute, str(Path(__file__).parent))
    return JobPythonOrigin("succeeding", RepositoryPythonOrigin("/bin/python", pointer, **more))


def location(origin: CodeLocationOrigin) -> RemoteJobOrigin:
    return RemoteJobOrigin(RemoteRepositoryOrigin(origin, "__repository__"), "succeeding")


HERE = ManagedGrpcPythonEnvCodeLocationOrigin(
    LoadableTargetOrigin(executable_path="/bin/python", python_file=__file__), "here"
)


def test_a_run_is_executed_as_by_a_process_of_its_own(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        run = created(instance, job_code_origin=code(), remote_job_origin=location(HERE))

        assert private_api.execute_run(instance, run.run_id)

        ended = instance.get_run_by_id(run.run_id)
        assert ended is not None
        assert ended.status == dg.DagsterRunStatus.SUCCESS
        messages = [entry.message for entry in instance.all_logs(run.run_id)]
        assert any(message.startswith("Started process for run") for message in messages)


def test_code_that_does_not_load_ends_the_run_and_raises_nothing(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        run = created(instance, job_code_origin=code("absent"), remote_job_origin=location(HERE))

        assert not private_api.execute_run(instance, run.run_id)

        ended = instance.get_run_by_id(run.run_id)
        assert ended is not None
        assert ended.status == dg.DagsterRunStatus.FAILURE


def test_an_engine_event_has_a_message_and_metadata() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        run = created(instance)
        private_api.report_engine_event(instance, run, "as it were", {"pid": "7"})
        (entry,) = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)

    assert entry.dagster_event is not None
    assert entry.dagster_event.message == "as it were"
    assert entry.dagster_event.engine_event_data.metadata == {"pid": dg.MetadataValue.text("7")}


def test_the_code_of_a_run_is_known() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        run = created(instance, job_code_origin=code(), remote_job_origin=location(HERE))
        nowhere = created(instance)

    origin = private_api.code_origin(run)
    assert private_api.code_origin(nowhere) is None
    assert origin is not None
    assert (origin.executable, origin.location, origin.image) == ("/bin/python", "here", None)
    assert origin.folder == Path(__file__).parent
    assert __file__ in origin.text


@pytest.mark.parametrize(
    ("served", "is_local"),
    [
        (HERE, True),
        (GrpcServerCodeLocationOrigin("localhost", port=4000), True),
        (GrpcServerCodeLocationOrigin("anything", socket="/run/code.sock"), True),
        (GrpcServerCodeLocationOrigin("user-code", port=4000), False),
    ],
)
def test_code_that_is_served_elsewhere_is_told_apart(
    served: CodeLocationOrigin, is_local: bool
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        run = created(instance, job_code_origin=code(), remote_job_origin=location(served))

    origin = private_api.code_origin(run)
    assert origin is not None
    assert origin.is_local is is_local


def test_a_run_with_a_code_server_bears_its_tag() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        cold = created(instance, tags={".dagster/grpc_info": "{}"})
        warm = created(instance)

    assert private_api.is_with_code_server(cold)
    assert not private_api.is_with_code_server(warm)


def test_a_run_is_executed_here_without_a_word(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = private_api.ProjectCode.of(tmp_path, "definitions.py", "laminar")
    with private_api.open_quiet_instance(tmp_path) as instance:
        run_id = "00000000-0000-4000-8000-000000000001"
        run = private_api.create_run(instance, succeeding, run_id, {"a": "b"}, code)
        assert run.status == dg.DagsterRunStatus.NOT_STARTED
        events = list(private_api.execute_here(instance, succeeding, run))
        ended = instance.get_run_by_id(run_id)

    assert events[-1].event_type_value == dg.DagsterEventType.RUN_SUCCESS.value
    assert ended is not None
    assert (ended.status, dict(ended.run_config)) == (dg.DagsterRunStatus.SUCCESS, {})
    assert ended.tags == {"a": "b", "dagster/code_location": "laminar"}
    told = capfd.readouterr()
    assert (told.out, told.err) == ("", "")


@pytest.mark.parametrize(
    ("workspace", "location", "attribute"),
    [
        (None, "laminar", "defs"),
        ("load_from: [python_file: definitions.py]", "definitions.py", "defs"),
        (
            "load_from: [python_module: other, python_file: "
            "{relative_path: definitions.py, location_name: shop, attribute: all}]",
            "shop",
            "all",
        ),
        ("load_from: [python_module: other]", "laminar", "defs"),
        ("load_from: 7", "laminar", "defs"),
        ("load_from: [", "laminar", "defs"),
    ],
)
def test_the_code_of_a_project_is_where_its_workspace_says(
    tmp_path: Path, workspace: str | None, location: str, attribute: str
) -> None:
    if workspace is not None:
        (tmp_path / "workspace.yaml").write_text(workspace)
    code = private_api.ProjectCode.of(tmp_path, "definitions.py", "laminar")
    assert code.remote_origin("job").repository_origin.code_location_origin.location_name == (
        location
    )
    pointer = code.python_origin("job").repository_origin.code_pointer
    assert isinstance(pointer, FileCodePointer)
    assert (pointer.python_file, pointer.fn_name) == (str(tmp_path / "definitions.py"), attribute)
