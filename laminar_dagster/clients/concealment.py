"""Removes secrets from texts of other programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_SHORTEST_SECRET: Final = 6


def conceal(text: str, secrets: Iterable[str | None], public: str) -> str:
    """A text with the secrets replaced.

    Args:
        text: For example a server's message, which may quote anything.
        secrets: Passwords; None for one that is not set.
        public: Texts that are no secret. A password found in them is not replaced.
    """
    for secret in secrets:
        if secret and len(secret) >= _SHORTEST_SECRET and secret not in public:
            text = text.replace(secret, "***")
    return text
