"""Client of a schema registry with Confluent's protocol, such as Karapace or Apicurio.

The schema of an id never changes, so it is requested once. Only a few requests of the protocol are
needed, so no client library is used: those bring a web framework to every executor.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlsplit

from laminar_dagster.clients.hanging_up import hung_up_after
from laminar_dagster.clients.transience import PASSING_STATUS, is_passing, shown
from laminar_dagster.core.errors import (
    AuthFailed,
    InvalidConfig,
    RegistryUnavailable,
    ServiceFailed,
)

if TYPE_CHECKING:
    import urllib3.connection

_SUBJECT_NOT_FOUND: Final = 40401
_VERSION_NOT_FOUND: Final = 40402
_SCHEMA_NOT_FOUND: Final = 40403
_NOT_FOUND: Final = frozenset({_SUBJECT_NOT_FOUND, _VERSION_NOT_FOUND, _SCHEMA_NOT_FOUND})
_LARGEST_ID: Final = 2**31 - 1
_MAX_REFERENCES: Final = 256
# Registries store schemas in Kafka messages, which are far smaller.
_LARGEST_ANSWER: Final = 8 * 2**20
_INCOMPATIBLE: Final = 409
_INVALID: Final = 422
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_CONTENT: Final = "application/vnd.schemaregistry.v1+json"


class UnknownSchema(ValueError):
    """The registry has no such schema."""


class RefusedSchema(ValueError):
    """The registry refuses a schema: it is invalid, or not compatible with the latest one."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference of one schema to another.

    Attributes:
        name: The name in the referring schema: in Avro a type, in Protobuf the path of an import.
    """

    name: str
    schema: RegisteredSchema


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema in the registry.

    Attributes:
        kind: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        text: The JSON of an Avro or JSON schema, or the text of a ``.proto`` file.
        schema_id: Its id.
    """

    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    schema_id: int = 0

    def in_order(self) -> list[Reference]:
        """All schemas that it refers to, directly or not, each once and after those it needs."""
        found: dict[str, Reference] = {}
        _collect(self, found)
        return list(found.values())


