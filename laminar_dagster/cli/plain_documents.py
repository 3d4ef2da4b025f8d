"""Stored documents as plain JSON values, nothing left out."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

import msgspec

from laminar_dagster.core.document import Document, checksum


def plain_document(document: Document) -> dict[str, Any]:
    """A document, member by member as it is stored, and its checksum.

    Stored documents leave out what equals its default. A program that reads them should not have
    to know the defaults, so here every member is present.
    """
    plain: dict[str, Any] = _plain(document)
    return plain | {"checksum": checksum(document)}


def plain_record(record: msgspec.Struct) -> dict[str, Any]:
    """A part of a document, member by member."""
    plain: dict[str, Any] = _plain(record)
    return plain


def plain_moment(moment: datetime) -> str:
    """A moment in UTC, as documents write it."""
    return moment.isoformat().replace("+00:00", "Z")


def _plain(value: Any) -> Any:
    match value:
        case msgspec.Struct():
            config = value.__struct_config__
            tag = {config.tag_field: config.tag} if config.tag_field else {}
            names = value.__struct_fields__
            return tag | {name: _plain(getattr(value, name)) for name in names}
        case list() | tuple():
            return [_plain(each) for each in value]
        case dict():
            return {str(name): _plain(each) for name, each in value.items()}
        case datetime():
            return plain_moment(value)
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value
