"""Secrets, kept out of what is quoted by others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_SHORTEST_SECRET: Final = 6


def conceal(text: str, secrets: Iterable[str | None], public: str) -> str:
    """A text without the secrets.

    Args:
        text: Such as a server's message, which may quote anything.
        secrets: Passwords; None for one that is not set.
        public: What is known anyway. A password that is also the user's name says nothing.
    """
    for secret in secrets:
        if secret and len(secret) >= _SHORTEST_SECRET and secret not in public:
            text = text.replace(secret, "***")
    return text
