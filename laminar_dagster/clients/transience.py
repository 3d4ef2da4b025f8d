"""What may pass by itself, of what operating systems and HTTP servers say.

A list, and no more: an error that is not in it does not heal by being tried again, and who is told
to try again for ever never learns what to mend.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from typing import Final

PASSING_ERRNO: Final = frozenset(
    {
        # Something is used up, for now.
        errno.EAGAIN,
        errno.EBUSY,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.ENOLCK,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EINTR,
        # A disk, or what it hangs on. What is not there may be a disk that is not mounted.
        errno.EIO,
        errno.ENODEV,
        errno.ENOENT,
        errno.ENXIO,
        errno.ESTALE,
        errno.EREMOTEIO,
        errno.ETXTBSY,
        # The network, or who is behind it.
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENETUNREACH,
        errno.ENOTCONN,
        errno.EPIPE,
        errno.ESHUTDOWN,
        errno.ETIMEDOUT,
    }
)
FORBIDDEN_ERRNO: Final = frozenset({errno.EACCES, errno.EPERM})
PASSING_STATUS: Final = frozenset({408, 425, 429, 500, 502, 503, 504})

# The same where a client passes on nothing but a text. Not of a file: what a client cannot find is
# its own to tell.
PASSING_TEXT: Final = re.compile(
    "|".join(re.escape(os.strerror(code)) for code in sorted(PASSING_ERRNO - {errno.ENOENT}))
    + r"|timed out|timeout|name or service not known|name resolution"
    r"|could not translate host name|nodename nor servname|no address associated",
    re.IGNORECASE,
)


def is_passing(error: OSError) -> bool:
    """Whether the same call may succeed later, without anybody changing anything."""
    if isinstance(error, socket.gaierror):
        return True
    if error.errno is None:
        return isinstance(error, ConnectionError | TimeoutError)
    return error.errno in PASSING_ERRNO


def is_forbidden(error: OSError) -> bool:
    """Whether it is about the rights of this account."""
    return error.errno in FORBIDDEN_ERRNO


def shown(error: BaseException) -> str:
    """An exception that nobody knows: its kind, which may be all that it says, and its text."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
