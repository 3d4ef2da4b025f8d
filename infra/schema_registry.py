"""A real schema registry: Apicurio, in the words of Confluent's, in memory.

It asks nobody for a password: Apicurio leaves that to an OpenID Connect server.
"""

from __future__ import annotations

import http.client
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from infra import java, maven
from infra.cache import cache_dir, install_once
from infra.errors import ServiceUnavailable
from infra.ports import LOOPBACK
from infra.service import Endpoint, Launch, Service

_VERSION: Final = "3.0.9"  # 3.3 wants Java 21.
_ARTIFACT: Final = maven.Artifact("io.apicurio", "apicurio-registry-app", _VERSION)
_BASE: Final = "/apis/ccompat/v7"
_HEADER: Final = "X-Laminar-Server"
_JAVA_OPTIONS: Final = (
    "-Xmx384m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    # The end of a log is for the reason of a failure, not for where it came from.
    "-XX:MaxJavaStackTraceDepth=4",
)
_SETTINGS: Final = {
    "quarkus.http.host": LOOPBACK,
    "quarkus.http.access-log.enabled": "false",
    "quarkus.log.console.level": "WARN",
    "quarkus.profile": "prod",
}


@dataclass(frozen=True, slots=True)
class SchemaRegistryEndpoint(Endpoint):
    """Where the registry listens.

    Attributes:
        mark: A random word that only this registry sends with its answers.
    """

    mark: str = field(repr=False)

    @property
    def url(self) -> str:
        """What Confluent's clients take."""
        return f"http://{self.host}:{self.port}{_BASE}"

    def environment(self) -> dict[str, str]:
        """Return the variable that many clients read."""
        return {"SCHEMA_REGISTRY_URL": self.url}


class SchemaRegistry(Service[SchemaRegistryEndpoint]):
    """The registry. It forgets everything when it stops."""

    name: ClassVar[str] = "schema_registry"
    ready_within: ClassVar[float] = 120.0

    def __init__(self, settings: Mapping[str, str] = {}) -> None:
        """Create a registry that is not running.

        Args:
            settings: Of Apicurio and Quarkus, over those above.
        """
        super().__init__()
        self._settings = {**_SETTINGS, **settings}

    def install(self) -> None:
        """Fetch the registry with Maven, 110 MB, once."""
        _java()
        install_once(_directory(), lambda into: maven.unpack(self.name, _ARTIFACT, "all", into))

    def launch(self, data_dir: Path, port: int) -> Launch[SchemaRegistryEndpoint]:
        """Serve on loopback."""
        endpoint = SchemaRegistryEndpoint(host=LOOPBACK, port=port, mark=secrets.token_hex(8))
        settings = {
            **self._settings,
            "quarkus.http.port": str(port),
            f'quarkus.http.header."{_HEADER}".value': endpoint.mark,
        }
        jar = cache_dir() / _directory() / f"{_ARTIFACT.name}-{_VERSION}-runner.jar"
        return Launch(
            command=[
                *(str(_java() / "bin" / "java"), *_JAVA_OPTIONS),
                *(f"-D{name}={value}" for name, value in settings.items()),
                *("-jar", str(jar)),
            ],
            environment={},
            endpoint=endpoint,
        )

    def is_ready(self, endpoint: SchemaRegistryEndpoint) -> bool:
        """Ask for the subjects, and look for the word that no other registry knows."""
        connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=5)
        try:
            connection.request("GET", f"{_BASE}/subjects")
            answer = connection.getresponse()
            return answer.status == http.client.OK and answer.getheader(_HEADER) == endpoint.mark
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def _java() -> Path:
    found = java.find()
    if found is None:
        raise ServiceUnavailable(SchemaRegistry.name, f"install Java {java.MINIMUM} or later")
    return found.home


def _directory() -> str:
    return f"apicurio-registry-{_VERSION}"
