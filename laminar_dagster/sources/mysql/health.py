"""Health of a MySQL source: whether its server is set up, and how far behind the source is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from laminar_dagster.core.errors import DecodeFailed, LaminarError
from laminar_dagster.core.health import HealthReport, PartitionHealth
from laminar_dagster.core.offsets import MysqlPosition
from laminar_dagster.sources.mysql.events import DamagedLog
from laminar_dagster.sources.mysql.server_log import LogFiles, ServerLog, number_of

CHECKSUM: Final = "binlog_checksum"
_WITHOUT_CHECKSUMS: Final = (
    "its log has no checksums (binlog_checksum = NONE), so that damage to it may pass for changes;"
    " SET GLOBAL binlog_checksum = 'CRC32'"
)


def report(
    server: ServerLog,
    files: LogFiles,
    position: MysqlPosition | None,
    now: int,
    details: Mapping[str, str],
    problem: LaminarError | None,
) -> HealthReport:
    """The health of a source whose server answered.

    Args:
        server: The server, to look up the next event.
        files: The files of the log.
        position: Where the next epoch begins; None before the first.
        now: The server's clock, in seconds since 1970.
        details: Other details to report.
        problem: An error despite the answer.
    """
    file, place = files.end if position is None else _place(position)
    lag = files.bytes_from(file, place)
    seconds = _seconds_behind(server, file, place, now) if lag and file in files.sizes else 0
    message = f"connected, {lag:,} bytes and {seconds:,} s behind the log"
    has_none = details.get(CHECKSUM, "").upper() == "NONE"
    return HealthReport(
        healthy=problem is None,
        message=message if problem is None else f"{message}; {problem}",
        details={
            **details,
            "lag_bytes": str(lag),
            "lag_seconds": str(seconds),
            "log_bytes": str(files.total),
            "log_begins": files.first,
        },
        partitions=(PartitionHealth("", lag, _headroom(files, file, lag)),),
        error=problem,
        warning=_WITHOUT_CHECKSUMS if has_none else "",
    )


def _headroom(files: LogFiles, file: str, lag: int) -> float | None:
    """The share of the log that was read; None where nothing is unread or was ever purged."""
    if not lag or number_of(files.first) <= 1:
        return None
    if file not in files.sizes:
        return 0.0
    return max(0.0, 1 - lag / max(1, files.total))


def _seconds_behind(server: ServerLog, file: str, place: int, now: int) -> int:
    """How long ago the next unread event was written."""
    try:
        with server.events(file, place) as found:
            event = next((each for each in found if each.start >= place or each.file != file), None)
    except DamagedLog as error:
        raise DecodeFailed(server.source_id, f"{file}:{place}", str(error)) from None
    return max(0, now - event.timestamp) if event is not None else 0


def _place(position: MysqlPosition) -> tuple[str, int]:
    return position.binlog_file, position.binlog_position
