"""Positions in the log, and in the snapshot that precedes it."""

from __future__ import annotations

from laminar_dagster.core.errors import SeekFailed
from laminar_dagster.core.ids import SourceId
from laminar_dagster.core.offsets import MysqlPosition, SnapshotProgress, progress_of
from laminar_dagster.core.snapshot import SourceSnapshot


def position_of(source_id: SourceId, position: object) -> MysqlPosition:
    """Check that a position is one in a binary log.

    Raises:
        SeekFailed: It belongs to another kind of source.
    """
    if not isinstance(position, MysqlPosition):
        raise SeekFailed(source_id, f"{type(position).__name__} is not a position in a binary log")
    return position


def within(end: MysqlPosition, number: int, rows: int) -> MysqlPosition:
    """The position ``rows`` rows into the snapshot that ends at a position of the log."""
    return MysqlPosition(
        binlog_file=end.binlog_file,
        binlog_position=end.binlog_position,
        gtid_set=end.gtid_set,
        snapshot=SnapshotProgress(number=number, rows=rows),
    )


def beginning_of(source_id: SourceId, snapshot: SourceSnapshot) -> MysqlPosition:
    """The first position of a snapshot; its end, if it is empty."""
    end = position_of(source_id, snapshot.position)
    return within(end, snapshot.number, 0) if snapshot.rows else end


def is_newer(snapshot: SourceSnapshot | None, position: MysqlPosition) -> bool:
    """Whether a snapshot was taken after a position."""
    return snapshot is not None and progress_of(snapshot.position)[:2] > progress_of(position)[:2]
