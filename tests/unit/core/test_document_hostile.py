"""A hostile document ends in a named error, within a fixed amount of memory."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_dagster.core.document import Document, decode, decode_part, encode, encode_part
from laminar_dagster.core.errors import LaminarError, MalformedDocument
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.offsets import SourceOffsets
from laminar_dagster.core.plan import EpochPlan
from laminar_dagster.core.prepared import AttemptRecord, LatestPointer, Prepared
from tests.unit.core.samples import checkpoint, manifest

pytestmark = pytest.mark.slow

KINDS: list[type[Document]] = [
    AttemptRecord,
    CheckpointManifest,
    EpochPlan,
    LatestPointer,
    Prepared,
    SourceOffsets,
]
DEEP = 200_000

# Each makes `text`; what is read is the text as it is, sealed, and sealed within gzip.
HOSTILE = {
    "empty": "b''",
    "empty_object": "b'{}'",
    "no_object": "b'[]'",
    "scalar": "b'7'",
    "deep_arrays": f"b'{{\"version\":1,\"x\":' + b'[' * {DEEP} + b']' * {DEEP} + b'}}'",
    "deep_objects": f"b'{{\"version\":1' + b',\"a\":{{\"b\":1' * {DEEP} + b'}}' * {DEEP + 1}",
    "deep_in_a_member": f"b'{{\"version\":1,\"epoch\":' + b'[' * {DEEP} + b']' * {DEEP} + b'}}'",
    "deep_and_cut": f"b'[' * {DEEP}",
    "huge_version": "b'{\"version\":1' + b'0' * 1_000_000 + b'}'",
    "huge_epoch": "b'{\"version\":1,\"epoch\":9' + b'9' * 1_000_000 + b'}'",
    "huge_exponent": 'b\'{"version":1,"epoch":1e999999999}\'',
    "huge_fraction": "b'{\"version\":1,\"epoch\":0.' + b'1' * 1_000_000 + b'}'",
    "not_a_number": 'b\'{"version":1,"epoch":NaN}\'',
    "text_for_a_number": 'b\'{"version":1,"epoch":"1"}\'',
    "version_as_text": 'b\'{"version":"1"}\'',
    "version_null": "b'{\"version\":null}'",
    "no_version": "b'{\"epoch\":1}'",
    "repeated_version": 'b\'{"version":2,"version":1}\'',
    "invalid_utf8": 'b\'{"version":1,"epoch":"\\xff\\xfe"}\'',
    "invalid_utf8_key": 'b\'{"version":1,"\\xc0\\xaf":1}\'',
    "lone_surrogate": 'b\'{"version":1,"pipeline":"\\\\ud800"}\'',
    "nul": 'b\'{"version":1,"pipeline":"\\\\u0000"}\'',
    "utf16": "'{\"version\":1}'.encode('utf-16')",
    "many_members": "b'{\"version\":1' + b''.join(b',\"%d\":0' % n for n in range(300_000)) + b'}'",
    "long_text": "b'{\"version\":1,\"pipeline\":\"' + b'a' * 15_000_000 + b'\"}'",
    "100_megabytes": "b'{\"version\":1,\"pipeline\":\"' + b'a' * 100_000_000 + b'\"}'",
    "100_megabytes_of_space": "b' ' * 100_000_000",
    "gzip_in_gzip": "gzip.compress(gzip.compress(b'{\"version\":1}'))",
    "gzip_header_only": "b'\\x1f\\x8b'",
    "gzip_reserved_flags": "b'\\x1f\\x8b\\x08\\xff' + b'\\0' * 100",
    "gzip_endless_name": "b'\\x1f\\x8b\\x08\\x08' + b'\\0' * 6 + b'a' * 10_000_000",
}

PRELUDE = """
import gzip, hashlib, resource, sys, zlib
import tests.unit.core.test_document_hostile as here
from laminar_dagster.core.document import decode
from laminar_dagster.core.errors import LaminarError

def sealed(body):
    digest = hashlib.sha256(body).hexdigest().encode()
    return body[:-1] + b',"checksum":"' + digest + b'"}'

def refused(data):
    for kind in here.KINDS:
        try:
            decode(data, kind, "hostile")
        except LaminarError as error:
            assert len(str(error)) < 10_000, len(str(error))
        else:
            raise AssertionError(f"{kind.__name__} was read")

pages = int(open("/proc/self/statm").read().split()[0])
cap = pages * resource.getpagesize() + 512 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (cap, cap))
"""


def run(program: str) -> None:
    """Run a program in a process of its own, with 512 MiB to spare."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_cap_is_real() -> None:
    run("try: bytes(600 * 2**20)\nexcept MemoryError: sys.exit(0)\nsys.exit(3)")


