"""Services between commands: ``python -m infra install | up | down | status [NAME…]``."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from infra import state
from infra.cache import exclusive
from infra.catalogue import SERVICES, TOOLS
from infra.errors import ServiceError


def install(names: Sequence[str]) -> None:
    """Install ahead of the tests, so that a long build does not count against a test's time.

    Raises:
        ExceptionGroup: With what could not be installed; the rest is installed.
    """
    failures: list[ServiceError] = []
    for name in names:
        try:
            TOOLS[name]() if name in TOOLS else SERVICES[name]().install()
        except ServiceError as error:
            failures.append(error)
    if failures:
        raise ExceptionGroup("not installed", failures)


def up(names: Sequence[str]) -> None:
    """Start what does not run yet, and print the variables to export."""
    services = state.read()
    for name in names:
        if name in services and services[name].is_running():
            continue
        data_dir = (state.STATE_FILE.parent / "services" / name).absolute()
        shutil.rmtree(data_dir, ignore_errors=True)
        data_dir.mkdir(parents=True, mode=0o700)
        print(f"# starting {name} (the first time it is installed)", file=sys.stderr)
        service = SERVICES[name]()
        endpoint = service.start(data_dir, outlive=True)
        services[name] = state.Running(service.identity, str(data_dir), endpoint.environment())
        # After each one: if the next fails, `down` still knows this one.
        state.write(services)
    for name in names:
        print(f"# {name}")
        for variable, value in services[name].environment.items():
            print(f"export {variable}={shlex.quote(value)}")


def down(names: Sequence[str]) -> None:
    """Stop what `up` started and remove its data."""
    services = state.read()
    for name in names:
        if (running := services.pop(name, None)) is None:
            continue
        was_running = running.is_running()
        running.process.end()
        shutil.rmtree(running.data_dir, ignore_errors=True)
        state.write(services)
        print(f"{name}: {'stopped' if was_running else 'was not running any more'}")


def status(names: Sequence[str]) -> None:
    """Print one line per service."""
    services = state.read()
    for name in names:
        running = services.get(name)
        if running is not None and running.is_running():
            log = Path(running.data_dir) / f"{name}.log"
            print(f"{name}: running, process {running.process.pid}, log {log}")
        else:
            print(f"{name}: not running")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m infra", description=__doc__)
    parser.add_argument("command", choices=("install", "up", "down", "status"))
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"of {', '.join(SERVICES)}; install also takes {', '.join(TOOLS)}",
    )
    options = parser.parse_args(arguments)
    known = [*SERVICES, *TOOLS] if options.command == "install" else [*SERVICES]
    if unknown := set(options.names) - set(known):
        parser.error(f"no such service: {', '.join(sorted(unknown))}")
    names = options.names or known
    commands = {"install": install, "up": up, "down": down, "status": status}
    code = 0
    try:
        with exclusive(state.STATE_FILE.with_suffix(".lock")):
            commands[options.command](names)
    except* ServiceError as failures:
        for error in failures.exceptions:
            print(f"error: {error}", file=sys.stderr)
        code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
