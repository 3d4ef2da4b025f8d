"""Where a server is."""

from __future__ import annotations

import ipaddress
from contextlib import suppress


def is_loopback(hosts: str) -> bool:
    """Whether every host, of those with commas between them, is this machine or a socket on it."""
    return all(_is_here(host.strip()) for host in hosts.split(","))


def _is_here(host: str) -> bool:
    if host == "localhost" or host.startswith(("/", "@")):
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False
