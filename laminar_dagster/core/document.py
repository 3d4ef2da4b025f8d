"""How a document becomes bytes and comes back: canonical, sealed, and safe to read.

Canonical: the same content gives the same JSON text. Members stand in declared order, maps are
sorted by key, members equal to their default are left out, no white space.

Sealed: the last member is ``checksum``, the SHA-256 of the text without it. A flipped bit, a cut
tail or a hand edit is found before any field is believed.

Safe: a hostile document (deep nesting, huge numbers, a decompression bomb, 100 MB) ends in a named
error within a fixed amount of memory.

A text longer than ``PLAIN_LIMIT`` is wrapped in gzip, so ``gzip -dcf FILE | jq`` shows any
document. The format is written down in docs/checkpoint-format.md.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from laminar_dagster.core.errors import (
    ChecksumMismatch,
    LaminarError,
    MalformedDocument,
    UnsupportedVersion,
)
from laminar_dagster.core.ids import is_identifier

FORMAT_VERSION: Final = 1
MAX_DOCUMENT_BYTES: Final = 16 * 1024 * 1024
PLAIN_LIMIT: Final = 32 * 1024

Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Text = Annotated[str, Meta(min_length=1, max_length=4096)]
Timestamp = Annotated[datetime, Meta(tz=True)]

_SEAL_OPEN: Final = b',"checksum":"'
_SEAL_BYTES: Final = len(_SEAL_OPEN) + 64 + len(b'"}')
_GZIP_MAGIC: Final = b"\x1f\x8b"
# A fixed header: no time, no file name, no operating system, so that bytes follow from content.
_GZIP_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"


class Record(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """A part of a document: immutable, and strict about its fields."""


class Document(Record, frozen=True, kw_only=True):
    """A whole object of the store. ``version`` is the version of its format."""

    version: int


class _Envelope(msgspec.Struct):
    """The version alone, which a reader of any version can read first."""

    version: int


DocumentT = TypeVar("DocumentT", bound=Document)
RecordT = TypeVar("RecordT")


def encode(document: Document) -> bytes:
    """The canonical bytes of a document: sealed, and wrapped in gzip when the text is long."""
    try:
        text = _seal(_ENCODER.encode(document))
    except UnicodeEncodeError as error:
        # Python reads a file name that is not UTF-8 with surrogates, which cannot be encoded.
        raise MalformedDocument(type(document).__name__, f"it is not text: {error}") from None
    if len(text) > MAX_DOCUMENT_BYTES:
        name = type(document).__name__
        raise MalformedDocument(name, f"it would be larger than {MAX_DOCUMENT_BYTES} bytes")
    return text if len(text) <= PLAIN_LIMIT else _compress(text)


def checksum(document: Document) -> str:
    """The document's seal, by which other documents refer to this exact content."""
    return hashlib.sha256(_ENCODER.encode(document)).hexdigest()


def decode(data: bytes, kind: type[DocumentT], name: str) -> DocumentT:
    """Read a document, believing nothing.

    Args:
        data: The stored bytes.
        kind: The expected type of document.
        name: Its name in errors, usually its key.

    Raises:
        MalformedDocument: It is not such a document; says which member is wrong and how.
        ChecksumMismatch: It was one, and its bytes changed.
        UnsupportedVersion: It is whole, but of a format this release does not know.
    """
    text = _decompress(data, name)
    body = _unseal(text, name)
    version = _read(_ENVELOPE, body, name).version
    if version != FORMAT_VERSION:
        raise UnsupportedVersion(name, version, FORMAT_VERSION)
    document = _read(_decoder(kind), body, name)
    # Refuses repeated members, stray white space and any other non-canonical spelling.
    if _ENCODER.encode(document) != body:
        raise MalformedDocument(name, "it is not in canonical form")
    return document


def encode_part(part: object) -> bytes:
    """The canonical JSON of a part of a document, without a seal."""
    return _ENCODER.encode(part)