def test_hostile_documents_end_in_a_named_error_within_a_cap() -> None:
    tries = "\n".join(
        f"""
text = {make}
refused(text)
refused(sealed(text))
if len(text) < 20_000_000: refused(gzip.compress(sealed(text), 1))
del text
print({name!r}, file=sys.stderr)"""
        for name, make in HOSTILE.items()
    )
    run(tries)


def test_a_decompression_bomb_ends_in_a_named_error_within_a_cap() -> None:
    run(
        """
deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
megabyte = deflate.compress(bytes(2**20)) + deflate.flush(zlib.Z_FULL_FLUSH)
# Flushed blocks stand alone, so that many of them are one stream: 8 GiB of zeros.
bomb = b"\\x1f\\x8b\\x08" + bytes(7) + megabyte * 8192 + b"\\x03\\x00" + bytes(8)
assert zlib.decompressobj(31).decompress(bomb, 4096) == bytes(4096)
assert len(bomb) < 16 * 2**20
refused(bomb)
"""
    )


# --- fuzzing, in this process -------------------------------------------------------------------


@given(st.binary(max_size=400), st.sampled_from(KINDS))
def test_random_bytes_end_in_a_named_error(data: bytes, kind: type[Document]) -> None:
    for form in (data, gzip.compress(data), b"\x1f\x8b" + data):
        with pytest.raises(LaminarError):
            decode(form, kind, "fuzz")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
MEMBERS = sorted({name for kind in KINDS for name in kind.__struct_fields__} - {"version"})


@given(st.dictionaries(st.sampled_from(MEMBERS), JSON, max_size=4), st.sampled_from(KINDS))
@settings(max_examples=200)
def test_random_members_under_a_good_seal_end_in_a_named_error(
    members: dict[str, object], kind: type[Document]
) -> None:
    body = msgspec.json.encode({"version": 1} | members)
    digest = hashlib.sha256(body).hexdigest().encode()
    with pytest.raises(LaminarError):
        decode(body[:-1] + b',"checksum":"' + digest + b'"}', kind, "fuzz")


@given(st.data())
@settings(max_examples=200)
def test_a_manifest_with_one_member_replaced_is_refused_or_read(data: st.DataObject) -> None:
    """Replaces a value anywhere in the tree, below a good seal."""
    tree = msgspec.json.decode(encode_part(manifest(2)))
    node = tree
    while True:
        step = data.draw(
            st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node)))
        )
        if isinstance(node[step], dict | list) and node[step] and data.draw(st.booleans()):
            node = node[step]
            continue
        node[step] = data.draw(JSON)
        break
    body = msgspec.json.encode(tree)
    digest = hashlib.sha256(body).hexdigest().encode()
    text = body[:-1] + b',"checksum":"' + digest + b'"}'
    try:
        document = decode(text, CheckpointManifest, "fuzz")
    except LaminarError:
        return
    # What was read is what the bytes say, to the last one.
    assert encode(document) == text


# --- the two ends of the hooks ------------------------------------------------------------------


class Strange:
    """A type that no document holds."""


def test_a_value_without_a_json_form_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(NotImplementedError, match="Strange has no JSON form"):
        encode_part(Strange())
    with pytest.raises(NotImplementedError, match="Strange has no JSON form"):
        decode_part(b"{}", Strange, "x")


@pytest.mark.parametrize(
    ("member", "problem"),
    [
        (b'"epoch":-1', "epoch '-1' is not between"),
        (b'"epoch":1.0', "must be a whole number"),
        (b'"epoch":true', "must be a whole number"),
        (b'"checkpoint_id":"../x"', "'../x' is not a checkpoint id"),
        (b'"manifest_checksum":"ABC"', "manifest_checksum"),
        (b'"manifest_checksum":"%s\\n"' % (b"a" * 64), "manifest_checksum"),
        (b'"colour":1', "unknown field `colour`"),
    ],
)
def test_an_error_names_the_member(member: bytes, problem: str) -> None:
    members = {
        b"epoch": b'"epoch":3',
        b"checkpoint_id": b'"checkpoint_id":"%s"' % checkpoint(3).encode(),
        b"manifest_checksum": b'"manifest_checksum":"%s"' % (b"a" * 64),
    }
    members[member.split(b'"')[1]] = member
    body = b'{"version":1,' + b",".join(members.values()) + b"}"
    digest = hashlib.sha256(body).hexdigest().encode()
    with pytest.raises(MalformedDocument) as caught:
        decode(body[:-1] + b',"checksum":"' + digest + b'"}', LatestPointer, "checkpoints/_latest")
    assert problem in str(caught.value)
    assert "checkpoints/_latest" in str(caught.value)
