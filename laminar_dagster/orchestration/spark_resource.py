"""The Spark session of a pipeline, as a Dagster resource: dagster-pyspark's, with our settings."""

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

    Dagster shows a resource's configuration. So of a setting that is, or may hold, a secret it
    gets to know the name only.

    Args:
        settings: Of Spark, from the pipeline's file.
        written: The same, ``${NAME}`` not filled in.
        withheld: Variables that the processes of Spark have no need of.
    """
    secret = secret_names(written)

    class StreamSpark(LazyPySparkResource):
        """Spark as epochs need it: local by default, or a Spark Connect server."""

        def _init_session(self) -> None:
            """Whoever asks for the session or the context has it started when there is none."""
            from laminar_dagster.spark.session import open_session

            self._spark_session = open_session(
                {
                    name: settings[name] if value == HIDDEN else value
                    for name, value in self.spark_config.items()
                },
                written=written,
                withheld=withheld,
            )

    return StreamSpark(
        spark_config={name: HIDDEN if name in secret else value for name, value in settings.items()}
    )


def interruptibly(work: Callable[[], ResultT]) -> ResultT:
    """Do work that has Spark compute, in a thread of its own; this one can be interrupted.

    When a run is terminated, Dagster raises an exception in the main thread. In the middle of a
    call to Spark's JVM it would leave the connection in disorder, and wait for the job all the
    same. Here it finds a thread that only waits, and that then has Spark cancel what it computes.
    """
    result: Future[ResultT] = Future()

    def carry_out() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    try:
        # A daemon: whatever Spark does, it does not keep the process from ending.
        threading.Thread(target=carry_out, name="spark-work", daemon=True).start()
        # A signal that another thread gets wakes nobody who waits without an end.
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
