"""The statements of a pipeline's files, as parsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from laminar_dagster.config.model import Column
from laminar_dagster.config.sql.text import Statement
from laminar_dagster.core.definition import OnAdded

ObjectKind = Literal["source", "reference table", "view", "sink"]


@dataclass(frozen=True, slots=True)
class Name:
    """A name and its place.

    Attributes:
        column: Its column in the line, if ``where`` has none; 0 if it is unknown.
    """

    text: str
    where: str
    line: int
    column: int = 0

    @property
    def exactly(self) -> str:
        """Its place with the column, to tell it from another on the same line."""
        return f"{self.where}:{self.column}" if self.column else self.where


@dataclass(frozen=True, slots=True)
class Options:
    """The options in ``WITH (…)``.

    Attributes:
        values: The values, with variables of the environment filled in.
        written: The values as written, with ``${NAME}`` still in them.
        places: The place of each option.
    """

    values: Mapping[str, str]
    written: Mapping[str, str]
    places: Mapping[str, str]
    where: str


@dataclass(frozen=True, slots=True)
class WatermarkFor:
    """``WATERMARK FOR column AS column - INTERVAL …``; without ``AS`` no delay is named."""

    column: Name
    delay_micros: int | None


@dataclass(frozen=True, slots=True)
class CreateSource:
    """``CREATE SOURCE TABLE name (…, PRIMARY KEY (…)) WITH (…)``."""

    name: Name
    columns: tuple[Column, ...]
    watermark: WatermarkFor | None
    options: Options
    key: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateReference:
    """``CREATE REFERENCE TABLE name (…, PRIMARY KEY (…)) WITH (…)``."""

    name: Name
    columns: tuple[Column, ...]
    key: tuple[Name, ...]
    options: Options


@dataclass(frozen=True, slots=True)
class Emit:
    """``EMIT ON WINDOW CLOSE``, or ``EMIT CHANGES WITH (state.ttl = '30d')``.

    Attributes:
        changes: Each change of a row is emitted, not each row once.
        ttl_micros: How long after its last event a key is kept.
        is_unbounded: The author asked to keep keys for ever (``state.ttl = 'unbounded'``).
        ttl_where: The place of ``state.ttl``; empty without it.
        on_added: What existing rows show for an aggregate that is added later (``state.added``).
        lateness_micros: How late records may be, beyond the watermark (``allowed.lateness``).
        lateness_where: The place of ``allowed.lateness``; empty without it.
    """

    where: str
    changes: bool = False
    ttl_micros: int | None = None
    is_unbounded: bool = False
    ttl_where: str = ""
    on_added: OnAdded | None = None
    lateness_micros: int = 0
    lateness_where: str = ""


@dataclass(frozen=True, slots=True)
class CreateView:
    """``CREATE MATERIALIZED VIEW name AS …``, or a bare query in ``models/``.

    Attributes:
        query: The tokens of the query alone.
        emit: The EMIT clause; None without one.
    """

    name: Name
    query: Statement
    emit: Emit | None = None


@dataclass(frozen=True, slots=True)
class CreateSink:
    """``CREATE SINK name FROM view WITH (…)``."""

    name: Name
    view: Name
    options: Options


@dataclass(frozen=True, slots=True)
class Show:
    """``SHOW SOURCES``, ``SHOW SINKS``, ``SHOW MATERIALIZED VIEWS``."""

    kind: ObjectKind


@dataclass(frozen=True, slots=True)
class Describe:
    """``DESCRIBE SOURCE name``."""

    kind: ObjectKind
    name: Name


@dataclass(frozen=True, slots=True)
class Drop:
    """``DROP SOURCE name``."""

    kind: ObjectKind
    name: Name


Definition = CreateSource | CreateReference | CreateView | CreateSink
Question = Show | Describe | Drop
