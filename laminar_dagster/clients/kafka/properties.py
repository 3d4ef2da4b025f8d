"""Checks librdkafka's properties by asking librdkafka itself.

No connection and no client is made: a property that librdkafka cannot know is set last, so it
always fails there, unless it has failed on an earlier one. Files that properties name are only
checked when a real client is made, on the machine that makes it.
"""

from __future__ import annotations

import ctypes
import difflib
import functools
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import confluent_kafka
from confluent_kafka import Consumer, KafkaException

from laminar_dagster.clients.kafka.settings import without_secrets
from laminar_dagster.core.errors import InvalidConfig

PASS_THROUGH: Final = "kafka."

_LAST: Final = "laminar.last.property"
_UNKNOWN: Final = "No such configuration property"
# A property of the Python client, not of librdkafka: an object, which no text can be.
_OBJECTS: Final = frozenset({"logger"})
_ROW: Final = re.compile(r"^([a-z][a-z0-9._]*) +\|", re.MULTILINE)
_READ_BYTES: Final = 1 << 20


def property_mistakes(options: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Find the librdkafka properties of a source or sink that librdkafka refuses.

    Args:
        options: All options of the ``WITH``.

    Yields:
        The option, the problem, and the remedy.
    """
    for option, text in options.items():
        if option.startswith(PASS_THROUGH):
            found = problem_with(option.removeprefix(PASS_THROUGH), text)
            if found is not None:
                yield option, *found


def problem_with(name: str, text: str) -> tuple[str, str] | None:
    """The problem with a property and its remedy; None if librdkafka accepts it."""
    try:
        Consumer({"group.id": _LAST, name: text, _LAST: ""})
    except KafkaException as error:
        said = error.args[0].str().strip()
    except (TypeError, ValueError, AttributeError):
        # The Python client expects a function or a dictionary for this name.
        said = _UNKNOWN
    else:
        raise AssertionError(f"librdkafka knows {_LAST}")
    if _LAST in said and name not in _OBJECTS:
        return None
    shown = f"{PASS_THROUGH}{name[:80]}"
    if _UNKNOWN not in said:
        return f"`{shown}`: {without_secrets(said, {name: text})}", ""
    near = difflib.get_close_matches(name, names(), n=1, cutoff=0.7)
    hint = f"did you mean `{PASS_THROUGH}{near[0]}`?" if near else "see CONFIGURATION.md of it"
    return f"librdkafka has no property `{name[:80]}` (option `{shown}`)", hint


@functools.cache
def names() -> tuple[str, ...]:
    """The names of all librdkafka properties, for hints; empty where they cannot be listed.

    librdkafka lists them only by printing its manual to a C file: a dump of a configuration omits
    properties without a value.
    """
    try:
        library, system = ctypes.CDLL(str(confluent_kafka.cimpl.__file__)), ctypes.CDLL(None)
        system.tmpfile.restype = ctypes.c_void_p
        show, files = library.rd_kafka_conf_properties_show, system.tmpfile()
    except (OSError, AttributeError):
        return ()
    if not files:
        return ()
    file = ctypes.c_void_p(files)
    try:
        show(file)
        system.fflush(file)
        manual = os.pread(system.fileno(file), _READ_BYTES, 0).decode(errors="replace")
    finally:
        system.fclose(file)
    return tuple(dict.fromkeys(_ROW.findall(manual)))


@contextmanager
def refused_settings(who: str, settings: Mapping[str, Any]) -> Iterator[None]:
    """Translate errors of making a client, for example for a file that does not exist.

    Args:
        who: The source or sink, for errors.
        settings: The settings, whose secrets are kept out of errors.

    Raises:
        InvalidConfig: librdkafka refuses the settings.
    """
    try:
        yield
    except (KafkaException, ValueError, TypeError) as error:
        reason = error.args[0]
        said = reason.str() if isinstance(error, KafkaException) else str(reason)
        texts = {name: value for name, value in settings.items() if isinstance(value, str)}
        raise InvalidConfig(who, f"librdkafka says: {without_secrets(said, texts)}") from None
