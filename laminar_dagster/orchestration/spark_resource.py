"""The Spark session of a pipeline, as a Dagster resource: dagster-pyspark's, with our settings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from dagster_pyspark import LazyPySparkResource

from laminar_dagster.config.variables import HIDDEN, has_variable, looks_secret


def spark_resource(settings: Mapping[str, str], written: Mapping[str, str]) -> LazyPySparkResource:
    """A resource whose session starts with the first epoch that is computed.

    Dagster shows a resource's configuration. So of a setting that is, or may hold, a secret it
    gets to know the name only.

    Args:
        settings: Of Spark, from the pipeline's file.
        written: The same, ``${NAME}`` not filled in.
    """
    secret = {
        name for name, text in written.items() if looks_secret(name, text) or has_variable(text)
    }

    class StreamSpark(LazyPySparkResource):
        """Spark as epochs need it: local by default, or a Spark Connect server."""

        @property
        def spark_session(self) -> Any:
            """The session of this process, started when it is first asked for."""
            from laminar_dagster.spark.session import open_session

            return open_session(
                {
                    name: settings[name] if value == HIDDEN else value
                    for name, value in self.spark_config.items()
                }
            )

    return StreamSpark(
        spark_config={name: HIDDEN if name in secret else value for name, value in settings.items()}
    )


@contextlib.contextmanager
def spark_stops_with_the_run() -> Iterator[None]:
    """When a run is terminated, what it has Spark compute ends as well, wherever Spark runs."""
    try:
        yield
    except Exception:
        raise
    except BaseException:
        from laminar_dagster.spark.session import interrupt_active

        interrupt_active()
        raise
