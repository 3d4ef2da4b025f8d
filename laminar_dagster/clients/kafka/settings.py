"""The settings of librdkafka that every client of a cluster needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

RECONNECT: Final = {"reconnect.backoff.ms": "100", "reconnect.backoff.max.ms": "30000"}

_DEFAULTS: Final = {
    "client.id": "laminar",
    **RECONNECT,
    # It says the same at every attempt to connect; the last of it is in our error.
    "log_level": "0",
}
_SECRET: Final = re.compile(r"password|secret|\.key|\.pem|token|jaas|username")


def client_settings(bootstrap_servers: str, properties: Mapping[str, str]) -> dict[str, str]:
    """What is needed to reach a cluster.

    Args:
        bootstrap_servers: Where it is.
        properties: Of the author's, see ``options.pass_through``.
    """
    return {"bootstrap.servers": bootstrap_servers, **_DEFAULTS, **properties}


def without_secrets(text: str, settings: Mapping[str, str]) -> str:
    """A text of librdkafka that may quote a setting's value."""
    for name, value in settings.items():
        if value and _SECRET.search(name):
            text = text.replace(value, "***")
    return text
