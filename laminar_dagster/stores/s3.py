"""An object store on S3, or on a server that speaks it."""

from __future__ import annotations

import contextlib
import io
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final
from urllib.parse import quote, urlencode, urlsplit

from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

from laminar_dagster.core.errors import (
    AuthFailed,
    InvalidConfig,
    InvalidName,
    LaminarError,
    ObjectMissing,
    StoreUnavailable,
)
from laminar_dagster.core.ports import ObjectInfo, VersionedObject
from laminar_dagster.stores.download import whole_file
from laminar_dagster.stores.keys import (
    MAX_KEY_BYTES,
    PROBE_FOLDER,
    check_folder,
    check_key,
    check_prefix,
    is_key,
)
from laminar_dagster.stores.probe import prove_conditions
from laminar_dagster.stores.read_back import ONCE, Backoff, Reply, Written, settle
from laminar_dagster.stores.s3_client import S3Clients, S3Settings
from laminar_dagster.stores.s3_errors import (
    CLIENT_ERRORS,
    code_of,
    reply_to_condition,
    reported,
)
from laminar_dagster.stores.s3_objects import PARTS_AT_ONCE, Reader
from laminar_dagster.stores.side_by_side import read_each

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import PutObjectRequestTypeDef

_MEBIBYTE: Final = 1024 * 1024
_READS_AT_ONCE: Final = 16
# The most that one DeleteObjects request may name.
_DELETE_BATCH: Final = 1000


