"""The Java process of a local Spark: it ignores stop signals, and its end raises ``SparkLost``.

Service managers, ``timeout`` and terminals signal a whole process group. If Java or the Python
workers ended at once, the current epoch could not be finished. They end with this process: Java
when its standard input is closed, the workers with Java.
"""

# pyspark has no public access to its Java gateway. The private names are stable since Spark 2.
# ruff: noqa: SLF001

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from typing import Final

from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from laminar_dagster.core.errors import SparkLost

# The connection breaks shortly before the process is gone: wait so long for its exit code.
_END_SECONDS: Final = 5.0


def ignore_stop_signals(session: SparkSession) -> None:
    """Make Java ignore SIGTERM sent to its process group. It ignores SIGINT from its start."""
    jvm = session.sparkContext._jvm
    assert jvm is not None
    jvm.sun.misc.Signal.handle(jvm.sun.misc.Signal("TERM"), jvm.sun.misc.SignalHandler.SIG_IGN)


@contextlib.contextmanager
def naming_lost_java() -> Iterator[None]:
    """Raise ``SparkLost`` in place of any error that is caused by the end of the Java process.

    Raises:
        SparkLost: The Java process has ended, or did not start.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, PySparkRuntimeError) and error.getCondition() == "JAVA_GATEWAY_EXITED":
            raise SparkLost("it ended while it started") from error
        how = _how_java_ended(error)
        if how:
            raise SparkLost(how) from error
        raise


def _how_java_ended(error: Exception) -> str:
    gateway = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:
        return ""
    if isinstance(error, Py4JNetworkError | OSError):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
    code = process.poll()
    if code is None:
        return ""
    return f"it was ended by signal {-code}" if code < 0 else f"it ended with code {code}"
