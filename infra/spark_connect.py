"""A Spark Connect server: one warm Spark that short-lived processes share.

A pip-installed pyspark brings the server's classes and no script to start them, so ``spark-submit``
is told the class. The server runs whatever a client sends, so clients need a token. The server
reads it from a file that is gone when it answers: the Python workers that it starts inherit its
environment, and everybody can read its command line.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar
from uuid import UUID

from infra.ports import LOOPBACK
from infra.service import Endpoint, Launch, Service
from infra.spark_home import java_home, spark_home
from laminar_dagster.spark.class_archive import VARIABLE, java_options

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_SECRETS = "secrets.properties"
# The first bytes of an HTTP/2 connection, RFC 9113: preface, then an empty SETTINGS frame.
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS_FRAME = 4
_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
logger.server.name = org.apache.spark.sql.connect.service.SparkConnectServer
logger.server.level = info
"""


@dataclass(frozen=True, slots=True)
class SparkConnectEndpoint(Endpoint):
    """Where the server listens, and who may use it.

    Attributes:
        token: New with every start; left out of the representation, which ends up in test output.
        log: The server's log.
    """

    token: str = field(repr=False)
    log: Path = field(repr=False)

    @property
    def url(self) -> str:
        """What ``SparkSession.builder.remote`` takes.

        By name: for an address, the client would send the token over TLS only.
        """
        return f"sc://localhost:{self.port}"

    def session_url(self, session: UUID) -> str:
        """The same, for a session that outlives its client.

        A server starts Python workers for each session anew, which takes seconds; the next process
        that names the same session finds them warm.
        """
        return f"{self.url}/;user_id=laminar;session_id={session}"

    def environment(self) -> dict[str, str]:
        """Return the variables that Spark's client reads."""
        return {"SPARK_REMOTE": self.url, _TOKEN: self.token}


class SparkConnect(Service[SparkConnectEndpoint]):
    """The server, with its executors inside: ``local[*]``."""

    name: ClassVar[str] = "spark_connect"
    ready_within: ClassVar[float] = 120.0

    def __init__(
        self, settings: Mapping[str, str] = {}, environment: Mapping[str, str] = {}
    ) -> None:
        """Create a server that is not running.

        Args:
            settings: Spark's own, over those below.
            environment: Variables for the server and its executors.
        """
        super().__init__()
        self._settings = settings
        self._environment = environment

    def install(self) -> None:
        """Find pyspark, which is a dependency of the project, and Java."""
        spark_home(self.name)
        java_home(self.name)

    def launch(self, data_dir: Path, port: int) -> Launch[SparkConnectEndpoint]:
        """Serve on loopback with a fresh token."""
        home = spark_home(self.name)
        given = {**os.environ, "SPARK_HOME": str(home), "JAVA_HOME": str(java_home(self.name))}
        logging = data_dir / "log4j2.properties"
        logging.write_text(_LOGGING)
        scratch = data_dir / "scratch"
        scratch.mkdir(exist_ok=True)
        settings = {
            "spark.master": "local[*]",
            "spark.app.name": "laminar-connect",
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": str(port),
            # On another port nobody would find it.
            "spark.port.maxRetries": "0",
            # Its other ports ask for a secret that Spark makes by itself.
            "spark.authenticate": "true",
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.ui.enabled": "false",
            "spark.local.dir": str(scratch),
            "spark.sql.warehouse.dir": str(data_dir / "warehouse"),
            "spark.sql.session.timeZone": "UTC",
            **self._settings,
        }
        pairs = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        jvm = f"-Dlog4j2.configurationFile={logging.as_uri()}"
        endpoint = SparkConnectEndpoint(
            host=LOOPBACK,
            port=port,
            token=secrets.token_hex(20),
            log=data_dir / f"{self.name}.log",
        )
        file = data_dir / _SECRETS
        file.unlink(missing_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(f"spark.connect.authenticate.token={endpoint.token}\n")
        return Launch(
            command=[
                # A client's variable would send the server to another server; empty, it counts.
                *("env", "-u", "SPARK_REMOTE", "-u", _TOKEN),
                str(home / "bin" / "spark-submit"),
                *("--properties-file", str(file), "--load-spark-defaults"),
                *("--driver-java-options", jvm),
                *("--class", _CLASS),
                *pairs,
                "spark-internal",
            ],
            environment={
                **self._environment,
                VARIABLE: java_options({**given, **self._environment}, is_brief=False),
                "JAVA_HOME": str(java_home(self.name)),
                "SPARK_HOME": str(home),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": LOOPBACK,
            },
            endpoint=endpoint,
        )

    def is_ready(self, endpoint: SparkConnectEndpoint) -> bool:
        """Ask the log whether this server has the port, and the port whether it answers."""
        started = f"started at: {endpoint.host}:{endpoint.port}"
        if started not in endpoint.log.read_text(errors="replace"):
            return False
        try:
            with socket.create_connection((endpoint.host, endpoint.port), timeout=2) as connection:
                connection.sendall(_GREETING)
                answer = connection.recv(9)
        except OSError:
            return False
        answers = len(answer) > 3 and answer[3] == _SETTINGS_FRAME
        if answers:
            endpoint.log.with_name(_SECRETS).unlink(missing_ok=True)
        return answers
