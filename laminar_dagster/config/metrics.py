"""The ``metrics`` section of a ``pipeline.yml``: where measurements go."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

LOOPBACK: Final = "127.0.0.1"

_ADDRESS: Final = re.compile(r"(?:(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):)?(\d{1,5})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """A host and port to listen on; port 0 is any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        """As it is written in an address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class MetricsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where measurements go; nowhere by default.

    Attributes:
        prometheus: Where ``laminar run`` is scraped: a port of this machine's own address, or
            ``host:port``.
        otlp: Where they are pushed: the address of a collector that takes OTLP over HTTP.
    """

    prometheus: int | str | None = None
    otlp: Annotated[str, Meta(min_length=1)] | None = None

    def __post_init__(self) -> None:
        """Refuse what is no address."""
        if self.prometheus is not None:
            parse_listen(self.prometheus)
        if self.otlp is not None:
            _require_url(self.otlp)

    @property
    def listen(self) -> ListenAddress | None:
        """``prometheus`` as an address."""
        return None if self.prometheus is None else parse_listen(self.prometheus)

    @property
    def endpoint(self) -> str | None:
        """The address that OTLP metrics are pushed to, below ``otlp``."""
        return None if self.otlp is None else f"{self.otlp.rstrip('/')}/v1/metrics"


def parse_listen(value: int | str) -> ListenAddress:
    """Read where to listen: ``9464``, ``127.0.0.1:9464`` or ``[::1]:9464``.

    Raises:
        ValueError: It is none.
    """
    found = _ADDRESS.fullmatch(str(value).strip()) if not isinstance(value, bool) else None
    if not found or int(found[2]) > 65_535:
        raise ValueError(f"{str(value)[:80]!r} is not a port or an address such as 127.0.0.1:9464")
    return ListenAddress((found[1] or LOOPBACK).strip("[]"), int(found[2]))


def _require_url(text: str) -> None:
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment:
        raise ValueError("`otlp` is not an address such as http://127.0.0.1:4318")
    if url.username or url.password:
        raise ValueError("`otlp` holds credentials: give them as OTEL_EXPORTER_OTLP_HEADERS")
    # Raises a ValueError where it is none.
    _ = url.port
