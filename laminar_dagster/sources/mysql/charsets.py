"""Converts texts of any MySQL character set to UTF-8, a column at a time."""

from __future__ import annotations

import codecs
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# Python's names for MySQL's character sets, where it does not know MySQL's own.
_CODECS: Final = {
    "utf8mb4": "utf-8",
    "utf8mb3": "utf-8",
    "utf8": "utf-8",
    "latin1": "cp1252",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "macroman": "mac_roman",
    "macce": "mac_latin2",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "sjis": "shift_jis",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
    "tis620": "tis_620",
}
_SINGLE_BYTE: Final = frozenset(
    {
        "latin1",
        "latin2",
        "latin5",
        "latin7",
        "greek",
        "hebrew",
        "macroman",
        "macce",
        "koi8r",
        "koi8u",
    }
    | {"cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866", "tis620"}
)
_UTF8: Final = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii"})


def is_utf8(charset: str) -> bool:
    """Whether texts of a character set are valid UTF-8 without conversion."""
    return charset in _UTF8


def is_known(charset: str) -> bool:
    """Whether there is a codec for a character set."""
    try:
        codecs.lookup(_codec(charset))
    except LookupError:
        return False
    return bool(charset)


def decoded(data: bytes, charset: str) -> str:
    """Decode one text."""
    if charset == "latin1":
        # MySQL's latin1 is cp1252, with undefined bytes kept as control characters.
        return "".join(_latin1()[byte] for byte in data)
    return data.decode(_codec(charset), "replace")


def utf8_column(found: pa.BinaryArray, charset: str) -> pa.StringArray:
    """Convert texts of a character set that is not UTF-8.

    Texts of single-byte character sets are converted by table lookup; of the others, each distinct
    text is decoded once.
    """
    letters = _letters(charset)
    if letters is None:
        once = found.dictionary_encode()
        texts = [decoded(each.as_py(), charset) for each in once.dictionary]
        return pa.array(texts, pa.string()).take(once.indices)
    return _looked_up(found, *letters)


def _looked_up(
    found: pa.BinaryArray, sizes: npt.NDArray[np.int64], letters: npt.NDArray[np.uint8]
) -> pa.StringArray:
    offsets = np.frombuffer(found.buffers()[1], np.int32)[: len(found) + 1]
    data = np.frombuffer(found.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    wide = sizes[data]
    before = np.zeros(len(data) + 1, np.int64)
    np.cumsum(wide, out=before[1:])
    # Every letter has four places in ``letters``; only its first ``wide`` ones are used.
    kept = np.arange(4) < wide[:, None]
    places = before[offsets - offsets[0]].astype(np.int32)
    buffers = [None, pa.py_buffer(places), pa.py_buffer(letters[data][kept])]
    return pa.Array.from_buffers(pa.string(), len(found), buffers, null_count=0)


@cache
def _letters(charset: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]] | None:
    """The UTF-8 sizes and bytes of a charset's 256 letters; None if it is not single-byte."""
    if charset not in _SINGLE_BYTE:
        return None
    texts = [decoded(bytes([byte]), charset) for byte in range(256)]
    encoded = [each.encode() for each in texts]
    sizes = np.array([len(each) for each in encoded], np.int64)
    letters = np.frombuffer(b"".join(each.ljust(4, b"\0") for each in encoded), np.uint8)
    return sizes, letters.reshape(256, 4)


@cache
def _latin1() -> list[str]:
    found = []
    for byte in range(256):
        try:
            found.append(bytes([byte]).decode("cp1252"))
        except UnicodeDecodeError:
            found.append(chr(byte))
    return found


def _codec(charset: str) -> str:
    return _CODECS.get(charset, charset)
