"""Starts the JVM of Spark's driver, and passes it its settings in a file.

pyspark itself passes ``--conf key=value``, but every account of a machine can read the command
lines of all processes. The file is readable by this account only, and removed once the JVM is up.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

from laminar_dagster.spark.class_archive import VARIABLE, java_options, usable_archive

_PROPERTIES: Final = "--properties-file"
_ADDRESS: Final = "spark.driver.bindAddress"
_LOOPBACK: Final = "127.0.0.1"
_PAUSE_SECONDS: Final = 0.05
_CRASHES: Final = (signal.SIGABRT, signal.SIGBUS, signal.SIGSEGV)


def launch_driver(
    settings: Mapping[str, str], withheld: Collection[str], *, is_brief: bool = False
) -> None:
    """Start the JVM in which Spark's driver will run.

    Args:
        settings: Spark's settings.
        withheld: Environment variables that neither the JVM nor its children get.
        is_brief: Whether little will be computed: see ``class_archive.java_options``.

    Raises:
        PySparkRuntimeError: The JVM ended before it was up.
    """
    given = _environment(settings, withheld)
    options = java_options(given, settings, is_brief=is_brief)
    try:
        _launch(settings, {**given, VARIABLE: options})
    except _Crashed:
        # Java crashes on a damaged archive of classes, at this start and all that follow.
        archive = usable_archive(given, settings)
        if archive is None or archive.name not in options:
            raise
        with suppress(OSError):
            archive.unlink()
        _launch(settings, given)


class _Crashed(PySparkRuntimeError):
    """The JVM crashed before it was up."""


def _launch(settings: Mapping[str, str], environment: Mapping[str, str]) -> None:
    # mkdtemp: accessible to this account only, whatever the umask.
    folder = Path(tempfile.mkdtemp(prefix="laminar-spark-"))
    try:
        arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        theirs = _taken_out(arguments)
        file = folder / "spark.properties"
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            # The later of two lines for one key wins: ours override the user's.
            out.write(f"{theirs}\n{properties(settings)}")
        command = [_PROPERTIES, str(file), *_defaults(theirs), *arguments]
        process = _spawn(command, folder, environment)
        port, secret = _wait(process, folder / "connection")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    with _told_of(port, secret):
        connect: Any = launch_gateway
        gateway = connect()
    # Keep the process object alive: when it goes, the JVM's stdin closes, and the JVM exits.
    gateway.proc = process
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001, no other way in


def properties(settings: Mapping[str, str]) -> str:
    """Format settings as a Java properties file."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[place : place + 2]) for place in range(0, len(units), 2))
    # Escape all but letters and digits: `=`, `:`, `#`, `\\` and white space are syntax.
    return "".join(
        chr(code) if code < 128 and chr(code).isalnum() else f"\\u{code:04x}" for code in codes
    )


def _taken_out(arguments: list[str]) -> str:
    """Remove the user's own properties file from the arguments, and return its content."""
    if _PROPERTIES not in arguments:
        return ""
    place = arguments.index(_PROPERTIES)
    path = arguments[place + 1]
    del arguments[place : place + 2]
    return Path(path).read_text(encoding="utf-8")


def _defaults(theirs: str) -> list[str]:
    """The option to read ``spark-defaults.conf``: Spark skips it if given a properties file.

    Without it where the user has a properties file of their own: that replaces the defaults.
    """
    return [] if theirs else ["--load-spark-defaults"]


def _environment(settings: Mapping[str, str], withheld: Collection[str]) -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if name not in withheld}
    if settings.get(_ADDRESS) == _LOOPBACK:
        # No setting binds the driver's web UI: without this variable it listens on all addresses.
        found.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    return found


def _spawn(
    arguments: list[str], folder: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [str(Path(_find_spark_home(), "bin", "spark-submit")), *arguments],
        stdin=subprocess.PIPE,
        env={
            **environment,
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(folder / "connection"),
        },
        # Ctrl-C must not reach the JVM: this process finishes the current epoch first.
        preexec_fn=_ignore_interrupts,
    )


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _wait(process: subprocess.Popen[bytes], connection: Path) -> tuple[int, str]:
    """Wait until the JVM is up, and return its port and the secret to connect with."""
    while not connection.is_file():
        if (code := process.poll()) is not None:
            ended = _Crashed if -code in _CRASHES else PySparkRuntimeError
            raise ended(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
        time.sleep(_PAUSE_SECONDS)
    # File format: the port, the length of the secret (4 bytes each, big-endian), the secret.
    told = connection.read_bytes()
    return int.from_bytes(told[:4]), told[8 : 8 + int.from_bytes(told[4:8])].decode()


@contextmanager
def _told_of(port: int, secret: str) -> Iterator[None]:
    """Set the environment variables by which pyspark connects to a JVM that already runs."""
    told = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(told)
    try:
        yield
    finally:
        for name in told:
            os.environ.pop(name, None)
