"""Clients of an S3 server: made when first needed, one set per process, never pickled."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import boto3
from botocore.config import Config

from laminar_dagster.core.errors import InvalidConfig

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_DEFAULT_CONNECT_TIMEOUT: Final = 5.0
_DEFAULT_READ_TIMEOUT: Final = 60.0


@dataclass(frozen=True, slots=True)
class S3Settings:
    """How to reach a server. Holds no credentials: those come from boto3's usual chain."""

    endpoint_url: str | None = None
    region: str | None = None
    connect_timeout: float = _DEFAULT_CONNECT_TIMEOUT
    read_timeout: float = _DEFAULT_READ_TIMEOUT
    max_attempts: int = 5
    max_pool_connections: int = 64


@dataclass(frozen=True, slots=True)
class _Clients:
    process: int
    retrying: S3Client
    single: S3Client


class S3Clients:
    """Two clients of one server: one that retries, and one that sends each request once."""

    def __init__(self, settings: S3Settings) -> None:
        """Connect to nothing yet."""
        self._settings = settings
        self._lock = threading.Lock()
        self._clients: _Clients | None = None

    @property
    def retrying(self) -> S3Client:
        """For requests that may be repeated blindly."""
        return self._current().retrying

    @property
    def single(self) -> S3Client:
        """For conditional writes, where each attempt's own outcome has to be known.

        With hidden retries, a refused connection at the end could follow a request that was
        carried out and lost its reply.
        """
        return self._current().single

    def close(self) -> None:
        """Close the connections. The next request opens new ones."""
        with self._lock:
            clients, self._clients = self._clients, None
        if clients is not None and clients.process == os.getpid():
            clients.retrying.close()
            clients.single.close()

    def __getstate__(self) -> dict[str, Any]:
        """The settings alone: connections and credentials stay in their process."""
        return {"settings": self._settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Start without connections."""
        S3Clients.__init__(self, state["settings"])

    def _current(self) -> _Clients:
        clients = self._clients
        if clients is None or clients.process != os.getpid():
            if clients is not None:
                # Forked: the parent's connections would be shared, and its lock may be held.
                self._lock = threading.Lock()
            with self._lock:
                clients = self._clients
                if clients is None or clients.process != os.getpid():
                    clients = self._clients = self._connect()
        return clients

    def _connect(self) -> _Clients:
        settings = self._settings
        session = boto3.session.Session(region_name=settings.region)

        def client(attempts: int) -> S3Client:
            config = Config(
                connect_timeout=settings.connect_timeout,
                read_timeout=settings.read_timeout,
                retries={"mode": "standard", "total_max_attempts": attempts},
                max_pool_connections=settings.max_pool_connections,
                # Many servers other than AWS have no DNS name per bucket.
                s3={"addressing_style": "path" if settings.endpoint_url else "auto"},
                # By default boto3 sends checksums in a trailer, which servers that do not know
                # it refuse or, worse, store as part of the object.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                tcp_keepalive=True,
            )
            try:
                return session.client("s3", endpoint_url=settings.endpoint_url, config=config)
            except ValueError as error:
                raise InvalidConfig("S3 client", str(error)) from error

        return _Clients(os.getpid(), client(settings.max_attempts), client(1))
