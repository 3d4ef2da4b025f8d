"""Keeps credentials out of what is printed.

No layer puts a secret into an error on purpose. This is for texts that others wrote: a client
library that quotes a URL, a bug that prints a variable, an address typed with a password in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final

from laminar_dagster.config.variables import HIDDEN

# Hiding shorter values would also hide ordinary words.
_SHORTEST: Final = 6
_SECRET_NAME: Final = re.compile(
    r"secret|passw(or)?d|passphrase|token|credential|signature"
    r"|(access|api|private|account)[-_]?key",
    re.IGNORECASE,
)
# The name of something that locates or names a secret, and is not one itself.
_NOT_ITSELF: Final = re.compile(r"_(file|path|uri|url|endpoint|name)$", re.IGNORECASE)
# A password may hold a '/', after which the rest of it looks like a path.
_USER_INFO: Final = re.compile(r"(://)(?:[^\s/?#]*|[^\s/?#:@]*:\S*)(@)")
_QUOTED_USER_INFO: Final = re.compile(r"(%3A%2F%2F)(?:(?!%2F)\S)*(%40)", re.IGNORECASE)
# The lookbehind and the possessive ``++`` keep this from backtracking.
_PARAMETER: Final = re.compile(r"(?<![\w.-])([\w.-]++)=([^\s&;,'\"]+)")
# The patterns take quadratic time on a hostile text; nobody reads a line as long as this.
_LONGEST_LINE: Final = 4096


def redact(text: str) -> str:
    """A text without the credentials in it, as far as they can be recognised.

    Credentials are: whatever stands before the ``@`` of an address, the value of a parameter that
    is named like a secret, and the value of any environment variable that is named so.
    """
    for secret in _secrets_of_environment():
        text = text.replace(secret, HIDDEN)
    return "\n".join(map(_redact_line, text.split("\n")))


def _redact_line(line: str) -> str:
    if len(line) > _LONGEST_LINE:
        # Cut between words: a secret cut in half would not be recognised.
        line = line[:_LONGEST_LINE].rpartition(" ")[0] + " …"
    for pattern in (_USER_INFO, _QUOTED_USER_INFO):
        line = pattern.sub(rf"\g<1>{HIDDEN}\g<2>", line)
    return _PARAMETER.sub(_hide_parameter, line)


def _hide_parameter(found: re.Match[str]) -> str:
    return f"{found[1]}={HIDDEN}" if _SECRET_NAME.search(found[1]) else found[0]


def _secrets_of_environment() -> Iterator[str]:
    found = {
        value
        for name, value in os.environ.items()
        if len(value) >= _SHORTEST and _SECRET_NAME.search(name) and not _NOT_ITSELF.search(name)
    }
    # The longest first: one may be part of another.
    return iter(sorted(found, key=len, reverse=True))
