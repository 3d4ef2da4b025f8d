"""The Java process of a local Spark: it outlives what asks us to stop, and its end has a name.

Service managers, ``timeout`` and terminals signal a whole group of processes. Were Java or the
Python workers to end at once, the epoch at hand could not be finished. They end with this process:
Java when its standard input does, the workers with Java.
"""

# pyspark shows its gateway to Java to nobody. Its names are stable since Spark 2.
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

# A connection breaks a moment before the process that held it is gone.
_END_SECONDS: Final = 5.0


def ignore_stop_signals(session: SparkSession) -> None:
    """Let Java go on when its group is asked to stop. SIGINT it ignores from its start."""
    jvm = session.sparkContext._jvm
    assert jvm is not None
    jvm.sun.misc.Signal.handle(jvm.sun.misc.Signal("TERM"), jvm.sun.misc.SignalHandler.SIG_IGN)


@contextlib.contextmanager
def naming_lost_java() -> Iterator[None]:
    """Tell whatever goes wrong for want of the Java process as just that.

    Raises:
        SparkLost: It has ended, or did not come up.
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