def _collect(schema: RegisteredSchema, found: dict[str, Reference]) -> None:
    for each in schema.references:
        # Visit each once: with shared references, the number of paths doubles at each level.
        if each.name not in found:
            _collect(each.schema, found)
            found.setdefault(each.name, each)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to retry while a registry is unavailable.

    Attributes:
        first_pause: Before the second try, in seconds; the pause doubles, up to ``longest_pause``.
        patience: After this many seconds in total, no further try is made.
        timeout: How long one try may take, from the first byte to the last.
        whole: How long a schema may take with all that it refers to.
    """

    first_pause: float = 0.1
    longest_pause: float = 3.0
    patience: float = 10.0
    timeout: float = 5.0
    whole: float = 60.0


@dataclass
class SchemaRegistry:
    """A registry and a cache of its schemas. The cache is not pickled.

    Attributes:
        url: Its address. A user and a password within it are used, and never shown.
        ca_file: Certificates to trust instead of the system's.
    """

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    ca_file: str = ""
    retry: RetryPolicy = field(default=RetryPolicy(), repr=False)
    _schemas: dict[int, RegisteredSchema] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Move the credentials out of the address."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidConfig("schema registry", "its url is none of http or https")
        # Kept as written, including a port or the brackets of an IPv6 address.
        place = parts.netloc.rpartition("@")[2]
        self.user = self.user or unquote(parts.username or "")
        self.password = self.password or unquote(parts.password or "")
        self.url = f"{parts.scheme}://{place}{parts.path.rstrip('/')}"
        self._forget()

    def schema(self, schema_id: int) -> RegisteredSchema:
        """The schema of an id.

        Raises:
            UnknownSchema: The registry does not know the id.
            RegistryUnavailable: The registry was unavailable throughout all retries.
            AuthFailed: The registry refuses the credentials.
        """
        known = self._schemas.get(schema_id)
        if known is None:
            reason = f"schema id {schema_id} is not in the registry"
            if not 0 <= schema_id <= _LARGEST_ID:
                raise UnknownSchema(reason)
            answer = self._ask(f"/schemas/ids/{schema_id}", reason, "schema")
            known = self._resolving().resolved({**answer, "id": schema_id}, ())
            self._schemas[schema_id] = known
        return known

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest schema of a subject; not cached.

        Raises:
            UnknownSchema: There is no such subject.
            RegistryUnavailable: The registry was unavailable throughout all retries.
            AuthFailed: The registry refuses the credentials.
        """
        resolving = self._resolving()
        return resolving.resolved(resolving.version(subject, "latest"), ())

    def register(self, subject: str, kind: str, text: str) -> int:
        """Register a schema under a subject, and return its id. Idempotent.

        Raises:
            RefusedSchema: It is invalid, or not compatible with the latest one.
            RegistryUnavailable: The registry was unavailable throughout all retries.
            AuthFailed: The registry refuses the credentials.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions"
        answer = self._ask(path, f"subject {subject} is not in the registry", "id", (kind, text))
        return int(answer["id"])

    def find(self, subject: str, kind: str, text: str) -> int:
        """The id of a schema that is registered under a subject.

        Raises:
            UnknownSchema: It is not registered there.
            RefusedSchema: It is invalid.
            RegistryUnavailable: The registry was unavailable throughout all retries.
            AuthFailed: The registry refuses the credentials.
        """
        path = f"/subjects/{quote(subject, safe='')}"
        missing = f"subject {subject} does not have this schema"
        return int(self._ask(path, missing, "id", (kind, text))["id"])

    def check(self, subject: str, kind: str, text: str) -> None:
        """Check whether a subject would accept a schema. Registers nothing.

        Raises:
            RefusedSchema: The subject would refuse it.
            RegistryUnavailable: The registry was unavailable throughout all retries.
            AuthFailed: The registry refuses the credentials.
        """
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/latest"
        try:
            answer = self._ask(path, "", "is_compatible", (kind, text))
        except UnknownSchema:
            # The first schema of a subject is compatible: there is none before it.
            return
        if answer["is_compatible"] is not True:
            raise RefusedSchema(f"subject {subject}: it is not compatible with the latest one")

    def _resolving(self) -> _Resolving:
        until = time.monotonic() + self.retry.whole

        def ask(subject: str, version: str) -> dict[str, Any]:
            path = f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}"
            missing = f"subject {subject}, version {version}, is not in the registry"
            if time.monotonic() >= until:
                reason = f"a schema and all that it needs took longer than {self.retry.whole:g} s"
                raise RegistryUnavailable(self.url, reason)
            return self._ask(path, missing, "schema", until=until)

        return _Resolving(self.url, ask)

    def _ask(
        self,
        path: str,
        if_missing: str,
        member: str,
        schema: tuple[str, str] | None = None,
        until: float = math.inf,
    ) -> dict[str, Any]:
        """Send a request, with retries, until the answer has a member.

        Args:
            path: The path of the request.
            if_missing: The error's text if the registry has no such thing.
            member: The member that the answer must have.
            schema: The kind and the text of a schema to send; None sends none.
            until: The deadline, besides ``patience``.
        """
        deadline = min(until, time.monotonic() + self.retry.patience)
        pause = self.retry.first_pause
        while True:
            status, body, reason = self._try(path, schema, deadline)
            if status == 200:
                return self._answer(body, member)
            if status in (401, 403):
                raise AuthFailed(f"schema registry {self.url}", f"it answered {status}")
            if status == 404 and _error_code(body) in _NOT_FOUND:
                raise UnknownSchema(if_missing)
            if schema and status in (_INCOMPATIBLE, _INVALID):
                raise RefusedSchema(_message(body) or reason)
            if status and status not in PASSING_STATUS:
                problem = f"it answered {status} to {path}; is this a schema registry's address?"
                raise InvalidConfig(f"schema registry {self.url}", problem)
            # Jittered, so that not all executors retry at the same moment.
            wait = pause * random.uniform(0.5, 1.0)
            if time.monotonic() + wait >= deadline:
                raise RegistryUnavailable(self.url, reason)
            time.sleep(wait)
            pause = min(2 * pause, self.retry.longest_pause)

    def _try(
        self, path: str, schema: tuple[str, str] | None, deadline: float
    ) -> tuple[int, bytes, str]:
        """Send a request once; return status (0 without an answer), body, and what went wrong."""
        import ssl

        import urllib3

        headers = {"Accept": _ACCEPT}
        if self.user or self.password:
            headers.update(urllib3.make_headers(basic_auth=f"{self.user}:{self.password}"))
        body = None
        if schema:
            headers["Content-Type"] = _CONTENT
            body = json.dumps({"schemaType": schema[0], "schema": schema[1]}).encode()
        timeout = max(0.1, min(self.retry.timeout, deadline - time.monotonic()))
        begun = time.monotonic()
        try:
            status, answer = self._exchange(
                "POST" if schema else "GET", path, headers, body, timeout
            )
        except ssl.SSLCertVerificationError as error:
            raise AuthFailed(f"schema registry {self.url}", f"TLS: {error}") from None
        except Exception as error:
            if time.monotonic() - begun >= timeout:
                return 0, b"", f"timed out: no whole answer within {timeout:.3g} s"
            if isinstance(error, ssl.SSLError):
                raise RegistryUnavailable(self.url, f"TLS: {error}") from None
            if not _is_passing(error):
                raise ServiceFailed(f"schema registry {self.url}", shown(error)) from None
            return 0, b"", _plain(error)
        if len(answer) > _LARGEST_ANSWER:
            problem = f"its answer to {path} is larger than {_LARGEST_ANSWER >> 20} MiB"
            raise InvalidConfig(f"schema registry {self.url}", problem)
        return status, answer, f"it answered {status}"

    def _exchange(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None, timeout: float
    ) -> tuple[int, bytes]:
        """Exchange one request; return the status and at most one byte more than is allowed."""
        begun = time.monotonic()
        with closing(self._connection(timeout)) as connection:
            connection.connect()
            # A connection that was closed at once has no socket any more.
            line = connection.sock.fileno() if connection.sock else -1
            left = max(0.0, timeout - (time.monotonic() - begun))
            with hung_up_after(line, left) as over:
                prefix = urlsplit(self.url).path
                connection.request(
                    method,
                    f"{prefix}{path}",
                    body,
                    headers,
                    preload_content=False,
                    decode_content=False,
                )
                answer = connection.getresponse()
                data = answer.read(_LARGEST_ANSWER + 1)
            if over.is_set():
                raise TimeoutError
            if len(data) <= _LARGEST_ANSWER and answer.length_remaining:
                raise ConnectionResetError(f"it hung up after {len(data)} bytes of its answer")
            return answer.status, data

    def _connection(self, timeout: float) -> urllib3.connection.HTTPConnection:
        """A new connection for each request: there are few, and a pool has no deadline."""
        from urllib3.connection import HTTPConnection, HTTPSConnection

        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if parts.scheme == "http":
            return HTTPConnection(host, parts.port or 80, timeout=timeout)
        return HTTPSConnection(
            host,
            parts.port or 443,
            timeout=timeout,
            cert_reqs="CERT_REQUIRED",
            ca_certs=self.ca_file or None,
        )

    def _answer(self, body: bytes, member: str) -> dict[str, Any]:
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or answer.get(member) is None:
            raise InvalidConfig(f"schema registry {self.url}", f"its answer holds no {member}")
        return answer

    def _forget(self) -> None:
        self._schemas = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave the cache out of a pickle."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Start with an empty cache."""
        self.__dict__.update(state)
        self._forget()


