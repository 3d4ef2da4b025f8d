"""Documents become canonical, sealed bytes and come back."""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
import random
import subprocess
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import NODEFAULT, structs

from laminar_dagster.core.document import (
    MAX_DOCUMENT_BYTES,
    PLAIN_LIMIT,
    Document,
    checksum,
    decode,
    encode,
    encode_part,
    require_utc,
    to_utc_microseconds,
)
from laminar_dagster.core.errors import (
    ChecksumMismatch,
    IntegrityError,
    LaminarError,
    MalformedDocument,
    UnsupportedVersion,
)
from laminar_dagster.core.manifest import CheckpointManifest, RecordCounts
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.prepared import AttemptRecord, LatestPointer, Prepared
from tests.unit.core import strategies
from tests.unit.core.samples import (
    MOMENT,
    checkpoint,
    file_entry,
    kafka,
    manifest,
    operator,
    plan,
    sink,
    source,
    state_file,
)

SEAL = len(',"checksum":""}') + 64
POINTER = LatestPointer.to(manifest(3))


def sealed(body: bytes) -> bytes:
    """The body of a document with the seal that belongs to it."""
    digest = hashlib.sha256(body).hexdigest().encode()
    return body[:-1] + b',"checksum":"' + digest + b'"}'


def large_manifest() -> CheckpointManifest:
    """A manifest too long to be stored plain, whose text hardly shrinks."""
    noise = random.Random(7)
    return manifest(3, metadata={str(n): noise.randbytes(30).hex() for n in range(600)})


# --- canonical ----------------------------------------------------------------------------------


@given(strategies.manifests())
def test_the_same_content_gives_the_same_bytes(document: CheckpointManifest) -> None:
    data = encode(document)
    again = decode(data, CheckpointManifest, "m")
    assert again == document
    assert encode(again) == data
    assert encode(copy.deepcopy(document)) == data
    assert checksum(again) == checksum(document)


@given(st.dictionaries(strategies.TEXT, strategies.TEXT, min_size=2, max_size=6), st.randoms())
def test_the_order_of_a_map_does_not_matter(entries: dict[str, str], dice: random.Random) -> None:
    shuffled = list(entries.items())
    dice.shuffle(shuffled)
    assert encode(manifest(metadata=dict(shuffled))) == encode(manifest(metadata=entries))


def test_equal_documents_have_equal_bytes_also_where_a_default_was_spelled_out() -> None:
    """A default that is compared by identity would be written when an equal value was passed."""
    defaults = {field.name: field.default for field in structs.fields(CheckpointManifest)}
    scalars = (type(None), bool, tuple, type(NODEFAULT))
    assert all(isinstance(each, scalars) for each in defaults.values()), defaults
    plain = manifest(counts=RecordCounts())
    spelled = manifest(counts=RecordCounts(read=0, late=0))
    assert plain == spelled
    assert encode(plain) == encode(spelled)
    assert checksum(plain) == checksum(spelled)


def test_the_text_of_a_small_document() -> None:
    data = encode(POINTER)
    body = (
        f'{{"version":1,"epoch":3,"checkpoint_id":"{checkpoint(3)}",'
        f'"manifest_checksum":"{checksum(manifest(3))}"}}'
    ).encode()
    assert data == sealed(body)
    assert json.loads(data)["checksum"] == checksum(POINTER)


def test_members_equal_to_their_default_are_left_out() -> None:
    members = json.loads(encode(manifest(sinks=(), metadata={})))
    assert not {"sinks", "metadata", "watermark", "is_unaligned", "dead_letters"} & set(members)
    # Without a default, null is written out.
    assert members["previous_checkpoint_id"] is None


@pytest.mark.parametrize(
    "spelling",
    [
        b' {"version":1',
        b'{ "version":1',
        b'{"version": 1',
        b'{"version":1,"version":1',
        b'{"epoch":3,"version":1',
        b'{"version":1,"epoch":2',
        b'{"\\u0076ersion":1',
        b'\xef\xbb\xbf{"version":1',
    ],
)
def test_another_spelling_of_the_same_content_is_refused(spelling: bytes) -> None:
    body = encode(POINTER)[:-SEAL] + b"}"
    with pytest.raises(MalformedDocument):
        decode(sealed(spelling + body.removeprefix(b'{"version":1')), LatestPointer, "x")


def test_another_spelling_of_a_time_is_refused() -> None:
    record = AttemptRecord(
        version=1, epoch=POINTER.epoch, checkpoint_id=checkpoint(3), started_at=MOMENT
    )
    body = encode(record)[:-SEAL] + b"}"
    assert decode(sealed(body), AttemptRecord, "x") == record
    assert b"12:00:00.123456Z" in body
    for spelling in (b"12:00:00.123456+00:00", b"14:00:00.123456+02:00", b"12:00:00.123456z"):
        with pytest.raises(MalformedDocument):
            decode(sealed(body.replace(b"12:00:00.123456Z", spelling)), AttemptRecord, "x")


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 1, 1),  # noqa: DTZ001
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))),
        datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/London")),
    ],
)
def test_a_time_outside_utc_is_refused(moment: datetime) -> None:
    with pytest.raises(ValueError, match="`when` must be in UTC"):
        require_utc("when", moment)
    with pytest.raises(ValueError, match="started_at"):
        manifest(started_at=moment)


