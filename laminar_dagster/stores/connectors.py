"""Declares the package's own stores, by the schemes of their URLs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote

from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.plugins import Extra, StoreConnector
from laminar_dagster.stores.local import LocalStore
from laminar_dagster.stores.url import CREDENTIALS, WHERE, local_folder, most_similar, url_parts

_S3_OPTIONS: Final = ("endpoint", "region")


def _open_folder(url: str, base: Path) -> ObjectStore:
    folder = local_folder(url, base)
    assert folder is not None
    return LocalStore(folder)


def _open_s3(url: str, _: Path) -> ObjectStore:
    # Imported here, so that a local store does not need the S3 client.
    from laminar_dagster.stores.s3 import S3Store

    parts = url_parts(url)
    if not parts.netloc:
        raise InvalidConfig(WHERE, "it names no bucket", "use s3://bucket/prefix")
    options: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _S3_OPTIONS:
            if re.search("secret|password|token|key", name, re.IGNORECASE):
                raise InvalidConfig(WHERE, f"option {name!r} looks like a credential", CREDENTIALS)
            nearest = most_similar(name, _S3_OPTIONS)
            raise InvalidConfig(WHERE, f"there is no option {name!r}", f"use {nearest}=")
        if name in options:
            raise InvalidConfig(WHERE, f"option {name!r} is given twice")
        if not value:
            raise InvalidConfig(WHERE, f"option {name!r} is empty")
        options[name] = value
    return S3Store(
        parts.netloc,
        unquote(parts.path),
        endpoint_url=options.get("endpoint"),
        region=options.get("region"),
    )


FILE: Final = StoreConnector(interface=1, open=_open_folder)
S3: Final = StoreConnector(interface=1, open=_open_s3, extras=(Extra("s3", ("boto3",)),))