def decode_part(data: bytes, kind: type[RecordT], name: str) -> RecordT:
    """Read a part of a document that stands alone.

    Raises:
        MalformedDocument: says which member is wrong and how.
    """
    if len(data) > MAX_DOCUMENT_BYTES:
        raise MalformedDocument(name, f"it is larger than {MAX_DOCUMENT_BYTES} bytes")
    return _read(_decoder(kind), data, name)


def require_utc(name: str, moment: datetime) -> None:
    """Refuse a time that is not in UTC: one moment must have one spelling.

    Raises:
        ValueError: naming the field.
    """
    if moment.utcoffset() != timedelta(0):
        raise ValueError(f"`{name}` must be in UTC")


def to_utc_microseconds(moment: datetime) -> int:
    """A moment as whole microseconds since 1970, exact."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def spell_microseconds(micros: int) -> str:
    """Microseconds since 1970 as people write a moment; as a number after the year 9999."""
    try:
        moment = datetime(1970, 1, 1) + timedelta(microseconds=micros)  # noqa: DTZ001
    except OverflowError:
        return f"{micros} µs since 1970"
    text = moment.isoformat()
    return (text.rstrip("0") if "." in text else text) + "Z"


# --- the seal -----------------------------------------------------------------------------------


def _seal(body: bytes) -> bytes:
    digest = hashlib.sha256(body).hexdigest().encode()
    return body[:-1] + _SEAL_OPEN + digest + b'"}'


def _unseal(text: bytes, name: str) -> bytes:
    head, tail = text[:-_SEAL_BYTES], text[-_SEAL_BYTES:]
    if not head or not tail.startswith(_SEAL_OPEN) or not tail.endswith(b'"}'):
        raise MalformedDocument(name, "it does not end with a checksum: it is cut off or foreign")
    body = head + b"}"
    expected = tail[len(_SEAL_OPEN) : -len(b'"}')].decode("ascii", "replace")
    actual = hashlib.sha256(body).hexdigest()
    if actual != expected:
        raise ChecksumMismatch(name, expected, actual)
    return body


# --- the wrapper --------------------------------------------------------------------------------


def _compress(text: bytes) -> bytes:
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = deflate.compress(text) + deflate.flush()
    return _GZIP_HEADER + packed + struct.pack("<II", zlib.crc32(text), len(text))


def _decompress(data: bytes, name: str) -> bytes:
    if len(data) > MAX_DOCUMENT_BYTES:
        raise MalformedDocument(name, f"it is larger than {MAX_DOCUMENT_BYTES} bytes")
    if not data.startswith(_GZIP_MAGIC):
        return data
    inflate = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        text = inflate.decompress(data, MAX_DOCUMENT_BYTES)
    except zlib.error as error:
        raise MalformedDocument(name, f"its gzip wrapper is damaged: {error}") from None
    if not inflate.eof or inflate.unused_data:
        raise MalformedDocument(name, "its gzip wrapper is cut off, too large or has a tail")
    return text


# --- JSON ---------------------------------------------------------------------------------------


def _encode_hook(value: Any) -> Any:
    if is_identifier(type(value)):
        return str(value) if isinstance(value, str) else int(value)
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


def _decode_hook(kind: type, value: Any) -> Any:
    if is_identifier(kind):
        return kind(value)
    raise NotImplementedError(f"{kind.__name__} has no JSON form")


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_encode_hook, order="deterministic")
_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_DECODERS: Final[dict[type, msgspec.json.Decoder[Any]]] = {}


def _decoder(kind: type[RecordT]) -> msgspec.json.Decoder[RecordT]:
    if kind not in _DECODERS:
        _DECODERS[kind] = msgspec.json.Decoder(kind, dec_hook=_decode_hook)
    return _DECODERS[kind]


def _read(decoder: msgspec.json.Decoder[RecordT], data: bytes, name: str) -> RecordT:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedDocument(name, str(error)) from None
    except RecursionError:
        raise MalformedDocument(name, "it is nested too deeply") from None
    except LaminarError:
        raise
    except OverflowError as error:
        raise MalformedDocument(name, f"a number is out of range: {error}") from None