@given(st.integers(0, 2**40))
def test_microseconds_are_exact(micros: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    assert to_utc_microseconds(moment) == micros


# --- what is written can be read ----------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"sources": (source(kafka(-5)),)},
        {"sources": (source(kafka(0, topic="")),)},
        {"fingerprint": ""},
        {"plan_checksum": "not a hash"},
        {"version": 2},
        {"operators": (operator(state_file(1, size=2**63)),)},
        {"sinks": (sink(files=(file_entry("staged/lake/a", size=-1),)),)},
        {"metadata": {"a": 1}},
        # As a file's name is when its bytes are no UTF-8.
        {"metadata": {"a": "\udcff"}},
        {"counts": RecordCounts(read=True, processed=True)},
    ],
    ids=lambda changes: ascii(changes)[:60],
)
def test_what_could_not_be_read_back_is_found_before_it_is_written(
    changes: dict[str, Any],
) -> None:
    """A plan or prepared.json is written once. One that nobody can read blocks its epoch."""
    document = manifest(**changes)
    with pytest.raises(LaminarError):
        decode(encode(document), CheckpointManifest, "m")


# --- the seal -----------------------------------------------------------------------------------


@pytest.mark.parametrize("document", [POINTER, manifest(2)], ids=["pointer", "manifest"])
def test_every_flipped_bit_is_found(document: Document) -> None:
    data = encode(document)
    assert len(data) < PLAIN_LIMIT
    for place in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(IntegrityError):
            decode(bytes(damaged), type(document), "x")


def test_every_flipped_bit_in_the_wrapped_content_is_found() -> None:
    data = encode(large_manifest())
    # The first ten bytes are gzip's header; what they say of time and system is not content.
    for place in random.Random(1).sample(range(80, len(data) * 8), 400):
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(IntegrityError):
            decode(bytes(damaged), CheckpointManifest, "x")


@pytest.mark.parametrize("document", [POINTER, manifest(2)], ids=["pointer", "manifest"])
def test_every_cut_is_found(document: Document) -> None:
    data = encode(document)
    for length in range(len(data)):
        with pytest.raises(MalformedDocument):
            decode(data[:length], type(document), "x")
        with pytest.raises(IntegrityError):
            decode(data[length + 1 :], type(document), "x")


def test_every_cut_of_a_wrapped_document_is_found() -> None:
    data = encode(large_manifest())
    for length in (*range(0, len(data), 97), len(data) - 1):
        with pytest.raises(MalformedDocument):
            decode(data[:length], CheckpointManifest, "x")
    for tail in (b"\0", data, b"\x1f\x8b"):
        with pytest.raises(MalformedDocument, match="tail"):
            decode(data + tail, CheckpointManifest, "x")


def test_a_hand_edit_is_found_and_both_hashes_are_named() -> None:
    data = encode(POINTER).replace(b'"epoch":3', b'"epoch":4')
    with pytest.raises(ChecksumMismatch) as caught:
        decode(data, LatestPointer, "checkpoints/_latest")
    assert caught.value.path == "checkpoints/_latest"
    assert caught.value.expected == checksum(POINTER)
    assert caught.value.actual != caught.value.expected


def test_a_document_of_another_kind_is_refused() -> None:
    with pytest.raises(MalformedDocument, match="x cannot be read"):
        decode(encode(plan()), LatestPointer, "x")
    with pytest.raises(MalformedDocument):
        decode(encode(POINTER), EpochPlan, "x")


@pytest.mark.parametrize("version", [0, 2, 99, -1, 10**15])
def test_another_version_is_told_apart_from_damage(version: int) -> None:
    body = b'{"version":%d,"members":["of","another","format"]}' % version
    with pytest.raises(UnsupportedVersion) as caught:
        decode(sealed(body), LatestPointer, "x")
    assert (caught.value.found, caught.value.expected) == (version, 1)


# --- the wrapper --------------------------------------------------------------------------------


def test_a_long_document_is_wrapped_in_gzip() -> None:
    document = large_manifest()
    data = encode(document)
    text = gzip.decompress(data)
    assert len(text) > PLAIN_LIMIT
    assert len(data) < len(text)
    assert json.loads(text)["checksum"] == checksum(document)
    assert text == sealed(encode_part(document))
    assert decode(data, CheckpointManifest, "x") == document
    # No time, name or system in the header: the bytes follow from the content.
    assert data[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"


def test_the_gzip_program_shows_any_document() -> None:
    for document in (POINTER, large_manifest()):
        shown = subprocess.run(
            ["gzip", "-dcf"], input=encode(document), capture_output=True, check=True
        )
        assert shown.stderr == b""
        assert json.loads(shown.stdout)["version"] == 1


@pytest.mark.parametrize("excess", [0, 1])
def test_the_wrapper_begins_just_above_its_limit(excess: int) -> None:
    bare = len(encode(manifest(metadata={"a": ""})))
    document = manifest(metadata={"a": "x" * (PLAIN_LIMIT - bare + excess)})
    data = encode(document)
    assert data.startswith(b"\x1f\x8b") == bool(excess)
    assert decode(data, CheckpointManifest, "x") == document


def test_the_largest_document_can_be_read_and_a_larger_one_is_not_written() -> None:
    bare = len(encode(manifest(metadata={"a": ""})))
    fill = MAX_DOCUMENT_BYTES - bare
    largest = manifest(metadata={"a": "x" * fill})
    assert decode(encode(largest), CheckpointManifest, "x") == largest
    with pytest.raises(MalformedDocument, match="larger than"):
        encode(manifest(metadata={"a": "x" * (fill + 1)}))


def test_a_prepared_record_is_wrapped_as_any_document() -> None:
    prepared = Prepared.of(large_manifest())
    assert decode(encode(prepared), Prepared, "x") == prepared
