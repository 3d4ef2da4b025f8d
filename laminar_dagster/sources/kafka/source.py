"""Kafka topics as a source: every partition of a topic is a partition of the source.

An epoch's ranges end at the last stable offset, which is queried once. Partitions are assigned, not
negotiated with a consumer group: other readers of the topic, and rebalances, change nothing. The
group's offsets are committed after the sinks have committed.

The plan pins the ids of the cluster and of every topic. A topic that was created anew, is gone, or
holds less than was read of it raises an error, and so do records that Kafka has deleted before they
were read, unless ``on_gap`` accepts that.

A partition without new messages is quiet since the first plan that found it so, by the plans'
clocks: timestamps that producers wrote do not matter. When it is quiet for ``idle_timeout``, it is
idle, and no longer holds back the watermark.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

import pyarrow as pa

from laminar_dagster.clients.kafka.asker import Asker
from laminar_dagster.clients.kafka.cluster import Cluster, Lane
from laminar_dagster.clients.kafka.settings import client_settings
from laminar_dagster.config.model import SourceTable
from laminar_dagster.core.document import require_utc
from laminar_dagster.core.errors import (
    AcknowledgeFailed,
    InvalidConfig,
    LaminarError,
    SeekFailed,
    SourceReplaced,
)
from laminar_dagster.core.health import HealthReport
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import (
    Gap,
    KafkaIdentity,
    KafkaPosition,
    SourceIdentity,
    SourcePosition,
    SourceRange,
)
from laminar_dagster.core.plan import Quiet, SourcePlan
from laminar_dagster.core.ports import Admission, GroupOffsets
from laminar_dagster.sources.formats.arrow_types import arrow_schema
from laminar_dagster.sources.kafka.admission import Waiting, admit
from laminar_dagster.sources.kafka.decoding import MessageDecoder
from laminar_dagster.sources.kafka.fetching import way_to_fetch
from laminar_dagster.sources.kafka.health import PartitionLag, report
from laminar_dagster.sources.kafka.message_sizes import mean_sizes
from laminar_dagster.sources.kafka.options import KafkaOptions, read_options, require_columns
from laminar_dagster.sources.kafka.reader import KafkaSplitReader, wanted_by
from laminar_dagster.sources.kafka.schema_check import schema_problem
from laminar_dagster.sources.kafka.topics import Look, Topics

log = logging.getLogger(__name__)

CONNECTOR: Final = "kafka"

# With this few messages, sizes need not be sampled to keep the limit.
_FEW: Final = 100


class KafkaSource:
    """Implements ``core.ports.Source``."""

    def __init__(self, source_id: SourceId, schema: pa.Schema, options: KafkaOptions) -> None:
        """Describe the source; does no I/O."""
        self._source_id = source_id
        self._schema = schema
        self._options = options
        self._settings = client_settings(options.bootstrap_servers, options.properties)
        patience = options.connect_timeout.total_seconds()
        self._cluster = Cluster(Asker.source(source_id), self._settings, patience)
        self._topics = Topics(str(source_id), self.address, options, self._cluster)

    @classmethod
    def from_table(
        cls, table: SourceTable, project: Path, defaults: Mapping[str, str]
    ) -> KafkaSource:
        """Build the source of a ``CREATE SOURCE TABLE … WITH (connector = 'kafka', …)``.

        Args:
            table: The statement.
            project: The folder that relative paths start from.
            defaults: Options from the pipeline, for those that the source does not set itself.

        Raises:
            InvalidConfig: Lists every mistake in the options, or names an unsupported column.
        """
        where = str(table.place)
        given = dict(defaults)
        if "watermark.idle.timeout.ms" in table.options:
            given.pop("idle.timeout", None)
        options = read_options({**given, **table.options}, where, project)
        require_columns(options, tuple(each.name for each in table.declared), where)
        name = str(table.source_id)
        try:
            schema = arrow_schema(table.columns)
            # Built only to check that the columns match the formats.
            MessageDecoder(schema, options, name)
        except ValueError as error:
            raise InvalidConfig(where, f"source {name}: {error}") from None
        except InvalidConfig as error:
            problem = f"{error.where}: {error.problem}"
            raise InvalidConfig(where, problem, error.suggestion) from None
        return cls(table.source_id, schema, options)

    @property
    def source_id(self) -> SourceId:
        """The source's name within the pipeline."""
        return self._source_id

    @property
    def address(self) -> str:
        """The servers and the topics."""
        servers = ",".join(sorted(self._options.bootstrap_servers.replace(" ", "").split(",")))
        topics = ",".join(sorted(self._options.topics)) or self._options.topic_pattern
        return f"kafka://{servers}/{topics}"

    @property
    def schema(self) -> pa.Schema:
        """The columns of the reader's chunks, with those that the options add."""
        return self._schema

    def plan(
        self,
        previous: SourcePlan | None,
        start: tuple[SourcePosition, ...],
        limits: Admission,
        clock: datetime,
    ) -> SourcePlan:
        """Choose how far to read each partition.

        Raises:
            SourceReplaced: The cluster or a topic is another, or holds less than was read of it.
            RetentionExpired: Records were deleted before they were read.
            SourceUnavailable: The cluster cannot be reached.
            AuthFailed: The cluster refuses the credentials.
            InvalidConfig: A topic does not exist, or ``auto.offset.reset`` is ``none`` and the
                group has no offset.
        """
        require_utc("clock", clock)
        known = self._offsets(start)
        look = self._topics.look(previous)
        begins = self._begins(known, look, is_first=previous is None and not known)
        gaps = self._gaps(begins, look)
        for gap in gaps:
            if isinstance(gap.lost.end, KafkaPosition):
                begins[gap.lost.end.topic, gap.lost.end.partition] = gap.lost.end.offset
        ends = self._ends(begins, look, limits)
        quiet = _quiet(previous, begins, look, clock)
        timeout = self._options.idle_timeout
        idle = [
            each.position for each in quiet if timeout is not None and clock - each.since >= timeout
        ]
        self._warn_of_retention(begins, look)
        return SourcePlan(
            source_id=self._source_id,
            identity=look.identity,
            ranges=tuple(_range(lane, begins[lane], ends[lane]) for lane in sorted(begins)),
            idle=tuple(idle),
            gaps=tuple(gaps),
            quiet=quiet,
        )

    def verify(self, plan: SourcePlan) -> None:
        """Check that the topics are those of the plan, and still hold its ranges."""
        look = self._topics.look(plan)
        for part in plan.ranges:
            if not part.is_empty:
                lane, start, end = self._bounds(part)
                look.require_held(lane, start)
                look.require_reached(lane, end)

    def require_not_replaced(self, plan: SourcePlan) -> None:
        """See ``ReadByName``: consumers know a topic by its name alone."""
        self._topics.require_not_replaced(plan)

    def identity(self) -> KafkaIdentity:
        """The ids of the cluster and of the topics."""
        return self._topics.look(None).identity

    def splits(self, part: SourceRange) -> tuple[SourceRange, ...]:
        """Cut a range into pieces of about ``split.records`` offsets."""
        lane, start, end = self._bounds(part)
        size = self._options.split_records
        if start == end:
            return ()
        if size is None or end - start <= size:
            return (part,)
        pieces = -(-(end - start) // size)
        edges = [start + (end - start) * number // pieces for number in range(pieces + 1)]
        return tuple(_range(lane, one, two) for one, two in pairwise(edges))

    def reader(self) -> KafkaSplitReader:
        """A reader for the executors, which must reach the brokers under the same names."""
        return KafkaSplitReader(
            str(self._source_id), self._schema, self._options, dict(self._settings)
        )

    def check_seek(self, position: SourcePosition) -> None:
        """Find out whether reading can resume at a position.

        Raises:
            RetentionExpired: The record at the position was deleted.
            SourceReplaced: The partition is gone, or shorter.
        """
        ((lane, offset),) = self._offsets((position,)).items()
        look = self._topics.look(None)
        look.require_reached(lane, offset)
        look.require_held(lane, offset)

    def acknowledge(self, positions: tuple[SourcePosition, ...]) -> None:
        """Commit the group's offsets, for lag tools.

        Raises:
            AcknowledgeFailed: The offsets were not committed.
        """
        offsets = self._offsets(positions)
        if not offsets:
            return
        try:
            self._cluster.commit(self._options.group_id, offsets)
        except LaminarError as error:
            raise AcknowledgeFailed(self._source_id, str(error)) from error

    def group_offsets(
        self, identity: SourceIdentity, positions: tuple[SourcePosition, ...]
    ) -> GroupOffsets | None:
        """The group's offsets for positions, for a sink on the same cluster to commit."""
        if not isinstance(identity, KafkaIdentity):
            return None
        return GroupOffsets(identity.cluster_id, self._options.group_id, positions)

    def health(self, positions: tuple[SourcePosition, ...]) -> HealthReport:
        """Whether the cluster answers, and how far the positions are behind."""
        options = self._options
        details = {
            "group_id": options.group_id,
            "topics": ", ".join(sorted(options.topics)) or options.topic_pattern or "",
            "reader": way_to_fetch(options.reader, wanted_by(options)),
        }
        try:
            known = self._offsets(positions)
            _, brokers = self._cluster.describe()
            look = self._topics.look(None)
        except LaminarError as error:
            return HealthReport.unreachable(error, details)
        partitions = [
            PartitionLag(lane[0], lane[1], known.get(lane), edges.earliest, edges.end)
            for lane, edges in sorted(look.edges.items())
        ]
        problem = schema_problem(self._schema, options, look.topics, self.address)
        return report(brokers, partitions, {**details, "cluster_id": look.cluster_id}, problem)

    # --- where to begin and to end ---------------------------------------------------------------

    def _begins(self, known: Mapping[Lane, int], look: Look, *, is_first: bool) -> dict[Lane, int]:
        """Where each partition resumes; a new partition begins at its start."""
        gone = sorted(known.keys() - look.edges.keys())
        if gone:
            topic, partition = gone[0]
            expected = f"partition {partition} of topic {topic}"
            raise SourceReplaced(self._source_id, expected, "fewer partitions")
        if is_first:
            return self._first_begins(look)
        return {lane: known.get(lane, edges.earliest) for lane, edges in look.edges.items()}

    def _first_begins(self, look: Look) -> dict[Lane, int]:
        options = self._options
        lanes = sorted(look.edges)
        stood: dict[Lane, int] = {}
        if options.group_offsets == "resume" or options.auto_offset_reset == "none":
            stood = self._cluster.group_offsets(options.group_id, lanes)
        unknown = [lane for lane in lanes if lane not in stood]
        if unknown and options.auto_offset_reset == "none":
            topic, partition = unknown[0]
            problem = f"group {options.group_id} holds no offset of {topic}/{partition}"
            hint = "set `auto.offset.reset` to earliest or latest"
            raise InvalidConfig(self.address, f"{problem}, and `auto.offset.reset` is none", hint)
        if stood:
            text = "source %s begins where group %s stands, in %d of %d partitions"
            log.info(text, self._source_id, options.group_id, len(stood), len(lanes))
        latest = options.auto_offset_reset == "latest"
        return {
            lane: stood.get(lane, edges.end if latest else edges.earliest)
            for lane, edges in look.edges.items()
        }

    def _gaps(self, begins: Mapping[Lane, int], look: Look) -> list[Gap]:
        """What was deleted before it was read, if ``on_gap`` accepts it."""
        gaps: list[Gap] = []
        for lane, start in sorted(begins.items()):
            edges = look.edges[lane]
            look.require_reached(lane, start)
            if start >= edges.earliest:
                continue
            if self._options.on_gap != "earliest":
                look.require_held(lane, start)
            reason = f"{lane[0]}/{lane[1]}: deleted by retention before it was read"
            gaps.append(Gap(lost=_range(lane, start, edges.earliest), reason=reason))
        return gaps

    def _ends(self, begins: Mapping[Lane, int], look: Look, limits: Admission) -> dict[Lane, int]:
        ahead = {lane: look.edges[lane].end - start for lane, start in begins.items()}
        lanes = [lane for lane in sorted(ahead) if ahead[lane]]
        if not lanes or (limits.max_records is None and limits.max_bytes is None):
            return {lane: look.edges[lane].end for lane in begins}
        sizes: dict[Lane, float] = {}
        if limits.max_bytes is not None and sum(ahead.values()) > _FEW:
            sizes = mean_sizes(begins, {lane: ahead[lane] for lane in lanes}, self._settings)
        smallest = 1.0 if limits.max_bytes is None else max(1.0, limits.max_bytes / _FEW)
        waiting = [Waiting(lane, ahead[lane], sizes.get(lane, smallest)) for lane in lanes]
        taken = admit(waiting, limits)
        return {lane: start + taken.get(lane, 0) for lane, start in begins.items()}

    def _warn_of_retention(self, begins: Mapping[Lane, int], look: Look) -> None:
        for (topic, partition), start in sorted(begins.items()):
            edges = look.edges[topic, partition]
            lag = PartitionLag(topic, partition, start, edges.earliest, edges.end)
            if lag.headroom is not None and lag.headroom < self._options.retention_warning:
                text = "source %s: %s/%d is about to lose records unread: %d wait, %d are behind us"
                behind = start - edges.earliest
                log.warning(text, self._source_id, topic, partition, lag.lag, behind)

    # --- positions --------------------------------------------------------------------------------

    def _offsets(self, positions: tuple[SourcePosition, ...]) -> dict[Lane, int]:
        found: dict[Lane, int] = {}
        for position in positions:
            if not isinstance(position, KafkaPosition):
                reason = f"{type(position).__name__} is not a position in a topic"
                raise SeekFailed(self._source_id, reason)
            found[position.topic, position.partition] = position.offset
        return found

    def _bounds(self, part: SourceRange) -> tuple[Lane, int, int]:
        ((lane, start),) = self._offsets((part.start,)).items()
        ((_, end),) = self._offsets((part.end,)).items()
        return lane, start, end


def _range(lane: Lane, start: int, end: int) -> SourceRange:
    return SourceRange(start=_position(lane, start), end=_position(lane, end))


def _position(lane: Lane, offset: int) -> KafkaPosition:
    return KafkaPosition(topic=lane[0], partition=lane[1], offset=offset)


def _quiet(
    previous: SourcePlan | None, begins: Mapping[Lane, int], look: Look, clock: datetime
) -> tuple[Quiet, ...]:
    """The partitions without unread messages, and since which plan's clock."""
    before: dict[Lane, datetime] = {}
    for each in previous.quiet if previous else ():
        if isinstance(each.position, KafkaPosition):
            before[each.position.topic, each.position.partition] = each.since
    return tuple(
        Quiet(position=_position(lane, start), since=before.get(lane, clock))
        for lane, start in sorted(begins.items())
        if start == look.edges[lane].end
    )
