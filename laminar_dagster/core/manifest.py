"""The manifest: a checkpoint exists if and only if its manifest does.

It names every file of the state with size and SHA-256, the positions of each source, and what each
sink is to commit. It is self-contained: files that an earlier checkpoint wrote are listed too, with
their origin, so neither a reader nor the garbage collector has to walk through old manifests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate, chain, zip_longest
from typing import Annotated

from msgspec import Meta, field

from laminar_dagster.core import layout
from laminar_dagster.core.additions import AddedPartial
from laminar_dagster.core.document import (
    FORMAT_VERSION,
    Document,
    Natural,
    Record,
    Sha256,
    Text,
    Timestamp,
    require_utc,
)
from laminar_dagster.core.errors import (
    DeltaWithoutBase,
    InvalidManifest,
    InvalidName,
    UnsupportedVersion,
)
from laminar_dagster.core.ids import (
    GENESIS,
    CheckpointId,
    EpochNumber,
    OperatorId,
    PartitionId,
    PipelineName,
    SinkId,
    SourceId,
)
from laminar_dagster.core.offsets import Gap, SourcePosition, lane_of
from laminar_dagster.core.reference import ReferencePin, require_each_once

Micros = Annotated[int, Meta(ge=-(2**63) + 1, le=2**63 - 1)]


class Origin(Record, frozen=True, kw_only=True):
    """The earlier checkpoint that wrote a file, and its epoch."""

    checkpoint_id: CheckpointId
    epoch: EpochNumber


class PartitionSnapshotEntry(Record, frozen=True, kw_only=True):
    """One file of one partition of an operator's state.

    Attributes:
        path: Its path within the folder of the checkpoint that wrote it.
        is_incremental: Whether it is a delta on top of the partition's files before it.
        origin: The checkpoint that wrote it; None for this one.
        event_time: The smallest and largest end of an open window in the file, in microseconds:
            the file need not be read until one of its windows closes.
    """

    partition_id: PartitionId
    path: Text
    size_bytes: Natural
    sha256: Sha256
    is_incremental: bool = False
    rows: Natural | None = None
    event_time: tuple[Micros, Micros] | None = None
    origin: Origin | None = None


class OperatorSnapshotEntry(Record, frozen=True, kw_only=True):
    """The state of one operator: for each partition a full file, then deltas in epoch order.

    Attributes:
        added: Every partial that was ever added to it after it began.
    """

    operator_id: OperatorId
    operator_type: Text
    state_backend: Text
    partitions: tuple[PartitionSnapshotEntry, ...]
    schema_fingerprint: Text | None = None
    added: tuple[AddedPartial, ...] = ()


class SourceReading(Record, frozen=True, kw_only=True):
    """Metrics of reading a source in this epoch, over all of its tasks.

    Attributes:
        fetch_micros: Time spent waiting for the source.
        decode_micros: Time spent decoding records into columns.
        pauses: How often a task stopped fetching until it had processed its buffer.
        errors: Errors that the source's client reported and recovered from by itself.
        ahead: Records whose event time was further ahead of the plan's clock than allowed. They
            did not move the watermark.
        chunk_times: A histogram of chunks by time to fetch and decode: the first counter is of
            those below a millisecond, the one at index i of those from 2**(i - 1) to below 2**i ms.
    """

    records: Natural = 0
    size_bytes: Natural = 0
    chunks: Natural = 0
    fetch_micros: Natural = 0
    decode_micros: Natural = 0
    pauses: Natural = 0
    errors: Natural = 0
    chunk_times: tuple[Natural, ...] = ()
    ahead: Natural = 0

    def plus(self, other: SourceReading) -> SourceReading:
        """The sum of both."""
        added = {
            name: getattr(self, name) + getattr(other, name)
            for name in self.__struct_fields__
            if name != "chunk_times"
        }
        times = zip_longest(self.chunk_times, other.chunk_times, fillvalue=0)
        return SourceReading(**added, chunk_times=tuple(map(sum, times)))

    def chunk_millis(self, share: float) -> int | None:
        """A percentile of the chunks' times in milliseconds; None if there were no chunks.

        Rounded up to a power of two: at most twice the exact value.
        """
        within = list(accumulate(self.chunk_times))
        if not within or not within[-1]:
            return None
        return 1 << next(
            place for place, chunks in enumerate(within) if chunks >= share * within[-1]
        )


def chunk_time(seconds: float) -> int:
    """The index in ``SourceReading.chunk_times`` of a chunk that took so many seconds."""
    return int(seconds * 1000).bit_length()


class SourceOffsetEntry(Record, frozen=True, kw_only=True):
    """A source after the epoch: one position for each of its partitions.

    Attributes:
        watermarks: One for each position, in microseconds; None before the first event.
        watermark: The source's own: the smallest of partitions that are not idle. Never decreases.
        gaps: Every loss that was ever accepted for this source.
        schema_ids: The schema registry's ids of the schemas of this epoch's records.
    """

    source_id: SourceId
    positions: tuple[SourcePosition, ...]
    path: Text
    watermarks: tuple[Micros | None, ...] = ()
    watermark: Micros | None = None
    schema_fingerprint: Text | None = None
    gaps: tuple[Gap, ...] = ()
    schema_ids: tuple[Natural, ...] = ()
    reading: SourceReading | None = None


class FileEntry(Record, frozen=True, kw_only=True):
    """A file that this checkpoint wrote."""

    path: Text
    size_bytes: Natural
    sha256: Sha256
    rows: Natural


class SinkEntry(Record, frozen=True, kw_only=True):
    """What a sink is to commit for this epoch.

    Attributes:
        joined_at: The first epoch the sink took part in; its ledger starts just before.
        output_sha256: A hash of the rows, however they are cut into files: equal on every re-run.
    """

    sink_id: SinkId
    joined_at: EpochNumber
    files: tuple[FileEntry, ...]
    output_sha256: Sha256
    schema_fingerprint: Text | None = None


class DeadLetterEntry(Record, frozen=True, kw_only=True):
    """The dead letters of a source in this epoch: bad records, and late ones."""

    source_id: SourceId
    files: tuple[FileEntry, ...]

    @property
    def late_rows(self) -> int:
        """The number of late records."""
        return sum(file.rows for file in self.files if layout.is_late_path(file.path))

    @property
    def dead_rows(self) -> int:
        """The number of bad records: not decodable, or too far ahead of the clock."""
        return sum(file.rows for file in self.files) - self.late_rows


class RecordCounts(Record, frozen=True, kw_only=True):
    """Record accounting: every record that was read is counted in exactly one other field.

    Attributes:
        added: Rows beyond one per record: an update of a table is two, the row before and after.
        skipped: Records that hold no row and are not bad, such as the tombstone after a delete.
    """

    read: Natural = 0
    processed: Natural = 0
    filtered: Natural = 0
    dead_lettered: Natural = 0
    late: Natural = 0
    added: Natural = 0
    skipped: Natural = 0

    @property
    def is_balanced(self) -> bool:
        """Whether every record that was read is accounted for."""
        ended = self.processed + self.filtered + self.dead_lettered + self.late + self.skipped
        return self.read + self.added == ended


class CheckpointManifest(Document, frozen=True, kw_only=True):
    """The commit point of an epoch's state and offsets.

    Attributes:
        plan_checksum: The checksum of the plan that was carried out.
        started_at: When the winning attempt began.
        completed_at: When its work was complete and prepared for commit.
        total_size_bytes: The size of all state files that the manifest names.
        is_unaligned: Always false for epochs, which are aligned by construction.
        watermark: The pipeline's watermark, in microseconds.
        references: The reference tables as the plan pinned them: later plans may pin the same
            copies.
    """

    checkpoint_id: CheckpointId
    epoch: EpochNumber
    pipeline: PipelineName
    fingerprint: Text
    plan_checksum: Sha256
    previous_checkpoint_id: CheckpointId | None
    started_at: Timestamp
    completed_at: Timestamp
    total_size_bytes: Natural
    counts: RecordCounts
    operators: tuple[OperatorSnapshotEntry, ...] = ()
    sources: tuple[SourceOffsetEntry, ...] = ()
    sinks: tuple[SinkEntry, ...] = ()
    dead_letters: tuple[DeadLetterEntry, ...] = ()
    watermark: Micros | None = None
    is_unaligned: bool = False
    metadata: dict[str, str] = field(default_factory=dict)
    references: tuple[ReferencePin, ...] = ()

    def __post_init__(self) -> None:
        """Refuse times that are not in UTC, and a reference table that is pinned twice."""
        require_each_once(self.references)
        require_utc("started_at", self.started_at)
        require_utc("completed_at", self.completed_at)

    def origin_of(self, part: PartitionSnapshotEntry) -> Origin:
        """The checkpoint that wrote a state file: an earlier one, or this one."""
        return part.origin or Origin(checkpoint_id=self.checkpoint_id, epoch=self.epoch)

    def files(self) -> Iterator[tuple[str, int, str]]:
        """The key, size and SHA-256 of every file the checkpoint consists of."""
        for operator in self.operators:
            for part in operator.partitions:
                home = self.origin_of(part).checkpoint_id
                yield layout.checkpoint_key(home, part.path), part.size_bytes, part.sha256
        written = [entry.files for entry in self.sinks]
        written += [entry.files for entry in self.dead_letters]
        for file in chain.from_iterable(written):
            key = layout.checkpoint_key(self.checkpoint_id, file.path)
            yield key, file.size_bytes, file.sha256

    def pinned_files(self) -> Iterator[tuple[str, int, str]]:
        """The key, size and SHA-256 of every file of its reference tables."""
        for pin in self.references:
            for file in pin.files:
                yield pin.key_of(file), file.size_bytes, file.sha256

    def warnings(self) -> tuple[str, ...]:
        """What is odd but harmless."""
        if self.completed_at < self.started_at:
            return ("completed_at is before started_at: the machine's clock was set back",)
        return ()

    def validate(self) -> None:
        """Check that the manifest does not contradict itself.

        Raises:
            UnsupportedVersion: Another format.
            InvalidManifest: Says what is wrong.
            DeltaWithoutBase: A partition's files do not begin with a full one.
        """
        if self.version != FORMAT_VERSION:
            raise UnsupportedVersion("manifest", self.version, FORMAT_VERSION)
        problem = next(_problems(self), None)
        if problem:
            raise InvalidManifest(self.checkpoint_id, problem)
        for operator in self.operators:
            _check_chains(self, operator)


def _problems(manifest: CheckpointManifest) -> Iterator[str]:
    if manifest.epoch == GENESIS:
        yield "epochs are numbered from 1"
    if not manifest.operators and not manifest.sources:
        yield "it has neither operators nor sources"
    for noun, names in (
        ("operator", [entry.operator_id for entry in manifest.operators]),
        ("source", [entry.source_id for entry in manifest.sources]),
        ("sink", [entry.sink_id for entry in manifest.sinks]),
        ("dead letters of source", [entry.source_id for entry in manifest.dead_letters]),
    ):
        if len(set(names)) != len(names):
            yield f"it names a {noun} twice"
    for source in manifest.sources:
        yield from _problems_of_source(source)
    for sink in manifest.sinks:
        if not GENESIS < sink.joined_at <= manifest.epoch:
            yield f"sink {sink.sink_id} joins after the epoch that already uses it"
        yield from _problems_of_files(sink.files, f"staged/{sink.sink_id}/")
    for letters in manifest.dead_letters:
        yield from _problems_of_files(letters.files, f"dead_letters/{letters.source_id}/")
    sizes = sum(part.size_bytes for entry in manifest.operators for part in entry.partitions)
    if manifest.total_size_bytes != sizes:
        yield f"total_size_bytes is {manifest.total_size_bytes}, the files add up to {sizes}"
    if not manifest.counts.is_balanced:
        yield "the record counts do not add up"


def _problems_of_source(source: SourceOffsetEntry) -> Iterator[str]:
    if source.path != layout.offsets_path(source.source_id):
        yield f"source {source.source_id} has the path {source.path!r}"
    lanes = {lane_of(position) for position in source.positions}
    if len(lanes) != len(source.positions):
        yield f"source {source.source_id} has two positions in one partition"
    if source.watermarks and len(source.watermarks) != len(source.positions):
        yield f"source {source.source_id} needs one watermark for each position"


def _problems_of_files(files: tuple[FileEntry, ...], folder: str) -> Iterator[str]:
    paths = [file.path for file in files]
    if len(set(paths)) != len(paths):
        yield f"it names a file below {folder} twice"
    for path in paths:
        try:
            layout.check_path(path)
        except InvalidName as error:
            yield str(error)
        if not path.startswith(folder):
            yield f"the path {path!r} is not below {folder}"


def _check_chains(manifest: CheckpointManifest, operator: OperatorSnapshotEntry) -> None:
    chains: defaultdict[PartitionId, list[PartitionSnapshotEntry]] = defaultdict(list)
    for part in operator.partitions:
        chains[part.partition_id].append(part)
    for partition, files in chains.items():
        names = (
            layout.snapshot_path(operator.operator_id, partition),
            layout.delta_path(operator.operator_id, partition),
        )
        epoch = GENESIS
        for part in files:
            # A `.delta` may be listed first, as a full file, once all windows of the files before
            # it have closed and were dropped.
            if part.path not in names[1 if part.is_incremental else 0 :]:
                raise InvalidManifest(
                    manifest.checkpoint_id,
                    f"operator {operator.operator_id} has the path {part.path!r}",
                )
            if part.is_incremental and epoch == GENESIS:
                raise DeltaWithoutBase(operator.operator_id, partition)
            problem = _problem_of_file(manifest, part, epoch)
            if problem:
                where = f"operator {operator.operator_id}, partition {partition}"
                raise InvalidManifest(manifest.checkpoint_id, f"{where}: {problem}")
            epoch = manifest.origin_of(part).epoch


def _problem_of_file(
    manifest: CheckpointManifest, part: PartitionSnapshotEntry, below: EpochNumber
) -> str:
    if part.origin and part.origin.checkpoint_id == manifest.checkpoint_id:
        return "a file of this checkpoint is said to be of an earlier one"
    if part.origin and part.origin.epoch >= manifest.epoch:
        return f"a file is of epoch {part.origin.epoch}, which is not earlier"
    if manifest.origin_of(part).epoch <= below:
        return "files are not in epoch order"
    if not part.is_incremental and below != GENESIS:
        return "a full file stands above others"
    if part.event_time and part.event_time[0] > part.event_time[1]:
        return "its event times run backwards"
    return ""
