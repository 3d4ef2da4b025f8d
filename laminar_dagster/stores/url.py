"""Open an object store by its URL."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.stores.local import LocalStore

_WHERE: Final = "store URL"
_SCHEMES: Final = ("file", "s3")
_S3_OPTIONS: Final = ("endpoint", "region")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_CREDENTIALS: Final = "leave them to the environment, a profile or a role"


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
    return _open_s3(_parts(url)) if folder is None else LocalStore(folder)


def local_folder(url: str, base: Path = Path()) -> Path | None:
    """The absolute path of a local store, without making it; None for a store elsewhere.

    Raises:
        InvalidConfig: As ``open_store``.
    """
    if not url.strip():
        raise InvalidConfig(_WHERE, "it is empty", "use file:///path or s3://bucket/prefix")
    if not _SCHEME.match(url):
        return Path(os.path.abspath(base / os.path.expanduser(url)))
    parts = _parts(url)
    if parts.scheme != "file":
        return None
    if parts.netloc not in ("", "localhost"):
        raise InvalidConfig(_WHERE, "a file: URL with a host", "use three slashes: file:///path")
    if parts.query:
        raise InvalidConfig(_WHERE, "a file: URL takes no options", "write %3F for a '?' in a name")
    if not parts.path:
        raise InvalidConfig(_WHERE, "it has no path", "use file:///path")
    # surrogateescape: a file name that is not UTF-8 must be kept byte for byte.
    return Path(os.path.abspath(unquote(parts.path, errors="surrogateescape")))


def _parts(url: str) -> SplitResult:
    scheme, colon, rest = url.partition(":")
    if scheme.lower() not in _SCHEMES:
        nearest = _nearest(scheme.lower(), _SCHEMES)
        raise InvalidConfig(_WHERE, f"there is no scheme {scheme!r}", f"use {nearest}://")
    if not rest.startswith("//"):
        raise InvalidConfig(_WHERE, f"'{scheme}{colon}' must be followed by '//'")
    try:
        parts = urlsplit(url)
    except ValueError:
        # The exception's own text repeats the address.
        raise InvalidConfig(_WHERE, "it cannot be taken apart") from None
    # For S3, a ':' too: a secret that contains a slash ends the host part before its '@'.
    if "@" in parts.netloc or (parts.scheme == "s3" and ":" in parts.netloc):
        raise InvalidConfig(_WHERE, "it holds credentials", _CREDENTIALS)
    if parts.fragment:
        raise InvalidConfig(_WHERE, "it has a '#'", "write %23 for a '#' in a name")
    return parts


def _open_s3(parts: SplitResult) -> ObjectStore:
    # Imported here, so that a local store does not need the S3 client.
    from laminar_dagster.stores.s3 import S3Store

    if not parts.netloc:
        raise InvalidConfig(_WHERE, "it names no bucket", "use s3://bucket/prefix")
    options: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _S3_OPTIONS:
            if re.search("secret|password|token|key", name, re.IGNORECASE):
                raise InvalidConfig(
                    _WHERE, f"option {name!r} looks like a credential", _CREDENTIALS
                )
            nearest = _nearest(name, _S3_OPTIONS)
            raise InvalidConfig(_WHERE, f"there is no option {name!r}", f"use {nearest}=")
        if name in options:
            raise InvalidConfig(_WHERE, f"option {name!r} is given twice")
        if not value:
            raise InvalidConfig(_WHERE, f"option {name!r} is empty")
        options[name] = value
    return S3Store(
        parts.netloc,
        unquote(parts.path),
        endpoint_url=options.get("endpoint"),
        region=options.get("region"),
    )


def _nearest(word: str, choices: Iterable[str]) -> str:
    """The choice most similar to a word; all choices, joined, if none is similar."""
    known = list(choices)
    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=0.3)), "|".join(known))
