"""The Spark session of a pipeline, as dagster-pyspark's resource with the pipeline's settings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from typing import Final, TypeVar

from dagster_pyspark import LazyPySparkResource

from laminar_dagster.config.variables import HIDDEN, secret_names

ResultT = TypeVar("ResultT")

_LOOK_SECONDS: Final = 0.2
_STOP_SECONDS: Final = 10.0


def spark_resource(
    settings: Mapping[str, str], written: Mapping[str, str], withheld: Collection[str] = ()
) -> LazyPySparkResource:
    """A resource whose session starts with the first epoch that is computed.

    Dagster shows a resource's configuration, so values that are, or may hold, secrets are hidden
    from it.

    Args:
        settings: Spark's settings, from the pipeline's file.
        written: The same settings, with ``${NAME}`` not filled in.
        withheld: Environment variables that Spark's processes do not get.
    """
    secret = secret_names(written)

    class StreamSpark(LazyPySparkResource):
        """Spark as epochs need it: local by default, or a Spark Connect server."""

        def _init_session(self) -> None:
            """Start the session, when it or the context is first asked for."""
            from laminar_dagster.spark.session import open_session

            self._spark_session = open_session(
                {
                    name: settings[name] if value == HIDDEN else value
                    for name, value in self.spark_config.items()
                },
                written=written,
                withheld=withheld,
                # A process for each run computes one epoch. The warm worker says otherwise.
                is_brief=True,
            )

    return StreamSpark(
        spark_config={name: HIDDEN if name in secret else value for name, value in settings.items()}
    )


def interruptibly(work: Callable[[], ResultT]) -> ResultT:
    """Do work that uses Spark in a thread of its own, so that this one can be interrupted.

    When a run is terminated, Dagster raises an exception in the main thread. In the middle of a
    call to Spark's JVM it would break the connection, and still wait for the job. Here the main
    thread only waits, and on an exception has Spark cancel its jobs.
    """
    result: Future[ResultT] = Future()

    def carry_out() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    try:
        # A daemon thread: a call to Spark that hangs does not keep the process from ending.
        threading.Thread(target=carry_out, name="spark-work", daemon=True).start()
        # With a timeout: a signal that another thread receives would not end an endless wait.
        while not wait([result], timeout=_LOOK_SECONDS).done:
            pass
        return result.result()
    except BaseException:
        if not result.done():
            from laminar_dagster.spark.session import stop_computing

            stopping = threading.Thread(target=stop_computing, name="spark-stop", daemon=True)
            stopping.start()
            wait([result], timeout=_STOP_SECONDS)
        raise
