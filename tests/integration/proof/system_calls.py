"""Dying at a system call: for code that is not Python's, and offers no place to hook in.

A seccomp filter has the kernel kill the whole process when any of its threads asks for a hard link,
which is how the Delta client publishes a log entry on a local disk. Linux only.
"""

from __future__ import annotations

import ctypes
import platform
import struct
from typing import Final

# <linux/filter.h>, <linux/seccomp.h>, <asm/unistd.h>
_LOAD_NUMBER: Final = (0x20, 0, 0, 0)  # BPF_LD | BPF_W | BPF_ABS, at the call's number
_IF_EQUAL: Final = 0x15
_RETURN: Final = 0x06
_KILL_PROCESS: Final = 0x80000000
_ALLOW: Final = 0x7FFF0000
_PR_SET_NO_NEW_PRIVS: Final = 38
_SET_MODE_FILTER: Final = 1
_ALL_THREADS: Final = 1
_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}
_LINKS: Final = {"x86_64": (86, 265), "aarch64": (37,)}


def die_at_the_next_hard_link() -> None:
    """Have the kernel kill this process, in whatever thread, before its next link is made."""
    machine = platform.machine()
    links = _LINKS[machine]
    program = [_LOAD_NUMBER]
    for place, number in enumerate(links):
        program.append((_IF_EQUAL, len(links) - place, 0, number))
    program += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _KILL_PROCESS)]
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    libc = ctypes.CDLL(None, use_errno=True)
    filter_ = Program(len(program), ctypes.addressof(buffer))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if libc.syscall(_SECCOMP[machine], _SET_MODE_FILTER, _ALL_THREADS, ctypes.byref(filter_)) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")
