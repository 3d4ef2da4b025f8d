"""A real ``dagster dev``: webserver, daemon and code server of one project, for one module's tests.

Use it like any other service::

    with DagsterDev(project) as server:
        client = server.start(tmp_path_factory.mktemp("dagster")).client
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import yaml

from infra.errors import ServiceFailed, ServiceUnavailable
from infra.ports import LOOPBACK
from infra.service import Endpoint, Launch, Service
from tests.services import session_guard
from tests.services.dagster_client import DagsterClient
from tests.services.dagster_graphql import GraphQLError

# Without a word to anybody, and without the dialog that asks a new user for an address.
_QUIET = {"telemetry": {"enabled": False}, "nux": {"enabled": False}}


@dataclass(frozen=True, slots=True)
class DagsterEndpoint(Endpoint):
    """Where the webserver listens.

    Attributes:
        home: The instance's ``DAGSTER_HOME``.
        log: What webserver, daemon and code server print.
    """

    home: Path
    log: Path = field(repr=False)

    @property
    def url(self) -> str:
        """The address of the UI."""
        return f"http://{self.host}:{self.port}"

    @property
    def client(self) -> DagsterClient:
        """A client of the webserver."""
        return DagsterClient(self.url)


class DagsterDev(Service[DagsterEndpoint]):
    """``dagster dev`` with an instance of its own, which ends with everything it started."""

    name: ClassVar[str] = "dagster_dev"
    ready_within: ClassVar[float] = 120.0

    def __init__(
        self,
        project: Path,
        *,
        workspace: Path | None = None,
        dagster_yaml: str = "",
        environment: Mapping[str, str] = {},
    ) -> None:
        """Create a server that is not running.

        Args:
            project: The folder it starts in, like a user's shell.
            workspace: A workspace file; by default what stands in ``project`` decides.
            dagster_yaml: Settings of the instance.
            environment: Variables for the server and all its runs.
        """
        super().__init__()
        self._project = project
        self._workspace = workspace
        self._settings = {**_QUIET, **(yaml.safe_load(dagster_yaml) or {})}
        self._environment = environment

    def install(self) -> None:
        """Find Dagster's webserver, which is a dependency of the project."""
        if importlib.util.find_spec("dagster_webserver") is None:
            raise ServiceUnavailable(self.name, "install dagster-webserver: `make setup`")

    def launch(self, data_dir: Path, port: int) -> Launch[DagsterEndpoint]:
        """Serve on loopback. The instance is in ``data_dir``: a second start finds it again."""
        home = data_dir / "home"
        home.mkdir(exist_ok=True)
        (home / "dagster.yaml").write_text(yaml.safe_dump(self._settings))
        workspace = ["--workspace", str(self._workspace)] if self._workspace else []
        guard = [sys.executable, "-IS", session_guard.__file__]
        # A service starts in its own folder; this one belongs into the project's.
        inside = ["env", "-C", str(self._project)]
        command = [sys.executable, "-m", "dagster", "dev", "--host", LOOPBACK, "--port", str(port)]
        return Launch(
            command=[*guard, *inside, *command, *workspace],
            environment={
                "DAGSTER_HOME": str(home),
                "DAGSTER_DISABLE_TELEMETRY": "yes",
                "PYTHONUNBUFFERED": "1",
                **self._environment,
            },
            endpoint=DagsterEndpoint(LOOPBACK, port, home, data_dir / f"{self.name}.log"),
        )

    def is_ready(self, endpoint: DagsterEndpoint) -> bool:
        """Ask the webserver whose instance it shows, and whether the code is loaded.

        Raises:
            ServiceFailed: The code cannot be loaded.
        """
        client = endpoint.client
        try:
            info = client.query("{ instance { info } }")["instance"]["info"]
            failed = client.failed_locations() if str(endpoint.home) in info else None
        except (OSError, GraphQLError):
            return False
        if failed:
            told = "\n".join(f"{name}: {error}" for name, error in failed.items())
            raise ServiceFailed(self.name, f"the code of a location cannot be loaded:\n{told}")
        if failed is None:
            # It is busy enough.
            time.sleep(0.25)
        return failed is not None

    def stop(self) -> None:
        """End the server with its daemon, code servers and runs; none of them outlives this."""
        leader = self._process.pid if self._process is not None else None
        super().stop()
        if leader is not None:
            session_guard.kill_session(leader)
