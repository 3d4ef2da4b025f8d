"""Where pyspark keeps Spark's jars and scripts, and the Java that runs them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from infra import java
from infra.errors import ServiceUnavailable


def spark_home(service: str) -> Path:
    """The folder of pyspark, which is a dependency of the project.

    Raises:
        ServiceUnavailable: It is not there, or has no jars.
    """
    found = importlib.util.find_spec("pyspark")
    home = Path(found.origin).parent if found and found.origin else None
    if home is None or not any((home / "jars").glob("spark-connect_*.jar")):
        raise ServiceUnavailable(service, "install pyspark 4 with its jars: `make setup`")
    return home


def java_home(service: str) -> Path:
    """A Java that Spark runs on.

    Raises:
        ServiceUnavailable: There is none.
    """
    found = java.find()
    if found is None:
        raise ServiceUnavailable(service, f"install Java {java.MINIMUM} or later")
    return found.home
