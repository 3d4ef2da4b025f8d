"""The reports of an epoch's tasks: decoded, and their record counts checked against each other."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from laminar_dagster.core.document import decode_part, encode_part
from laminar_dagster.core.errors import ComputeFailed, LaminarError
from laminar_dagster.core.gate import CONTRACT, RECORD_ACCOUNTING
from laminar_dagster.core.ids import CheckpointId, OperatorId, SinkId
from laminar_dagster.core.manifest import (
    FileEntry,
    PartitionSnapshotEntry,
    RecordCounts,
    SourceReading,
)
from laminar_dagster.core.ports import Violation
from laminar_dagster.spark.contracts import repeated_keys


@dataclass(frozen=True, slots=True)
class SplitReport:
    """The counts of the reader of a split.

    Attributes:
        attempt: The attempt that the split was read for.
    """

    source: str
    part: int
    attempt: str
    read: int
    passed: int
    late: int
    dead: int
    watermark: int | None
    files: tuple[FileEntry, ...]
    added: int
    skipped: int
    schema_ids: tuple[int, ...]
    reading: SourceReading

    @property
    def is_balanced(self) -> bool:
        """Whether every record was passed on, late, dead-lettered or skipped."""
        ended = self.passed + self.late + self.dead + self.skipped
        return self.read + self.added == ended


@dataclass(frozen=True, slots=True)
class Tally:
    """The numbers of records that an operator took, and that its filter dropped."""

    processed: int = 0
    filtered: int = 0


@dataclass(frozen=True, slots=True)
class EpochReports:
    """Everything the driver learns of an epoch."""

    splits: tuple[SplitReport, ...]
    tallies: Mapping[OperatorId, Tally]
    states: Mapping[OperatorId, tuple[PartitionSnapshotEntry, ...]]
    staged: Mapping[SinkId, tuple[FileEntry, ...]]
    schemas: Mapping[SinkId, str]
    broken: tuple[Violation, ...]

    def of(self, source: str) -> tuple[SplitReport, ...]:
        """The reports on one source."""
        return tuple(split for split in self.splits if split.source == source)

    def reading(self, source: str) -> SourceReading:
        """The reading metrics of a source, summed over its splits."""
        readings = (split.reading for split in self.of(source))
        return reduce(SourceReading.plus, readings, SourceReading())

    def counts(self, fed_by: Mapping[OperatorId, tuple[str, ...]]) -> RecordCounts:
        """The record accounting of the epoch.

        Where several views read a source, the view that drops the fewest records decides how many
        count as filtered; ``miscounts`` checks every view.

        Args:
            fed_by: As for ``miscounts``.
        """
        passed = sum(split.passed for split in self.splits)
        filtered = sum(
            self._dropped(source, fed_by) for source in {split.source for split in self.splits}
        )
        return RecordCounts(
            read=sum(split.read for split in self.splits),
            processed=passed - filtered,
            filtered=filtered,
            dead_lettered=sum(split.dead for split in self.splits),
            late=sum(split.late for split in self.splits),
            added=sum(split.added for split in self.splits),
            skipped=sum(split.skipped for split in self.splits),
        )

    def _dropped(self, source: str, fed_by: Mapping[OperatorId, tuple[str, ...]]) -> int:
        passed = sum(split.passed for split in self.of(source))
        kept = [
            self.tallies.get(operator, Tally()).processed
            for operator, sources in fed_by.items()
            if set(sources) == {source}
        ]
        return max(0, passed - max(kept, default=passed))

    def miscounts(
        self, fed_by: Mapping[OperatorId, tuple[str, ...]], splits: Mapping[str, int]
    ) -> tuple[Violation, ...]:
        """Violations: records or splits that were read but are not accounted for.

        Args:
            fed_by: The sources of each operator that takes records, each as often as it is read.
            splits: The number of splits of each source.
        """
        wrong = [
            _miscount(source, f"{len(self.of(source))} of {count} splits reported")
            for source, count in splits.items()
            if len(self.of(source)) != count
        ]
        wrong += [
            _miscount(split.source, f"split {split.part}: {split}")
            for split in self.splits
            if not split.is_balanced
        ]
        for operator, sources in fed_by.items():
            sent = sum(split.passed for source in sources for split in self.of(source))
            tally = self.tallies.get(operator, Tally())
            if sent != tally.processed + tally.filtered:
                wrong.append(_miscount(operator, f"{sent} records were sent, {tally} arrived"))
        return tuple(wrong)


def _miscount(subject: str, problem: str) -> Violation:
    return Violation(RECORD_ACCOUNTING, subject, problem)


def sort_out(texts: Iterable[str], attempt: CheckpointId) -> EpochReports:
    """Decode the reports of an attempt. A report that arrives twice, by two ways, counts once.

    Raises:
        ComputeFailed: A split was read for another attempt, as may happen when two processes share
            a Spark session. Its counts would balance, but they would be those of other records.
        LaminarError: An error that a task reported instead of its result.
    """
    splits: dict[tuple[str, int], SplitReport] = {}
    tallies: defaultdict[OperatorId, list[tuple[int, int]]] = defaultdict(list)
    states: defaultdict[OperatorId, list[PartitionSnapshotEntry]] = defaultdict(list)
    staged: defaultdict[SinkId, list[FileEntry]] = defaultdict(list)
    schemas: dict[SinkId, str] = {}
    broken: list[Violation] = []
    keys: list[Mapping[str, Any]] = []
    for report in map(json.loads, sorted(set(texts))):
        match report:
            case {"kind": str()}:
                raise LaminarError.from_record(report)
            case {"source": source, "part": part}:
                splits[source, part] = _split(report)
                if report["attempt"] != attempt:
                    reason = f"split {part} was read for the attempt {report['attempt']}"
                    raise ComputeFailed(source, f"{reason}, and not for {attempt}")
            case {"operator": operator, "state": state}:
                entry = decode_part(encode_part(state), PartitionSnapshotEntry, "state entry")
                states[OperatorId(operator)].append(entry)
            case {"operator": operator}:
                pair = (report["processed"], report["filtered"])
                tallies[OperatorId(operator)].append(pair)
            case {"keys": str()}:
                keys.append(report)
            case {"staged": view, "files": files}:
                broken += [Violation(CONTRACT, view, line) for line in report["broken"]]
                for sink, path in files:
                    staged[SinkId(sink)].append(_file({**report, "path": path}))
                    schemas[SinkId(sink)] = report["schema"]
    broken += [Violation(CONTRACT, view, line) for view, line in repeated_keys(keys)]
    return EpochReports(
        splits=tuple(splits[key] for key in sorted(splits)),
        tallies={
            operator: Tally(sum(kept for kept, _ in pairs), sum(lost for _, lost in pairs))
            for operator, pairs in tallies.items()
        },
        states={operator: tuple(entries) for operator, entries in states.items()},
        staged={
            sink: tuple(sorted(files, key=lambda file: file.path)) for sink, files in staged.items()
        },
        schemas=schemas,
        broken=tuple(broken),
    )


def _split(report: Mapping[str, Any]) -> SplitReport:
    return SplitReport(
        source=report["source"],
        part=report["part"],
        attempt=report["attempt"],
        read=report["read"],
        passed=report["passed"],
        late=report["late"],
        dead=report["dead"],
        watermark=report["watermark"],
        files=tuple(_file(file) for file in report["files"]),
        added=report["added"],
        skipped=report["skipped"],
        schema_ids=tuple(report["schema_ids"]),
        reading=SourceReading(
            records=report["read"],
            size_bytes=report["bytes"],
            chunks=report["chunks"],
            fetch_micros=report["fetch_micros"],
            decode_micros=report["decode_micros"],
            pauses=report["pauses"],
            errors=report["errors"],
            chunk_times=tuple(report["chunk_times"]),
            ahead=report["ahead"],
        ),
    )


def _file(report: Mapping[str, Any]) -> FileEntry:
    return FileEntry(
        path=report["path"],
        size_bytes=report["size_bytes"],
        sha256=report["sha256"],
        rows=report["rows"],
    )
