"""Starts the JVM of Spark's driver, and tells it its settings in a file.

pyspark's own way is ``--conf key=value``: every account of a machine can read the command lines of
all processes. The file is for this account alone, and gone when the JVM has read it.
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
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

_PROPERTIES: Final = "--properties-file"
_ADDRESS: Final = "spark.driver.bindAddress"
_LOOPBACK: Final = "127.0.0.1"
_PAUSE_SECONDS: Final = 0.05


def launch_driver(settings: Mapping[str, str], withheld: Collection[str]) -> None:
    """Start the JVM in which Spark's driver will run.

    Args:
        settings: Of Spark.
        withheld: Variables of the environment that are not handed on to it, nor by it.

    Raises:
        PySparkRuntimeError: It ended at once.
    """
    # For this account alone, whatever the umask.
    folder = Path(tempfile.mkdtemp(prefix="laminar-spark-"))
    try:
        arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        theirs = _taken_out(arguments)
        file = folder / "spark.properties"
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            # Of two lines for one key the later counts.
            out.write(f"{theirs}\n{properties(settings)}")
        environment = _environment(settings, withheld)
        command = [_PROPERTIES, str(file), *_defaults(theirs), *arguments]
        process = _spawn(command, folder, environment)
        port, secret = _wait(process, folder / "connection")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    with _told_of(port, secret):
        connect: Any = launch_gateway
        gateway = connect()
    # With the end of this object the JVM's input ends, and with that the JVM.
    gateway.proc = process
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001, no other way in


def properties(settings: Mapping[str, str]) -> str:
    """Settings as a file of Java properties."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[place : place + 2]) for place in range(0, len(units), 2))
    # All but letters and digits: `=`, `:`, `#`, `\\` and white space have a meaning.
    return "".join(
        chr(code) if code < 128 and chr(code).isalnum() else f"\\u{code:04x}" for code in codes
    )


def _taken_out(arguments: list[str]) -> str:
    """The content of the user's own file of properties, taken out of the arguments."""
    if _PROPERTIES not in arguments:
        return ""
    place = arguments.index(_PROPERTIES)
    path = arguments[place + 1]
    del arguments[place : place + 2]
    return Path(path).read_text(encoding="utf-8")


def _defaults(theirs: str) -> list[str]:
    """With a file of properties Spark does not look into ``spark-defaults.conf`` unless asked."""
    return [] if theirs else ["--load-spark-defaults"]


def _environment(settings: Mapping[str, str], withheld: Collection[str]) -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if name not in withheld}
    if settings.get(_ADDRESS) == _LOOPBACK:
        # No setting says where the driver's pages are: without this they are at all addresses.
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
        # Ctrl-C is for this process, which ends the epoch at hand first.
        preexec_fn=_ignore_interrupts,
    )


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _wait(process: subprocess.Popen[bytes], connection: Path) -> tuple[int, str]:
    """Where the JVM listens, and the secret that it asks for."""
    while not connection.is_file():
        if process.poll() is not None:
            raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
        time.sleep(_PAUSE_SECONDS)
    # An integer, and a text after the number of its bytes.
    told = connection.read_bytes()
    return int.from_bytes(told[:4]), told[8 : 8 + int.from_bytes(told[4:8])].decode()


@contextmanager
def _told_of(port: int, secret: str) -> Iterator[None]:
    """Where pyspark looks for a JVM that runs already."""
    told = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(told)
    try:
        yield
    finally:
        for name in told:
            os.environ.pop(name, None)
