"""The librdkafka settings that every client of a cluster needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

RECONNECT: Final = {"reconnect.backoff.ms": "100", "reconnect.backoff.max.ms": "30000"}

_DEFAULTS: Final = {
    "client.id": "laminar",
    **RECONNECT,
    # It logs the same at every attempt to connect; our error has its last message.
    "log_level": "0",
}
_SECRET: Final = re.compile(r"password|secret|\.key|\.pem|token|jaas|username")


def client_settings(bootstrap_servers: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The settings to reach a cluster.

    Args:
        bootstrap_servers: The addresses of some brokers.
        properties: The author's properties, see ``options.pass_through``.
    """
    return {"bootstrap.servers": bootstrap_servers, **_DEFAULTS, **properties}


def without_secrets(text: str, settings: Mapping[str, str]) -> str:
    """A text of librdkafka without the values of secret settings that it may quote."""
    for name, value in settings.items():
        if value and _SECRET.search(name):
            text = text.replace(value, "***")
    return text
