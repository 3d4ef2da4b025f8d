"""Run a command that dies with the process that started it: ``leash.py PARENT USER COMMAND…``.

A test run that is killed hard runs no exit handler, and would leave its servers behind. On Linux
the kernel can kill them instead. That has to be asked for by the child between fork and exec,
where Python code is unsafe in a threaded parent; so the child is this script, which then becomes
the command. It runs as a plain file with ``-IS`` and imports no sibling, to cost milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import sys

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def become_user(name: str) -> None:
    """Give up root for the account ``name``: some servers refuse to run as root."""
    account = pwd.getpwnam(name)
    os.initgroups(name, account.pw_gid)
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when ``parent`` dies; a no-op off Linux."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have died before the call above; no signal will come then.
    if os.getppid() != parent:
        sys.exit(1)


def main(arguments: list[str]) -> None:
    """Drop to USER unless it is ``-``, tie to PARENT unless it is ``0``, become COMMAND."""
    parent, user, *command = arguments
    if user != "-":
        become_user(user)
    # A shell that starts us in the background leaves these ignored, and `stop` relies on them.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    # After the change of user, which clears the setting.
    if parent != "0":
        die_with(int(parent))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
