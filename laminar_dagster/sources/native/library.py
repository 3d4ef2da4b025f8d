"""Loads the compiled library. It is optional: every caller has a fallback."""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import sys
from pathlib import Path
from typing import Any, Final

OK: Final = 0
TOO_LARGE: Final = -1

LIBRARY: Final = Path(__file__).with_name("laminar_native.so")
# Must equal the library's own number: one built from older sources has other signatures.
INTERFACE: Final = 1
# Set this variable to `off`, on the executors too, to do without the library.
SWITCH: Final = "LAMINAR_NATIVE"

_address = ctypes.c_void_p
_number = ctypes.c_int64
_SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    # Result, then arguments.
    "laminar_interface": (_number,),
    "laminar_measure": (ctypes.c_int, _address, _number, _address, ctypes.c_int, _address),
    "laminar_gather": (ctypes.c_int, _address, _number, _address, ctypes.c_int, _address, _address),
    "laminar_give_back": (None, _address, _number, _address),
    "laminar_json_columns": (
        *(_number, _address, _number, _address, _address, _number),
        *(_address, _number, _address),
    ),
    "laminar_copy_strings": (
        *(ctypes.c_int, _address, _number, _address, _number),
        *(_address, _address, _number),
    ),
}


class NotBuilt(Exception):
    """There is no compiled library to use; the text says why."""


@functools.cache
def native() -> ctypes.CDLL:
    """The library. Its functions release the interpreter's lock.

    Raises:
        NotBuilt: It was not built, was built from other sources, or is switched off.
    """
    if os.environ.get(SWITCH, "").lower() == "off":
        raise NotBuilt(f"{SWITCH} is off")
    if struct.calcsize("P") != 8 or sys.byteorder != "little":
        raise NotBuilt("it takes a little-endian machine of 64 bits")
    if not LIBRARY.exists():
        raise NotBuilt(
            "it was not compiled when the package was installed; that takes a C compiler"
        )
    try:
        found = ctypes.CDLL(str(LIBRARY))
        for name, (result, *arguments) in _SIGNATURES.items():
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise NotBuilt(f"it cannot be loaded: {error}") from error
    if found.laminar_interface() != INTERFACE:
        raise NotBuilt("it was compiled from other sources; install the package anew")
    return found


def why_not() -> str | None:
    """Why there is no compiled library; None if there is one."""
    try:
        native()
    except NotBuilt as error:
        return str(error)
    return None
