"""Compares and classifies the hosts of servers."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from typing import Final

_LOOPBACK: Final = "localhost"


def is_loopback(hosts: str) -> bool:
    """Whether all of several hosts, separated by commas, are this machine or a socket on it."""
    return all(_is_here(host.strip()) for host in hosts.split(","))


def same_spelling(host: str, port: str | int) -> str:
    """A canonical ``host:port`` for all spellings of a server; for a socket, its path."""
    host = host.strip()
    if host.startswith(("/", "@")):
        return f"{host.rstrip('/')}:{port}"
    host = host.removeprefix("[").removesuffix("]").rstrip(".").lower()
    return f"{_LOOPBACK if _is_here(host) else host}:{port}"


def _is_here(host: str) -> bool:
    if host == _LOOPBACK or host.startswith(("/", "@")):
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False
