"""Starts Spark so that a person at a terminal reads what matters and nothing else."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from laminar_dagster.core.errors import JavaMissing

# What every start says, on every machine.
_NOISE: Final = (
    b"WARNING: Using incubator modules: jdk.incubator.vector",
    b"Using Spark's default log4j profile:",
    b'Setting default log level to "WARN"',
    b"To adjust logging level use sc.setLogLevel",
    b" WARN NativeCodeLoader: ",
    b" WARN Utils: Your hostname, ",
    b" WARN Utils: Set SPARK_LOCAL_IP ",
)


def start_spark(
    settings: Mapping[str, str],
    *,
    written: Mapping[str, str] = {},
    withheld: Collection[str] = (),
    is_brief: bool = False,
) -> Any:
    """The Spark session of this process; see ``spark.session.open_session``.

    Raises:
        JavaMissing: Spark is to run here, and cannot.
    """
    if not is_remote(settings):
        require_java()
    with _without_noise():
        from laminar_dagster.spark.session import open_session

        return open_session(settings, written=written, withheld=withheld, is_brief=is_brief)


def is_remote(settings: Mapping[str, str]) -> bool:
    """Whether Spark is a Connect server, and not to be started here."""
    return "spark.remote" in settings or "SPARK_REMOTE" in os.environ


def require_java() -> None:
    """Refuse to start Spark without a Java: its own words for it are a page long.

    Raises:
        JavaMissing: There is none.
    """
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(Path(home, "bin", "java"), os.X_OK):
        raise JavaMissing(f"JAVA_HOME is {home}, which has no bin/java")
    if not home and shutil.which("java") is None:
        raise JavaMissing("`java` is not on the PATH, and JAVA_HOME is not set")


@contextlib.contextmanager
def _without_noise() -> Iterator[None]:
    """Read what Java will write to standard error, and pass on all but the usual lines.

    Java keeps the end of the pipe that it is started with; a thread reads the other end for as
    long as Java lives.
    """
    if os.environ.get("LAMINAR_DEBUG") == "1":
        yield
        return
    reader, writer = os.pipe()
    ours = os.dup(2)
    os.dup2(writer, 2)
    os.close(writer)
    threading.Thread(target=_pass_on, args=(reader, ours), daemon=True).start()
    try:
        yield
    finally:
        os.dup2(ours, 2)


def _pass_on(reader: int, ours: int) -> None:
    with os.fdopen(reader, "rb") as lines:
        for line in lines:
            if not any(noise in line for noise in _NOISE):
                with contextlib.suppress(OSError):
                    os.write(ours, line)
    os.close(ours)
