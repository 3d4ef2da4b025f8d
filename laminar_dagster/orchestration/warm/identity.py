"""Which runs may share a worker: those of the same code, in the same environment.

A worker is started with the environment of the launcher that needed it, as a cold run would be.
Two launchers share a worker only if their environments are equal, but for variables that describe
a terminal or a login and that no pipeline should read. Comparing a variable too many costs a cold
start; comparing one too few could give a run the wrong database.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

from laminar_dagster.orchestration.private_api import CodeOrigin

# The tag with the pid of the process that executed a run.
WORKER_TAG: Final = "laminar/worker"

_VOLATILE: Final = frozenset(
    {
        "_",
        "COLUMNS",
        "COLORTERM",
        "DBUS_SESSION_BUS_ADDRESS",
        "DISPLAY",
        "INVOCATION_ID",
        "JOURNAL_STREAM",
        "LINES",
        "LS_COLORS",
        "NOTIFY_SOCKET",
        "OLDPWD",
        "PROMPT_COMMAND",
        "PS1",
        "PWD",
        "PYTEST_CURRENT_TEST",
        "SHLVL",
        "SYSTEMD_EXEC_PID",
        "TERM",
        "TERM_PROGRAM",
        "TERM_PROGRAM_VERSION",
        "TERM_SESSION_ID",
        "TMUX",
        "TMUX_PANE",
        "WATCHDOG_PID",
        "WATCHDOG_USEC",
        "WAYLAND_DISPLAY",
        "WINDOWID",
        "XDG_SESSION_ID",
        "XDG_VTNR",
    }
)
_VOLATILE_PREFIXES: Final = ("SSH_", "VSCODE_", "XDG_SESSION_")
_KEY_LETTERS: Final = 16


def lasting(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that may make a difference to a run."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _VOLATILE and not name.startswith(_VOLATILE_PREFIXES)
    }


def keeper_key(
    origin: CodeOrigin, instance: str, folder: Path, environment: Mapping[str, str]
) -> str:
    """The name of the keeper that serves such runs: a hash, so that it reveals no secret.

    Args:
        origin: The code.
        instance: The Dagster instance as text: its settings count as well.
        folder: The current folder of the launcher, and so of the worker.
        environment: The environment of the launcher.
    """
    parts = {
        "code": origin.text,
        "location": origin.location,
        "instance": instance,
        "folder": str(folder),
        "environment": lasting(environment),
        "release": version("laminar-dagster"),
    }
    text = json.dumps(parts, sort_keys=True).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:_KEY_LETTERS]


def why_not_served(origin: CodeOrigin | None) -> str | None:
    """Why no worker on this machine can serve such a run, or None if one can."""
    if origin is None:
        return "the run does not say where its code comes from"
    if not origin.is_local:
        return f"the code location {origin.location} is served on another machine"
    if origin.image is not None and origin.image != os.environ.get("DAGSTER_CURRENT_IMAGE"):
        return f"its code lives in the container image {origin.image}"
    if not os.access(origin.executable, os.X_OK):
        return f"its Python, {origin.executable}, is not on this machine"
    return None