class _Resolving:
    """Resolves the references of one schema, each once."""

    def __init__(self, url: str, version: Callable[[str, str], dict[str, Any]]) -> None:
        self._url = url
        self.version = version
        self._found: dict[tuple[str, str], RegisteredSchema] = {}

    def resolved(
        self, answer: Mapping[str, Any], above: tuple[tuple[str, str], ...]
    ) -> RegisteredSchema:
        """A schema with all that it refers to.

        Args:
            answer: The registry's answer for the schema.
            above: The schemas that refer to it, the outermost first.

        Raises:
            UnknownSchema: It refers to itself, or to too many schemas.
        """
        references = []
        for name, subject, version in self._references(answer):
            key = (subject, version)
            if key in above:
                raise UnknownSchema(f"subject {key[0]} refers to itself")
            if key not in self._found:
                if len(self._found) + len(above) >= _MAX_REFERENCES:
                    raise UnknownSchema(f"it needs more than {_MAX_REFERENCES} other schemas")
                self._found[key] = self.resolved(self.version(*key), (*above, key))
            references.append(Reference(name, self._found[key]))
        kind = str(answer.get("schemaType") or "AVRO")
        return RegisteredSchema(
            kind, str(answer["schema"]), tuple(references), int(answer.get("id") or 0)
        )

    def _references(self, answer: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
        """The references of a schema: name, subject and version."""
        try:
            for each in answer.get("references") or ():
                yield str(each["name"]), str(each["subject"]), str(each["version"])
        except (KeyError, TypeError):
            problem = "its answer holds references that are none"
            raise InvalidConfig(f"schema registry {self._url}", problem) from None


def _error_code(body: bytes) -> int:
    try:
        answer = json.loads(body)
    except ValueError:
        return 0
    code = answer.get("error_code") if isinstance(answer, dict) else 0
    return code if isinstance(code, int) else 0


def _message(body: bytes) -> str:
    try:
        answer = json.loads(body)
    except ValueError:
        return ""
    return str(answer.get("message") or "")[:500] if isinstance(answer, dict) else ""


def _is_passing(error: Exception) -> bool:
    import urllib3.exceptions as of_client

    if isinstance(error, OSError):
        return is_passing(error)
    return isinstance(
        error,
        of_client.TimeoutError
        | of_client.NewConnectionError
        | of_client.NameResolutionError
        | of_client.ProtocolError
        | of_client.DecodeError
        | of_client.ProxyError,
    )


def _plain(error: Exception) -> str:
    """The text of an error, without the object that the library prints before it."""
    text = str(error)
    return text.rpartition(": ")[2] if ">: " in text or "): " in text else text
