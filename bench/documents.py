"""Manifests and offsets as bytes, beside plain JSON of the same content."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any, Final

from bench.figures import Benchmark, Figure
from bench.measure import Sample, code, in_batches
from bench.samples import manifest
from bench.surroundings import Surroundings
from laminar_dagster.core.document import decode, encode
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.offsets import KafkaPosition, position_to_json

_MICROSECOND: Final = 1e-6
_MILLISECOND: Final = 1e-3
_NANOSECOND: Final = 1e-9
_KIBIBYTE: Final = 1024

# Sources, operators, target of writing, target of reading.
_SIZES: Final[tuple[tuple[int, int, float | None, float | None], ...]] = (
    (10, 20, 50 * _MICROSECOND, None),
    (10, 100, _MILLISECOND, _MILLISECOND),
    (10, 1000, None, None),
)
_ADDED: Final = "adds the SHA-256 seal"
_ADDED_LONG: Final = "adds the SHA-256 seal and gzip"
_CHECKED: Final = "checks types, seal and canonical form"
_CHECKED_LONG: Final = "unpacks; checks types, seal and canonical form"


def manifest_encode(surroundings: Surroundings) -> Iterator[Figure]:
    """Manifest to bytes."""
    for sources, operators, limit, _ in _SIZES:
        document = manifest(sources=sources, operators=operators)
        content = _plain(encode(document))
        own, peer = in_batches(
            surroundings.effort,
            code("encode(document)", encode=encode, document=document),
            code("dumps(content)", dumps=json.dumps, content=content),
        )
        yield Figure(
            f"manifest-encode/{operators}",
            f"manifest to bytes: {sources} sources, {operators:,} operators",
            own,
            limit=limit,
            peer="json.dumps",
            peer_sample=peer,
            note=_ADDED_LONG if _is_packed(encode(document)) else _ADDED,
        )


def manifest_decode(surroundings: Surroundings) -> Iterator[Figure]:
    """Bytes to manifest."""
    for sources, operators, _, limit in _SIZES:
        data = encode(manifest(sources=sources, operators=operators))
        own, peer = in_batches(
            surroundings.effort,
            code("decode(data, kind, 'm')", decode=decode, data=data, kind=CheckpointManifest),
            code("loads(text)", loads=json.loads, text=_text(data)),
        )
        yield Figure(
            f"manifest-decode/{operators}",
            f"bytes to manifest: {sources} sources, {operators:,} operators",
            own,
            limit=limit,
            peer="json.loads",
            peer_sample=peer,
            note=_CHECKED_LONG if _is_packed(data) else _CHECKED,
        )


def manifest_size(_: Surroundings) -> Iterator[Figure]:
    """Size of a stored manifest."""
    data = encode(manifest(sources=0, operators=1000))
    yield Figure(
        "manifest-size/1000",
        "stored bytes: 1,000 operators with one partition each",
        Sample((float(len(data)),)),
        unit="bytes",
        limit=64 * _KIBIBYTE,
        peer="the same as plain text",
        peer_sample=Sample((float(len(_text(data))),)),
        note="31.2 KiB of it are SHA-256, which cannot be packed tighter",
    )


def offset_capture(surroundings: Surroundings) -> Iterator[Figure]:
    """Where a source stands, as an object and as bytes."""
    names: dict[str, object] = {
        "Position": KafkaPosition,
        "to_json": position_to_json,
        "dumps": json.dumps,
    }
    build = "Position(topic='orders', partition=3, offset=123456789)"
    plain = "{'type': 'kafka', 'topic': 'orders', 'partition': 3, 'offset': 123456789}"
    built, encoded, peer_built, peer_encoded = in_batches(
        surroundings.effort,
        code(build, **names),
        code(f"to_json({build})", **names),
        code(plain, **names),
        code(f"dumps({plain})", **names),
    )
    limit = 100 * _NANOSECOND
    what = "capture an offset: build a Kafka position"
    yield Figure(
        "offset-capture/build", what, built, limit=limit, peer="a dict", peer_sample=peer_built
    )
    yield Figure(
        "offset-capture/encode",
        f"{what} and encode it",
        encoded,
        limit=limit,
        peer="json.dumps of a dict",
        peer_sample=peer_encoded,
    )


BENCHMARKS: Final = (
    Benchmark("manifest-encode", "write a manifest as bytes", manifest_encode),
    Benchmark("manifest-decode", "read a manifest from bytes", manifest_decode),
    Benchmark("manifest-size", "how large a manifest is", manifest_size),
    Benchmark("offset-capture", "capture where a source stands", offset_capture),
)


def _is_packed(data: bytes) -> bool:
    return data.startswith(b"\x1f\x8b")


def _text(data: bytes) -> bytes:
    return gzip.decompress(data) if _is_packed(data) else data


def _plain(data: bytes) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(_text(data))
    return content
