"""Options that Kafka sources and sinks share: librdkafka's properties, and the registry."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from laminar_dagster.clients.hosts import is_loopback
from laminar_dagster.clients.kafka.properties import PASS_THROUGH, problem_with

# Collects a mistake and its remedy.
Refuse = Callable[[str, str], None]

# The names that Kafka allows for topics.
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
# URL options with the secret that is sent there. (SCRAM, in contrast, does not send the secret.)
_SENT_TO: Final = {
    "schema.registry.url": "schema.registry.password",
    f"{PASS_THROUGH}sasl.oauthbearer.token.endpoint.url": (
        f"{PASS_THROUGH}sasl.oauthbearer.client.secret"
    ),
}
_SENDS_SECRETS: Final = frozenset({"PLAIN", "OAUTHBEARER"})
_REGISTRY_URL: Final = re.compile(r"https?://[^@/]+(/|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryOptions:
    """The address of a schema registry, and the credentials for it."""

    url: str
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    ca_location: str = ""


def pass_through(
    given: Mapping[str, str],
    own: frozenset[str],
    fixed: Mapping[str, tuple[str, str]],
    refuse: Refuse,
) -> dict[str, str]:
    """The librdkafka properties in the options, checked.

    Args:
        given: The options below ``kafka.`` in the ``WITH``, without the prefix.
        own: Properties that have an option of their own.
        fixed: Properties that cannot be changed, each with its value and the reason.
        refuse: Collects mistakes.
    """
    found: dict[str, str] = {}
    for name, text in given.items():
        if name in own:
            refuse(f"`{PASS_THROUGH}{name}` has an option of its own", f"write `{name}`")
        elif name in fixed and text != fixed[name][0]:
            value, why = fixed[name]
            refuse(f"`{PASS_THROUGH}{name}` is always {value}", why)
        elif (problem := problem_with(name, text)) is not None:
            refuse(*problem)
        else:
            found[name] = text
    return found


def registry_options(parts: Mapping[str, str], refuse: Refuse) -> RegistryOptions | None:
    """The schema registry in the options; None if there is none.

    Args:
        parts: The options by the fields of ``RegistryOptions``; empty where not given.
        refuse: Collects mistakes.
    """
    url = parts["url"]
    if not url:
        if any(parts.values()):
            refuse("`schema.registry.url` is missing", "its credentials are given")
        return None
    if not _REGISTRY_URL.match(url):
        hint = "credentials go into `schema.registry.username` and `schema.registry.password`"
        refuse("`schema.registry.url` must be an http or https URL without credentials", hint)
        return None
    if bool(parts["username"]) != bool(parts["password"]):
        refuse("`schema.registry.username` and `schema.registry.password` go together", "")
    return RegistryOptions(**parts)


def secrets_in_plain_text(options: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Find secrets that would be sent over a network in plain text.

    Args:
        options: All options in the ``WITH`` of a source or sink.

    Yields:
        The option to change, the problem, and the remedy.
    """
    for name, secret in _SENT_TO.items():
        url = options.get(name, "")
        if url.lower().startswith("http://") and options.get(secret):
            if not is_loopback(urlsplit(url).hostname or ""):
                problem = f"`{secret}` goes to `{name}` over plain http, for everybody to read"
                yield name, problem, "use https://"
    protocol, mechanism = f"{PASS_THROUGH}security.protocol", f"{PASS_THROUGH}sasl.mechanism"
    mechanisms = options.get(mechanism) or options.get(f"{mechanism}s", "")
    hosts = ",".join(
        each.strip().rpartition(":")[0].strip("[]")
        for each in options.get("bootstrap.servers", "").split(",")
    )
    is_plain = options.get(protocol, "").upper() == "SASL_PLAINTEXT"
    if is_plain and mechanisms.upper() in _SENDS_SECRETS and not is_loopback(hosts):
        problem = f"with {mechanisms} and SASL_PLAINTEXT the secret goes out for everybody to read"
        yield protocol, problem, "use SASL_SSL"


def check_topic(name: str, refuse: Refuse) -> None:
    """Refuse a name that Kafka does not allow for a topic."""
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        refuse(f"{name[:80]!r} cannot be a topic's name", "letters, digits, `.`, `_`, `-`")
