"""Another account than root's, for servers that should not, or will not, run as root."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
from collections.abc import Sequence
from pathlib import Path

from infra.errors import ServiceUnavailable


def without_root(service: str, accounts: Sequence[str], *paths: Path) -> list[str]:
    """What a command begins with to be run without root's rights; nothing if we have none.

    Paths below folders that only root may enter (such as those of tests) are opened to the account
    by one capability rather than by loosening the folders.

    Args:
        service: Whose command it is, for the error.
        accounts: Those that may run it; the first that exists is taken.
        paths: What the command must be able to reach.

    Raises:
        ServiceUnavailable: There is no such account, or no way to become it.
    """
    if os.geteuid() != 0:
        return []
    account = _first(service, accounts)
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        reason = "it does not run as root: install util-linux, for `setpriv`, or be another user"
        raise ServiceUnavailable(service, reason)
    # The kernel forgets whom to die with when the account changes.
    prefix = [setpriv, "--pdeathsig", "keep", "--init-groups"]
    prefix += ["--reuid", str(account.pw_uid), "--regid", str(account.pw_gid)]
    folders = {folder for path in paths for folder in (path, *path.parents) if folder.is_dir()}
    if not all(folder.stat().st_mode & 0o001 for folder in folders):
        prefix += ["--inh-caps", "+dac_override", "--ambient-caps", "+dac_override"]
    return prefix


def hand_over(service: str, accounts: Sequence[str], *paths: Path) -> None:
    """Give files to the account that ``without_root`` takes; they stay ours if we are not root."""
    if os.geteuid() != 0:
        return
    account = _first(service, accounts)
    for path in paths:
        os.chown(path, account.pw_uid, account.pw_gid)


def _first(service: str, accounts: Sequence[str]) -> pwd.struct_passwd:
    for name in accounts:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    reason = f"it does not run as root, and there is no account {' or '.join(accounts)}"
    raise ServiceUnavailable(service, reason)
