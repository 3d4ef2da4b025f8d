"""Checks the declared columns against the newest schemas in the registry."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from laminar_dagster.core.errors import InvalidConfig, LaminarError
from laminar_dagster.sources.kafka import metadata
from laminar_dagster.sources.kafka.decoding import registry_of
from laminar_dagster.sources.kafka.options import KafkaOptions


def schema_problem(
    schema: pa.Schema, options: KafkaOptions, topics: Iterable[str], address: str
) -> LaminarError | None:
    """Why the topics cannot be read into the columns; None if nothing is wrong.

    The newest schema of each topic's subject ``<topic>-value`` is checked. A topic without such a
    subject is skipped.
    """
    registry = registry_of(options)
    if registry is None or options.format not in ("avro", "protobuf"):
        return None
    # Imported here: slow to import, and most sources have no registry.
    from laminar_dagster.clients.schema_registry import UnknownSchema
    from laminar_dagster.sources.formats.schema_discovery import mismatches

    others = {*options.key_columns, *metadata.NAMES}
    values = pa.schema([each for each in schema if each.name not in others])
    problems: list[str] = []
    for topic in topics:
        subject = f"{topic}-value"
        try:
            latest = registry.latest(subject)
            wrong = mismatches(values, latest, options.protobuf_message)
        except UnknownSchema:
            continue
        except ValueError as error:
            wrong = [str(error)]
        except LaminarError as error:
            return error
        problems += [f"{subject}: {each}" for each in wrong]
    if not problems:
        return None
    hint = "mend the columns, or the producer's schema; such records become dead letters"
    return InvalidConfig(address, "; ".join(problems[:5]), hint)
