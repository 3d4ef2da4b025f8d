"""The declaration of a connector: what is known of it before it is used, and how it is built.

A declaration is light: its module imports no client of another system, its functions do. So the
options of a pipeline can be checked, and a missing extra named, before anything heavy is loaded.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from laminar_dagster.config.connectors import OptionCheck, SourceTraits
from laminar_dagster.config.model import ReferenceTable, SinkTable, SourceTable
from laminar_dagster.core.ids import PipelineName
from laminar_dagster.core.ports import ObjectStore, Reference, Sink, SnapshotKeeper, Source

# Raised whenever a plug-in that was written before would no longer work.
INTERFACE: Final = 1


def _nothing_wrong(_: Mapping[str, str]) -> Iterable[tuple[str, str, str]]:
    return ()


def _no_traits(_: Mapping[str, str]) -> SourceTraits:
    return SourceTraits()


@dataclass(frozen=True, slots=True)
class Extra:
    """Packages that a connector needs, and its distribution does not: an extra of it.

    Attributes:
        name: The extra's name, as in ``pip install "distribution[name]"``.
        modules: The modules that it installs and the connector imports.
        option: The option that asks for it.
        values: The values of this option that do; any, if there are none.
    """

    name: str
    modules: tuple[str, ...]
    option: str = "connector"
    values: frozenset[str] = frozenset()

    def is_wanted(self, options: Mapping[str, str]) -> bool:
        """Whether a connector with these options needs it."""
        return not self.values or options.get(self.option) in self.values

    def is_installed(self) -> bool:
        """Whether its modules are there. Imports none of them."""
        return all(map(_is_importable, self.modules))


def _is_importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What a source is built with, beside its own table.

    Attributes:
        project: Where relative paths begin.
        defaults: The pipeline's values of ``idle.timeout`` and ``on_gap``, for a source that sets
            none itself.
        snapshots: Stores the tables that a source of changes begins with.
    """

    project: Path
    defaults: Mapping[str, str]
    snapshots: SnapshotKeeper


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a sink is built with, beside its own table.

    Attributes:
        project: Where relative paths begin.
        pipeline: Whose sink it is: part of the key of its ledger.
    """

    project: Path
    pipeline: PipelineName


@dataclass(frozen=True, slots=True)
class ReferenceContext:
    """What a reference table is built with, beside its declaration.

    Attributes:
        project: Where relative paths begin.
    """

    project: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """What every declaration says.

    Attributes:
        GROUP: The group of entry points in which connectors of the kind are named.
        NOUN: What a connector of the kind is for, in messages.
        interface: The ``INTERFACE`` that it was written for, as a number.
        extras: The packages that it needs beside its distribution's own dependencies.
    """

    GROUP: ClassVar[str]
    NOUN: ClassVar[str]

    interface: int
    extras: tuple[Extra, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConnector(Connector):
    """A connector with the options of a ``WITH (…)``.

    Attributes:
        mistakes: Of options: each bad one, its problem, and what to do. Building the adapter
            refuses the same, but here the option's line in the file is known.
        doubts: Like ``mistakes``, for what is allowed but discouraged: warnings.
    """

    mistakes: OptionCheck = _nothing_wrong
    doubts: OptionCheck = _nothing_wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConnector(TableConnector):
    """Declares a connector of sources.

    Attributes:
        build: Makes the adapter. Opens nothing; raises ``InvalidConfig`` for wrong options.
        traits: What follows from the options. Ignores invalid values, which ``build`` refuses.
    """

    GROUP: ClassVar = "laminar.sources"
    NOUN: ClassVar = "source"

    build: Callable[[SourceTable, SourceContext], Source]
    traits: Callable[[Mapping[str, str]], SourceTraits] = _no_traits


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkConnector(TableConnector):
    """Declares a connector of sinks.

    Attributes:
        build: As of a ``SourceConnector``.
        system: What it writes to; the connector's own name, if empty. Only sinks of one system are
            compared by ``Sink.targets``, so connectors that write to the same system say the same.
    """

    GROUP: ClassVar = "laminar.sinks"
    NOUN: ClassVar = "sink"

    build: Callable[[SinkTable, SinkContext], Sink]
    system: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceConnector(TableConnector):
    """Declares a connector of reference tables.

    Attributes:
        build: As of a ``SourceConnector``.
    """

    GROUP: ClassVar = "laminar.references"
    NOUN: ClassVar = "reference table"

    build: Callable[[ReferenceTable, ReferenceContext], Reference]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConnector(Connector):
    """Declares a kind of store. Its name is the scheme of the URLs that it opens.

    Attributes:
        open: Opens the store at a URL without credentials and without a ``#``; the path is where
            relative paths begin. Sends no request yet. Raises ``InvalidConfig`` for a wrong URL.
    """

    GROUP: ClassVar = "laminar.stores"
    NOUN: ClassVar = "store"

    open: Callable[[str, Path], ObjectStore]
