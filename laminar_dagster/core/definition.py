"""What a pipeline computes, kept beside its state: one document for each fingerprint.

A manifest names the fingerprint of the pipeline that wrote it. This document says what stood behind
the fingerprint, as far as state depends on it. So a changed pipeline can be told before it runs
whether it can go on with the state that is there: see ``core.deployment``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from laminar_dagster.core.document import Document, Natural, Record, Text
from laminar_dagster.core.ids import OperatorId, PipelineName

# What a row that was there shows of a partial that was added: see ``core.additions``.
OnAdded = Literal["null", "from_now"]

# An expression may be longer than a name.
Sql = Annotated[str, Meta(min_length=1)]


class OperatorDefinition(Record, frozen=True, kw_only=True):
    """What the state of one operator depends on. Expressions are Spark SQL in canonical form.

    Attributes:
        time: Of the event time that its rows depend on; None if on none.
        size_micros: Of its windows; 0 where there are none.
        offset_micros: By how much their edges are shifted.
        grows: Whether they begin every ``size`` and end every ``slide``.
        kept_as: How its state is kept by key: as a group, a window, a session, a rank, the two
            sides of a join or what an operator in Python keeps; None for windows that are only
            added to.
        gap_micros: After how long without an event a key is forgotten, or a session ends.
        weight: Of the rows that go in.
        lateness_micros: How long after the watermark has passed their end its windows close.
        keys: In the order by which buckets are chosen.
        partials: What the state holds for each window and key, such as ``sum(price)``.
        where: The filter of what goes in.
        reads: The sources, views and reference tables it is computed from, by name, and how each is
            read or defined.
        columns: The type of each column of a source or reference table that takes part, as
            ``source.column``.
        arguments: Those of the columns that go into partials and nowhere else.
        input: What the rows that go in are computed from, as far as they are used, as one digest:
            the same for the same rows, whatever else the views below it hold. None in documents
            of before it was written down.
        references: The reference tables among what it reads, by name, each with the digest of how
            it is declared. Another declaration is another copy. Empty, too, in documents of before
            it was written down.
        fixed: Those of them that have to stay as they are, because rows that are taken back meet
            them.
        on_added: What may become of a partial that is added to a state that is there: NULL in rows
            that it has missed something of, or whatever came from then on. None: nothing.
        state: Of an operator in Python: the types of the columns that it keeps for each key.
        code: The fingerprint of its code.
        version_of_state: What its author calls the meaning of its state.
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
    """Every operator with state of a pipeline."""

    pipeline: PipelineName
    fingerprint: Text
    buckets: Natural
    operators: tuple[OperatorDefinition, ...]
