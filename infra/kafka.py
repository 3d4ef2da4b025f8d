"""A real Kafka broker: one node that is its own controller, on loopback.

Besides the plain listener it can have any number of others, each with its own protocol and
certificate, so that one broker serves every way of connecting.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from infra import java, maven
from infra.cache import cache_dir, install_once
from infra.errors import ServiceFailed, ServiceUnavailable
from infra.ports import LOOPBACK, free_port, is_listening
from infra.service import Endpoint, Launch, Service

if TYPE_CHECKING:
    from infra.certificates import Certificate

_VERSION: Final = "4.1.0"
_LOG4J: Final = "2.24.3"  # The one that Kafka brings.
_ARTIFACTS: Final = (
    maven.Artifact("org.apache.kafka", "kafka_2.13", _VERSION),
    maven.Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", _LOG4J),
)
_NODE: Final = 1
_CLIENT: Final = "CLIENT"
_CONTROLLER: Final = "CONTROLLER"
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_QUICK_START: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A broker that was killed is let in again when the session of its former life has ended.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    # A quarter of a small heap otherwise.
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
}
_LOGGING: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""

SecurityProtocol = Literal["PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"]
Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Listener:
    """A further way into the broker.

    Attributes:
        name: Letters and digits; what the endpoint calls it.
        protocol: How clients talk to it.
        certificate: What it shows, for SSL and SASL_SSL.
        client_authority: Signs the certificates that clients have to show; None asks for none.
        advertise: Told the listener's own port, says where clients are sent. A proxy is put in
            front of the listener here; it is asked once for each port.
    """

    name: str
    protocol: SecurityProtocol = "PLAINTEXT"
    certificate: Certificate | None = None
    client_authority: Path | None = None
    advertise: Callable[[int], Address] = lambda port: (LOOPBACK, port)

    @property
    def asks_for_password(self) -> bool:
        """Whether clients have to log in."""
        return self.protocol.startswith("SASL_")


@dataclass(frozen=True, slots=True)
class KafkaEndpoint(Endpoint):
    """Where the broker listens, and who may use it.

    Attributes:
        cluster: Its random identity, which clients are told.
        addresses: What a client is given for each further listener, by the listener's name.
        passwords: Of each user, for every mechanism; left out of the representation, which ends
            up in test output.
        taken: Every port that the broker itself listens on.
    """

    cluster: str
    addresses: Mapping[str, Address]
    passwords: Mapping[str, str] = field(repr=False)
    taken: Mapping[str, int] = field(repr=False)

    @property
    def bootstrap(self) -> str:
        """The plain listener, in the form that clients take."""
        return f"{self.host}:{self.port}"

    def bootstrap_of(self, listener: str) -> str:
        """Another listener, in the form that clients take."""
        host, port = self.addresses[listener]
        return f"{host}:{port}"

    def environment(self) -> dict[str, str]:
        """Return the variable that many clients read."""
        return {"KAFKA_BOOTSTRAP_SERVERS": self.bootstrap}


class Kafka(Service[KafkaEndpoint]):
    """The broker. Started again, it has the addresses of its first start, and its data."""

    name: ClassVar[str] = "kafka"
    ready_within: ClassVar[float] = 90.0

    def __init__(
        self,
        settings: Mapping[str, str] = {},
        *,
        listeners: Sequence[Listener] = (),
        users: Sequence[str] = ("laminar",),
        heap: str = "512m",
        jvm: Sequence[str] = _QUICK_START,
    ) -> None:
        """Create a broker that is not running.

        Args:
            settings: Of ``server.properties``, over those above.
            listeners: Besides the plain one.
            users: Who may log in; passwords are made with the data, and stay.
            heap: How much memory it may use.
            jvm: Options for Java. Those given here start sooner and run slower than none.
        """
        super().__init__()
        self._settings = {**_SETTINGS, **settings}
        self._listeners = tuple(listeners)
        self._users = tuple(users)
        self._java_options = (f"-Xms{heap}", f"-Xmx{heap}", *jvm)
        self._first: KafkaEndpoint | None = None

    def install(self) -> None:
        """Fetch the broker with Maven, 45 MB, once."""
        _java()
        install_once(
            _directory(), lambda into: maven.copy_with_dependencies(self.name, _ARTIFACTS, into)
        )

    def start(self, data_dir: Path, *, outlive: bool = False) -> KafkaEndpoint:
        """Install if needed, start, and wait until the broker answers.

        Raises:
            ServiceUnavailable: The broker cannot be installed here.
            ServiceFailed: It ended or did not answer in time; or, when it has been started before,
                somebody else has its address now.
        """
        self._first = super().start(data_dir, outlive=outlive)
        return self._first

    def launch(self, data_dir: Path, port: int) -> Launch[KafkaEndpoint]:
        """Serve ``data_dir`` on loopback. A second start finds its data again."""
        data_dir = data_dir.absolute()
        endpoint = self._first or self._new_endpoint(data_dir, port)
        if self._first is not None:
            _require_free(endpoint)
        (data_dir / "log4j2.properties").write_text(_LOGGING)
        _write_secret(data_dir / "server.properties", self._properties(data_dir, endpoint))
        if not (data_dir / "data" / "meta.properties").exists():
            _format(data_dir, endpoint)
        return Launch(
            command=[
                *_java_command(data_dir, self._java_options),
                *("kafka.Kafka", "server.properties"),
            ],
            environment={},
            endpoint=endpoint,
        )

    def is_ready(self, endpoint: KafkaEndpoint) -> bool:
        """Ask the cluster who it is, and whether it has let its only broker in."""
        if not is_listening(endpoint.port):
            return False
        client = AdminClient({"bootstrap.servers": endpoint.bootstrap, "log_level": 0})
        try:
            answer = client.describe_cluster(request_timeout=5).result()
        except KafkaException:
            return False
        return answer.cluster_id == endpoint.cluster and len(answer.nodes) == 1

    def kill(self) -> None:
        """End the broker without giving it a chance to put its files in order."""
        os.kill(self.identity.pid, signal.SIGKILL)
        self.stop()

    def _run(self, launch: Launch[KafkaEndpoint], data_dir: Path, outlive: bool) -> bool:
        try:
            return super()._run(launch, data_dir, outlive)
        except ServiceFailed:
            # Any of its ports may have been lost, not just the first.
            if self._first is None and _lost(launch.endpoint):
                return False
            raise

    def _new_endpoint(self, data_dir: Path, port: int) -> KafkaEndpoint:
        others = {each.name: free_port() for each in self._listeners}
        return KafkaEndpoint(
            host=LOOPBACK,
            port=port,
            cluster=_kept(data_dir / "cluster", lambda: new_cluster_id(uuid.uuid4().bytes)),
            addresses={each.name: each.advertise(others[each.name]) for each in self._listeners},
            passwords=self._passwords(data_dir),
            taken={_CLIENT: port, _CONTROLLER: free_port(), **others},
        )

    def _passwords(self, data_dir: Path) -> dict[str, str]:
        kept = _kept(
            data_dir / "passwords",
            lambda: json.dumps({user: secrets.token_urlsafe(24) for user in self._users}),
        )
        passwords: dict[str, str] = json.loads(kept)
        if set(passwords) != set(self._users):
            raise ServiceFailed(self.name, f"the users of {data_dir} are {', '.join(passwords)}")
        return passwords

    def _properties(self, data_dir: Path, endpoint: KafkaEndpoint) -> str:
        protocols = {each.name: each.protocol for each in self._listeners}
        protocols |= {_CLIENT: "PLAINTEXT", _CONTROLLER: "PLAINTEXT"}
        advertised = {_CLIENT: (endpoint.host, endpoint.port), **endpoint.addresses}
        own = {name: (LOOPBACK, port) for name, port in endpoint.taken.items()}
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(_NODE),
            "controller.quorum.voters": f"{_NODE}@{LOOPBACK}:{endpoint.taken[_CONTROLLER]}",
            "controller.listener.names": _CONTROLLER,
            "inter.broker.listener.name": _CLIENT,
            "listeners": _joined(own),
            "advertised.listeners": _joined(advertised),
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in protocols.items()
            ),
            "log.dirs": str(data_dir / "data"),
            **self._settings,
        }
        for listener in self._listeners:
            settings |= security_of(listener, endpoint.passwords)
        return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def new_cluster_id(number: bytes) -> str:
    """Sixteen bytes as Kafka writes them; a leading hyphen would look like an option."""
    return "L" + base64.urlsafe_b64encode(number).decode().rstrip("=")[1:]


def security_of(listener: Listener, passwords: Mapping[str, str]) -> dict[str, str]:
    """The settings that make one listener ask for passwords and show its certificate."""
    settings: dict[str, str] = {}
    if listener.asks_for_password:
        accounts = " ".join(f'user_{user}="{word}"' for user, word in passwords.items())
        modules = {
            "PLAIN": f"plain.PlainLoginModule required {accounts};",
            "SCRAM-SHA-256": "scram.ScramLoginModule required;",
            "SCRAM-SHA-512": "scram.ScramLoginModule required;",
        }
        settings["sasl.enabled.mechanisms"] = ",".join(_MECHANISMS)
        for mechanism in _MECHANISMS:
            settings[f"{mechanism.lower()}.sasl.jaas.config"] = (
                f"org.apache.kafka.common.security.{modules[mechanism]}"
            )
    if listener.certificate is not None:
        settings["ssl.keystore.type"] = "PEM"
        settings["ssl.keystore.location"] = str(listener.certificate.both)
    if listener.client_authority is not None:
        settings["ssl.client.auth"] = "required"
        settings["ssl.truststore.type"] = "PEM"
        settings["ssl.truststore.location"] = str(listener.client_authority)
    prefix = f"listener.name.{listener.name.lower()}"
    return {f"{prefix}.{name}": value for name, value in settings.items()}


def _format(data_dir: Path, endpoint: KafkaEndpoint) -> None:
    """Make the broker's files, with its users in them.

    Raises:
        ServiceFailed: With what the tool printed.
    """
    tool = ["kafka.tools.StorageTool", "format", "--config", "server.properties"]
    tool += ["--cluster-id", endpoint.cluster]
    for user, password in endpoint.passwords.items():
        for mechanism in _MECHANISMS[1:]:
            tool += ["--add-scram", f"{mechanism}=[name={user},password={password}]"]
    # Everybody could read the passwords in a command.
    arguments = data_dir / "format.arguments"
    _write_secret(arguments, "\n".join(f'"{each}"' for each in tool))
    done = subprocess.run(
        [*_java_command(data_dir, _QUICK_START), f"@{arguments}"],
        cwd=data_dir,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    arguments.unlink()
    if done.returncode != 0:
        raise ServiceFailed(Kafka.name, f"its files could not be made:\n{done.stdout}")


def _java_command(data_dir: Path, options: Sequence[str]) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={(data_dir / 'log4j2.properties').as_uri()}"
    jars = str(cache_dir() / _directory() / "*")
    return [str(_java() / "bin" / "java"), *options, logging, "-cp", jars]


def _java() -> Path:
    found = java.find()
    if found is None:
        raise ServiceUnavailable(Kafka.name, f"install Java {java.MINIMUM} or later")
    return found.home


def _directory() -> str:
    return f"kafka-{_VERSION}"


def _require_free(endpoint: KafkaEndpoint) -> None:
    if lost := _lost(endpoint):
        names = ", ".join(f"{LOOPBACK}:{port}" for port in lost)
        raise ServiceFailed(Kafka.name, f"somebody else listens at its address {names}")


def _lost(endpoint: KafkaEndpoint) -> list[int]:
    return [port for port in endpoint.taken.values() if is_listening(port)]


def _joined(addresses: Mapping[str, Address]) -> str:
    return ",".join(f"{name}://{host}:{port}" for name, (host, port) in addresses.items())


def _escaped(value: str) -> str:
    """A value as Java reads it from a file of properties."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _kept(file: Path, make: Callable[[], str]) -> str:
    """What the file holds; made now if there is none."""
    if not file.exists():
        _write_secret(file, make())
    return file.read_text()


def _write_secret(file: Path, text: str) -> None:
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(text)
