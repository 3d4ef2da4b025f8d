"""The peers: which versions, and how they get into environments of their own in the cache.

Nothing of them is installed beside the project. Versions are pinned, to some whose parts can be had
together and work together.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.kafka.contestants import protocol
from infra.cache import install_once
from infra.environments import python_with, run
from infra.maven import Artifact

_ROOT: Final = Path(protocol.__file__).parents[3]

SPARK: Final = "4.2.0"
# Those of 4.2.0 were not to be had. With these the rows are right.
_TOKENS: Final = "4.0.0"
_SPARK_AVRO: Final = "4.1.1"
FLINK: Final = "2.2.0"
FLINK_KAFKA: Final = "5.0.0-2.2"
# Those of 2.2.0 cannot be had with a checksum. With these the rows are right.
_FLINK_AVRO: Final = "2.1.0"
QUIX: Final = "3.28.1"
JDBC: Final = "42.7.8"

_SPARK_JARS: Final = (
    Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK),
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", _TOKENS),
    Artifact("org.apache.spark", "spark-avro_2.13", _SPARK_AVRO),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.2"),
    Artifact("org.apache.commons", "commons-pool2", "2.13.1"),
)
_JDBC_JARS: Final = (Artifact("org.postgresql", "postgresql", JDBC),)
_FLINK_KAFKA_JARS: Final = (Artifact("org.apache.flink", "flink-sql-connector-kafka", FLINK_KAFKA),)
_FLINK_JARS: Final = (
    *_FLINK_KAFKA_JARS,
    Artifact("org.apache.flink", "flink-sql-avro-confluent-registry", _FLINK_AVRO),
)
# One jar at a time, and nothing that it depends on: Spark's parent project names a mirror that may
# be out of reach.
_MAVEN: Final = (
    *("mvn", "--batch-mode", "--quiet", "--strict-checksums"),
    "org.apache.maven.plugins:maven-dependency-plugin:2.10:copy",
)


@dataclass(frozen=True, slots=True)
class Program:
    """How to start a contestant.

    Attributes:
        module: What Python runs.
        python: In which environment.
        environment: Variables added to those of this process.
    """

    module: str
    python: Path
    environment: Mapping[str, str]

    def command(self, cores: int) -> list[str]:
        """The whole command."""
        return [str(self.python), "-m", self.module, str(cores)]

    def variables(self) -> dict[str, str]:
        """The whole environment; the project's own folder is where its modules are found."""
        return {**os.environ, **self.environment, "PYTHONPATH": str(_ROOT)}


def own() -> Program:
    """This project."""
    return Program(f"{_CONTESTANTS}.own", Path(sys.executable), {})


def structured_streaming() -> Program:
    """Spark's own connector, in the project's Spark."""
    jars = _jars(f"bench-spark-{SPARK}", _SPARK_JARS)
    return Program(
        f"{_CONTESTANTS}.structured_streaming",
        Path(sys.executable),
        {"BENCH_SPARK_JARS": ",".join(str(jar) for jar in jars)},
    )


def spark_jdbc() -> Program:
    """Spark's writer to databases, in the project's Spark."""
    jars = _jars(f"bench-postgres-jdbc-{JDBC}", _JDBC_JARS)
    return Program(
        f"{_WRITERS}.spark_jdbc",
        Path(sys.executable),
        {"BENCH_SPARK_JARS": ",".join(str(jar) for jar in jars)},
    )


def flink() -> Program:
    """Flink SQL."""
    return _flink(f"{_CONTESTANTS}.flink", f"bench-flink-jars-{FLINK}", _FLINK_JARS)


def flink_kafka() -> Program:
    """Flink SQL, to write to Kafka: that needs fewer jars."""
    return _flink(f"{_WRITERS}.flink_kafka", f"bench-flink-kafka-{FLINK_KAFKA}", _FLINK_KAFKA_JARS)


def quix() -> Program:
    """Quix Streams."""
    python = python_with(f"bench-quix-{QUIX}", [f"quixstreams[avro]=={QUIX}"])
    return Program(f"{_CONTESTANTS}.quix", python, {})


_CONTESTANTS: Final = "bench.kafka.contestants"
_WRITERS: Final = "bench.sinks.contestants"


def _flink(module: str, name: str, artifacts: Sequence[Artifact]) -> Program:
    python = python_with(f"bench-flink-{FLINK}", [f"apache-flink=={FLINK}"])
    jars = _jars(name, artifacts)
    return Program(module, python, {"BENCH_FLINK_JARS": ";".join(jar.as_uri() for jar in jars)})


def _jars(name: str, artifacts: Sequence[Artifact]) -> list[Path]:
    """Just these jars: what they need else, Spark and Flink bring.

    Raises:
        ServiceUnavailable: They could not be fetched.
    """

    def build(folder: Path) -> None:
        for each in artifacts:
            wanted = f"-Dartifact={each.group}:{each.name}:{each.version}"
            run(name, [*_MAVEN, wanted, f"-DoutputDirectory={folder}"])

    return sorted(install_once(name, build).glob("*.jar"))
