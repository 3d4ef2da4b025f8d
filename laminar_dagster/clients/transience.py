"""Which errors of operating systems and HTTP servers are transient.

An allow-list: any other error is not healed by a retry, and retrying it for ever would hide from
the user what to mend.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from typing import Final

PASSING_ERRNO: Final = frozenset(
    {
        # A resource is used up, for now.
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
        # Disks and their connections. A missing file or device may be a disk that is not mounted.
        errno.EIO,
        errno.ENODEV,
        errno.ENOENT,
        errno.ENXIO,
        errno.ESTALE,
        errno.EREMOTEIO,
        errno.ETXTBSY,
        # The network, or the host behind it.
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

# The same for clients that pass on nothing but a text. Without ENOENT: a missing file is reported
# by such a client for its own files.
PASSING_TEXT: Final = re.compile(
    "|".join(re.escape(os.strerror(code)) for code in sorted(PASSING_ERRNO - {errno.ENOENT}))
    + r"|timed out|timeout|name or service not known|name resolution"
    r"|could not translate host name|nodename nor servname|no address associated",
    re.IGNORECASE,
)


def is_passing(error: OSError) -> bool:
    """Whether the error is transient: the same call may succeed later."""
    if isinstance(error, socket.gaierror):
        return True
    if error.errno is None:
        return isinstance(error, ConnectionError | TimeoutError)
    return error.errno in PASSING_ERRNO


def is_forbidden(error: OSError) -> bool:
    """Whether the account lacks a right."""
    return error.errno in FORBIDDEN_ERRNO


def shown(error: BaseException) -> str:
    """The text of an unknown exception, after its type, which may be all that it says."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
