"""The end of a process, as an exception."""

from __future__ import annotations


class Crash(BaseException):
    """The process is gone, as by ``kill -9``.

    Not an ``Exception``, so that no handler of the code under test takes it for an error it could
    handle.
    """
