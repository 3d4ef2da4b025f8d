"""Reading objects from S3: whole, in ranges, and never spliced from two versions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from botocore.exceptions import ClientError, HTTPClientError, IncompleteReadError

from laminar_dagster.core.errors import MalformedDocument, StoreUnavailable
from laminar_dagster.stores.read_back import ONCE, Backoff
from laminar_dagster.stores.s3_errors import reported, status_of
from laminar_dagster.stores.side_by_side import in_order

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef, GetObjectRequestTypeDef

PARTS_AT_ONCE: Final = 8

# Retried here: the client's own retries do not cover reading the body.
_BROKEN_BODY: Final = (HTTPClientError, IncompleteReadError)


@dataclass(frozen=True, slots=True)
class _Opened:
    """The size and version from a reply's headers; the content too if it is at most one part."""

    size: int
    version: str
    data: bytes | None


class _Changed(Exception):
    """The object was replaced while its parts were read."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads objects of one bucket through a client."""

    client: S3Client
    store: str
    bucket: str
    part_size: int
    backoff: Backoff = ONCE

    def read(self, key: str, name: str, limit: int | None) -> tuple[bytes, str]:
        """The content and version of an object.

        Args:
            key: Its key, for errors.
            name: Its key in the bucket.
            limit: The most bytes it may have.
        """
        with contextlib.closing(self.parts(key, name, limit)) as parts:
            pieces: list[bytes] = []
            current = ""
            for start, piece, version in parts:
                if start == 0:
                    pieces.clear()
                    current = version
                pieces.append(piece)
            return b"".join(pieces), current

    def parts(
        self, key: str, name: str, limit: int | None = None
    ) -> Generator[tuple[int, bytes, str]]:
        """The object in parts: the offset and bytes of each, and the object's version.

        Restarts at offset 0 when the object was replaced meanwhile; discard the parts before that.
        """
        for pause in self.backoff.pauses():
            try:
                yield from self._parts(key, name, limit)
                return
            except _Changed as error:
                if pause is None:
                    reason = f"{key} changes while it is read"
                    raise StoreUnavailable(self.store, reason) from error
                time.sleep(pause)

    def range(self, key: str, name: str, start: int, length: int) -> bytes:
        """The bytes of a range; empty past the object's end."""
        if length == 0:
            with self._reported(key):
                self.client.head_object(Bucket=self.bucket, Key=name)
            return b""
        with self._reported(key):
            try:
                return self._range(name, start, length, None)
            except ClientError as error:
                if status_of(error) == 416:
                    return b""
                raise

    def _parts(self, key: str, name: str, limit: int | None) -> Generator[tuple[int, bytes, str]]:
        with self._reported(key):
            opened = self._open(key, name, limit)
        if opened.data is not None:
            yield 0, opened.data, opened.version
            return

        def fetch(start: int) -> tuple[int, bytes, str]:
            length = min(self.part_size, opened.size - start)
            try:
                piece = self._range(name, start, length, opened.version)
            except ClientError as error:
                if status_of(error) in (412, 416):
                    raise _Changed from error
                raise
            if len(piece) != length:
                raise _Changed
            return start, piece, opened.version

        starts = range(0, opened.size, self.part_size)
        with (
            self._reported(key),
            contextlib.closing(in_order(fetch, starts, workers=PARTS_AT_ONCE)) as pieces,
        ):
            yield from pieces

    def _open(self, key: str, name: str, limit: int | None) -> _Opened:
        def wanted(size: int) -> bool:
            if limit is not None and size > limit:
                reason = f"it has {size} bytes, more than the {limit} allowed"
                raise MalformedDocument(key, reason)
            return size <= self.part_size

        reply, data = self._get({"Bucket": self.bucket, "Key": name}, wanted)
        return _Opened(reply["ContentLength"], reply["ETag"], data)

    def _range(self, name: str, start: int, length: int, version: str | None) -> bytes:
        request: GetObjectRequestTypeDef = {
            "Bucket": self.bucket,
            "Key": name,
            "Range": f"bytes={start}-{start + length - 1}",
        }
        if version is not None:
            request["IfMatch"] = version
        reply, data = self._get(request, lambda _: True)
        assert data is not None
        # Some servers ignore the range and send the whole object.
        return data if reply.get("ContentRange") else data[start : start + length]

    def _get(
        self, request: GetObjectRequestTypeDef, wanted: Callable[[int], bool]
    ) -> tuple[GetObjectOutputTypeDef, bytes | None]:
        """A reply, and its body if ``wanted`` accepts its size; None otherwise."""
        for pause in self.backoff.pauses():
            reply = self.client.get_object(**request)
            try:
                with contextlib.closing(reply["Body"]) as body:
                    return reply, body.read() if wanted(reply["ContentLength"]) else None
            except _BROKEN_BODY:
                if pause is None:
                    raise
                time.sleep(pause)
        raise AssertionError("pauses() ends with None")

    def _reported(self, key: str) -> contextlib.AbstractContextManager[None]:
        return reported(store=self.store, bucket=self.bucket, key=key)
