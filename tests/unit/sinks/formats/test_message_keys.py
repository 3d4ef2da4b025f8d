"""Keys of messages in every format: two keys never share their bytes, nor one has several forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pytest

from laminar_dagster.clients.kafka.options import RegistryOptions
from laminar_dagster.sinks.changes import Unwritable, check_columns
from laminar_dagster.sinks.kafka.options import Format, KafkaSinkOptions
from laminar_dagster.sinks.kafka.serialising import form_of
from laminar_dagster.testing.key_kinds import KEY_KINDS, KeyKind
from tests.unit.sinks.key_values import NO_KEYS

FORMATS: Final[list[Format]] = ["json", "avro", "protobuf", "raw"]
# What a column of raw bytes may be made of.
RAW: Final[list[Callable[[pa.DataType], bool]]] = [
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
    pa.types.is_dictionary,
]


def keys_of(kind: KeyKind, key_format: Format) -> list[bytes]:
    """Each key by itself, and all of them in one batch: they must be the same."""
    options = KafkaSinkOptions(
        bootstrap_servers="broker:9092",
        topic="topic",
        mode="upsert",
        key_columns=kind.columns,
        key_format=key_format,
        registry=RegistryOptions(url="http://registry"),
    )
    check_columns(kind.schema("value"), options.key_of_rows)
    form = form_of("key", kind.schema("value"), options)

    def encode(rows: pa.Table) -> list[bytes]:
        found: list[bytes] = form.encode(rows, 1).to_pylist()
        return found

    together = encode(kind.table(kind.keys))
    assert together == [encoded for key in kind.keys for encoded in encode(kind.table([key]))]
    return together


def takes(kind: KeyKind, key_format: Format) -> bool:
    is_raw = len(kind.types) == 1 and any(fits(kind.types[0]) for fits in RAW)
    return kind.name not in NO_KEYS and (is_raw or key_format != "raw")


@pytest.mark.parametrize("key_format", FORMATS)
@pytest.mark.parametrize("name", KEY_KINDS)
def test_the_bytes_of_a_key_are_its_own(name: str, key_format: Format) -> None:
    kind = KEY_KINDS[name]
    if not takes(kind, key_format):
        with pytest.raises(Unwritable):
            keys_of(kind, key_format)
        return
    assert len({*keys_of(kind, key_format)}) == len(kind.keys)
