"""What a pipeline computes, stored beside its state: one document for each fingerprint.

A manifest names the fingerprint of the pipeline that wrote it. This document describes the pipeline
behind the fingerprint, as far as state depends on it. From it ``core.deployment`` decides, before a
changed pipeline runs, whether it can go on with the existing state.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from laminar_dagster.core.document import Document, Natural, Record, Text
from laminar_dagster.core.ids import OperatorId, PipelineName

# What an existing row shows for a partial that was added: see ``core.additions``.
OnAdded = Literal["null", "from_now"]

# An expression may be longer than a name.
Sql = Annotated[str, Meta(min_length=1)]


class OperatorDefinition(Record, frozen=True, kw_only=True):
    """What the state of one operator depends on. Expressions are Spark SQL in canonical form.

    Attributes:
        time: The event time that its rows depend on; None if they depend on none.
        size_micros: The length of its windows; 0 where there are none.
        offset_micros: By how much the windows' edges are shifted.
        grows: Whether windows begin every ``size`` and end every ``slide`` (CUMULATE).
        kept_as: How its state is kept by key: as a group, a window, a session, a rank, the two
            sides of a join or the state of an operator in Python; None for windows that are
            emitted only when they close.
        gap_micros: After how long without an event a key expires, or a session ends.
        weight: The weight of the input's rows; None if there are no retractions.
        lateness_micros: How long after the watermark has passed their end its windows close.
        keys: The keys, in the order in which they are hashed into buckets.
        partials: What the state holds for each window and key, such as ``sum(price)``.
        where: The filter of the input.
        reads: The sources, views and reference tables it is computed from, by name, and how each is
            read or defined.
        columns: The type of each column of a source or reference table that it uses, as
            ``source.column``.
        arguments: The columns among them that are used in partials and nowhere else.
        input: A digest of what its input is computed from, without what it does not use: equal for
            equal rows, whatever other columns upstream views have. None in documents from before
            this field.
        references: The reference tables that it reads, by name, each with a digest of its
            declaration. Another declaration needs another copy. Also empty in documents from
            before this field.
        fixed: The reference tables that must never change, because retractions are joined with
            them.
        on_added: What existing rows show for a partial that is added: NULL, or only events from
            then on. None refuses such a change.
        state: For an operator in Python: the types of the columns that it keeps for each key.
        code: The fingerprint of its code.
        version_of_state: The version that its author gave to the meaning of its state.
    """

    operator_id: OperatorId
    time: Sql | None
    size_micros: Natural
    slide_micros: Natural
    keys: tuple[Sql, ...]
    partials: tuple[Sql, ...]
    reads: dict[str, str]
    columns: dict[str, str]
    arguments: tuple[str, ...] = ()
    where: Sql | None = None
    offset_micros: int = 0
    grows: bool = False
    kept_as: Literal["group", "window", "session", "rank", "join", "operator"] | None = None
    gap_micros: Natural | None = None
    weight: Sql | None = None
    input: str | None = None
    on_added: OnAdded | None = None
    lateness_micros: Natural = 0
    state: dict[str, str] = field(default_factory=dict)
    code: Text | None = None
    version_of_state: str = ""
    references: dict[str, str] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()


class PipelineDefinition(Document, frozen=True, kw_only=True):
    """Every stateful operator of a pipeline."""

    pipeline: PipelineName
    fingerprint: Text
    buckets: Natural
    operators: tuple[OperatorDefinition, ...]
