"""Opens an object store by its URL, whose scheme names the plug-in."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.plugins.declarations import StoreConnector
from laminar_dagster.plugins.registry import known_names, use

WHERE: Final = "store URL"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
CREDENTIALS: Final = "leave them to the environment, a profile or a role"


def open_store(url: str, base: Path = Path()) -> ObjectStore:
    """The store at an address. Sends no request yet, but creates a local store's folder.

    Args:
        base: Where a relative path begins.
        url: ``file:///path``, a plain path, or
            ``s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=us-east-1``, where the
            prefix and the options may be left out.

    Raises:
        InvalidConfig: It is not such an address, or holds credentials; says which part is wrong
            without repeating the address, which may hold a secret. Or the folder's path is a file.
        StoreUnavailable, AuthFailed, ServiceFailed: The folder of a local store cannot be made.
    """
    folder = local_folder(url, base)
    scheme = "file" if folder is not None else url_parts(url).scheme
    return use(StoreConnector, scheme, {}, WHERE, lambda store: store.open(url, base))


def local_folder(url: str, base: Path = Path()) -> Path | None:
    """The absolute path of a local store, without making it; None for a store elsewhere.

    Raises:
        InvalidConfig: As ``open_store``.
    """
    if not url.strip():
        raise InvalidConfig(WHERE, "it is empty", "use file:///path or s3://bucket/prefix")
    if not _SCHEME.match(url):
        return Path(os.path.abspath(base / os.path.expanduser(url)))
    parts = url_parts(url)
    if parts.scheme != "file":
        return None
    if parts.netloc not in ("", "localhost"):
        raise InvalidConfig(WHERE, "a file: URL with a host", "use three slashes: file:///path")
    if parts.query:
        raise InvalidConfig(WHERE, "a file: URL takes no options", "write %3F for a '?' in a name")
    if not parts.path:
        raise InvalidConfig(WHERE, "it has no path", "use file:///path")
    # surrogateescape: a file name that is not UTF-8 must be kept byte for byte.
    return Path(os.path.abspath(unquote(parts.path, errors="surrogateescape")))


def url_parts(url: str) -> SplitResult:
    """The parts of a URL whose scheme some store has, and in which no secret is.

    Raises:
        InvalidConfig: It is no such URL. Does not repeat it.
    """
    scheme, colon, rest = url.partition(":")
    schemes = known_names(StoreConnector)
    if scheme.lower() not in schemes:
        nearest = most_similar(scheme.lower(), schemes)
        raise InvalidConfig(WHERE, f"there is no scheme {scheme!r}", f"use {nearest}://")
    if not rest.startswith("//"):
        raise InvalidConfig(WHERE, f"'{scheme}{colon}' must be followed by '//'")
    try:
        parts = urlsplit(url)
    except ValueError:
        # The exception's own text repeats the address.
        raise InvalidConfig(WHERE, "it cannot be taken apart") from None
    # For S3, a ':' too: a secret that contains a slash ends the host part before its '@'.
    if "@" in parts.netloc or (parts.scheme == "s3" and ":" in parts.netloc):
        raise InvalidConfig(WHERE, "it holds credentials", CREDENTIALS)
    if parts.fragment:
        raise InvalidConfig(WHERE, "it has a '#'", "write %23 for a '#' in a name")
    return parts


def most_similar(word: str, choices: Iterable[str]) -> str:
    """The choice most similar to a word; all choices, joined, if none is similar."""
    known = list(choices)
    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=0.3)), "|".join(known))