class S3Store:
    """Objects below a prefix of a bucket. The version of an object is its ETag.

    Credentials come from boto3's usual chain (environment, profile, role); the store never holds
    them. An ``OSError`` of the caller's file in ``put_file`` and ``download`` is not translated.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint_url: str | None = None,
        region: str | None = None,
        connect_timeout: float = 5.0,
        read_timeout: float = 60.0,
        max_attempts: int = 5,
        first_pause: float = 0.1,
        max_pool_connections: int = 64,
        part_size: int = 8 * _MEBIBYTE,
    ) -> None:
        """Describe the store. Nothing is sent before the first call.

        Args:
            bucket: The bucket, which must exist.
            prefix: What all keys of the store begin with; slashes at its ends make no difference.
            endpoint_url: The server, when it is not AWS.
            region: The region; None takes it from boto3's usual chain.
            connect_timeout: Seconds to wait for a connection.
            read_timeout: Seconds to wait for the next bytes of a reply.
            max_attempts: How often a request is sent before giving up.
            first_pause: Seconds before the second attempt; doubles from there, with jitter.
            max_pool_connections: Connections kept open.
            part_size: Objects larger than this move in parts of this size, several at once. S3
                takes no parts below 5 MiB.

        Raises:
            InvalidConfig: The bucket is empty, or the endpoint holds credentials.
            InvalidName: The prefix cannot be the beginning of a key.
        """
        if not bucket or "/" in bucket:
            raise InvalidConfig("bucket", f"{bucket!r} is not the name of a bucket")
        if endpoint_url is not None:
            _check_endpoint(endpoint_url)
        base = prefix.strip("/")
        if base:
            check_key(base)
        self._bucket = bucket
        self._base = f"{base}/" if base else ""
        self._part_size = part_size
        self._backoff = Backoff(attempts=max_attempts, first=first_pause)
        self._settings = S3Settings(
            endpoint_url=endpoint_url,
            region=region,
            connect_timeout=connect_timeout,
            read_timeout=read_timeout,
            max_attempts=max_attempts,
            max_pool_connections=max_pool_connections,
        )
        self._clients = S3Clients(self._settings)

    @property
    def url(self) -> str:
        """The store's address, as ``open_store`` takes it."""
        options = {"endpoint": self._settings.endpoint_url, "region": self._settings.region}
        given = {name: value for name, value in options.items() if value is not None}
        path = quote(self._base.rstrip("/"))
        query = f"?{urlencode(given, safe=':/')}" if given else ""
        return f"s3://{self._bucket}{'/' if path else ''}{path}{query}"

    def __repr__(self) -> str:
        """The store's address."""
        return f"S3Store({self.url!r})"

    def close(self) -> None:
        """Close the connections. The store stays usable: the next call opens new ones."""
        self._clients.close()

    def probe(self) -> None:
        """See ``ObjectStore.probe``."""
        prove_conditions(self)

    # --- writing ----------------------------------------------------------------------------------

    def create(self, key: str, data: bytes) -> None:
        """See ``ObjectStore.create``."""
        self._write_if(key, data, None)

    def replace(self, key: str, data: bytes, expected: str | None) -> None:
        """See ``ObjectStore.replace``."""
        self._write_if(key, data, expected)

    def put(self, key: str, data: bytes | memoryview) -> None:
        """See ``ObjectStore.put``."""
        name = self._name(key)
        if memoryview(data).nbytes > self._part_size:
            self._upload(name, lambda: io.BytesIO(data))
            return
        with self._reported():
            client = self._clients.retrying
            client.put_object(Bucket=self._bucket, Key=name, Body=bytes(data))

    def put_file(self, key: str, path: Path) -> None:
        """See ``ObjectStore.put_file``."""
        self._upload(self._name(key), lambda: open(path, "rb"))

    def _write_if(self, key: str, data: bytes, expected: str | None) -> None:
        name = self._name(key)
        settle(
            key,
            data,
            expected,
            store=self.url,
            send=lambda: self._send(key, name, data, expected),
            read=lambda: self._find(key, name, self._reader_once(), None),
            backoff=self._backoff,
        )

    def _send(self, key: str, name: str, data: bytes, expected: str | None) -> Reply:
        request: PutObjectRequestTypeDef = {"Bucket": self._bucket, "Key": name, "Body": data}
        if expected is None:
            request["IfNoneMatch"] = "*"
        else:
            request["IfMatch"] = expected
        try:
            self._clients.single.put_object(**request)
        except CLIENT_ERRORS as error:
            return reply_to_condition(error, store=self.url, bucket=self._bucket, key=key)
        return Written()

    def _upload(self, name: str, open_content: Callable[[], BinaryIO]) -> None:
        config = TransferConfig(
            multipart_threshold=self._part_size,
            multipart_chunksize=self._part_size,
            max_concurrency=PARTS_AT_ONCE,
        )
        for pause in self._backoff.pauses():
            # Opened anew for each attempt, because a transfer closes its file.
            with open_content() as content, self._reported():
                try:
                    client = self._clients.retrying
                    client.upload_fileobj(content, self._bucket, name, Config=config)
                    return
                except ClientError as error:
                    # NoSuchUpload: the upload was completed, the reply was lost, and the client's
                    # own retry found no upload any more. Upload again.
                    if pause is None or not _is_upload_gone(error):
                        raise
            time.sleep(pause)

    # --- reading ----------------------------------------------------------------------------------

    def read(self, key: str, *, limit: int | None = None) -> bytes:
        """See ``ObjectStore.read``."""
        data, _ = self._reader().read(key, self._name(key), limit)
        return data

    def read_versioned(self, key: str, *, limit: int | None = None) -> VersionedObject | None:
        """See ``ObjectStore.read_versioned``."""
        return self._find(key, self._name(key), self._reader(), limit)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """See ``ObjectStore.read_range``."""
        if start < 0 or length < 0:
            raise ValueError(f"a range of {length} bytes from {start}")
        return self._reader().range(key, self._name(key), start, length)

    def read_many(
        self, keys: Iterable[str], *, limit: int | None = None
    ) -> Iterator[tuple[str, bytes | LaminarError]]:
        """See ``ObjectStore.read_many``."""
        return read_each(partial(self.read, limit=limit), keys, workers=_READS_AT_ONCE)

    def download(self, key: str, path: Path) -> None:
        """See ``ObjectStore.download``."""
        name = self._name(key)
        with contextlib.closing(self._reader().parts(key, name)) as parts:
            first = next(parts)
            with whole_file(path) as file:
                for start, piece, _ in itertools.chain([first], parts):
                    if start == 0:
                        file.seek(0)
                        file.truncate()
                    file.write(piece)

    def _find(
        self, key: str, name: str, reader: Reader, limit: int | None
    ) -> VersionedObject | None:
        try:
            data, version = reader.read(key, name, limit)
        except ObjectMissing:
            return None
        return VersionedObject(data, version)

    def _reader(self) -> Reader:
        with self._reported():
            client = self._clients.retrying
        return Reader(client, self.url, self._bucket, self._part_size, self._backoff)

    def _reader_once(self) -> Reader:
        with self._reported():
            client = self._clients.single
        return Reader(client, self.url, self._bucket, self._part_size, ONCE)

    # --- listing ----------------------------------------------------------------------------------

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        """See ``ObjectStore.list``."""
        check_prefix(prefix)
        check_prefix(start_after)
        return self._list(prefix, start_after)

    def list_folders(self, prefix: str) -> Iterator[str]:
        """See ``ObjectStore.list_folders``."""
        check_folder(prefix)
        return self._list_folders(prefix)

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        with self._reported():
            pages = self._clients.retrying.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket,
                Prefix=self._base + prefix,
                StartAfter=self._base + start_after if start_after else "",
            )
            for page in pages:
                for entry in page.get("Contents", []):
                    key = entry["Key"].removeprefix(self._base)
                    # Skip the folder markers that other tools create; they are not valid keys.
                    if is_key(key):
                        yield ObjectInfo(key, entry["Size"], entry["LastModified"])

    def _list_folders(self, prefix: str) -> Iterator[str]:
        above = self._base + prefix
        with self._reported():
            pages = self._clients.retrying.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=above, Delimiter="/"
            )
            for page in pages:
                for entry in page.get("CommonPrefixes", []):
                    name = entry["Prefix"].removeprefix(above).rstrip("/")
                    if is_key(name):
                        yield name

    # --- removing ---------------------------------------------------------------------------------

    def delete(self, keys: Sequence[str]) -> None:
        """See ``ObjectStore.delete``."""
        names = [self._name(key) for key in keys]
        for start in range(0, len(names), _DELETE_BATCH):
            self._delete(names[start : start + _DELETE_BATCH])

    def _delete(self, names: Sequence[str]) -> None:
        left = names
        for pause in self._backoff.pauses():
            with self._reported():
                reply = self._clients.retrying.delete_objects(
                    Bucket=self._bucket,
                    Delete={"Objects": [{"Key": name} for name in left], "Quiet": True},
                )
            # The request succeeds as a whole even when each of its keys fails.
            failed = {
                error["Key"]: f"{error.get('Code')}: {error.get('Message')}"
                for error in reply.get("Errors", [])
                if error.get("Code") != "NoSuchKey"
            }
            if not failed:
                return
            name, reason = next(iter(failed.items()))
            if any(text.startswith("AccessDenied") for text in failed.values()):
                raise AuthFailed(self.url, f"deleting {name}: {reason}")
            if pause is None:
                raise StoreUnavailable(self.url, f"deleting {name}: {reason}")
            left = [*failed]
            time.sleep(pause)

    def sweep(self, before: datetime) -> int:
        """See ``ObjectStore.sweep``: aborts multipart uploads, whose unlisted parts cost money."""
        probes = [info.key for info in self.list(PROBE_FOLDER) if info.modified < before]
        self.delete(probes)
        aborted = 0
        with self._reported():
            client = self._clients.retrying
            pages = client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._bucket, Prefix=self._base
            )
            for page in pages:
                for upload in page.get("Uploads", []):
                    # Some servers ignore the prefix; uploads outside it belong to others.
                    mine = upload["Key"].startswith(self._base)
                    if mine and upload["Initiated"] < before:
                        aborted += self._abort(upload["Key"], upload["UploadId"])
        return len(probes) + aborted

    def _abort(self, name: str, upload: str) -> int:
        try:
            self._clients.retrying.abort_multipart_upload(
                Bucket=self._bucket, Key=name, UploadId=upload
            )
        except ClientError as error:
            if not _is_upload_gone(error):
                raise
            return 0
        return 1

    # --- names and errors -------------------------------------------------------------------------

    def _name(self, key: str) -> str:
        """The key in the bucket."""
        check_key(key)
        name = self._base + key
        if len(name.encode()) > MAX_KEY_BYTES:
            raise InvalidName("key", key[:200], f"is longer than {MAX_KEY_BYTES} bytes with prefix")
        return name

    def _reported(self) -> contextlib.AbstractContextManager[None]:
        return reported(store=self.url, bucket=self._bucket)


def _check_endpoint(url: str) -> None:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidConfig("endpoint", "it is not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidConfig("endpoint", "it is not an http(s) URL", "use https://host:port")
    if "@" in parts.netloc:
        advice = "leave them to the environment, a profile or a role"
        raise InvalidConfig("endpoint", "it holds credentials", advice)


def _is_upload_gone(error: BaseException) -> bool:
    return isinstance(error, ClientError) and code_of(error) == "NoSuchUpload"
