"""How many offsets of each partition an epoch reads: the limits are shared fairly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from laminar_dagster.clients.kafka.cluster import Lane
from laminar_dagster.core.ports import Admission


@dataclass(frozen=True, slots=True)
class Waiting:
    """The backlog of one partition.

    Attributes:
        offsets: How many; compaction and transactions leave holes, so there may be fewer records.
        mean_bytes: The estimated mean size of a message.
    """

    lane: Lane
    offsets: int
    mean_bytes: float


def admit(waiting: Sequence[Waiting], limits: Admission) -> dict[Lane, int]:
    """How many offsets to read of each partition; at least one in total, if there is a backlog.

    Every partition gets an equal part of what is left, and those with little to read are served
    first, so that what they do not need is shared by the others.
    """
    order = sorted(waiting, key=lambda each: (each.offsets, each.lane))
    records, size = limits.max_records, limits.max_bytes
    left_bytes = None if size is None else float(size)
    taken: dict[Lane, int] = {}
    for place, each in enumerate(order):
        others = len(order) - place
        count = each.offsets
        if records is not None:
            count = min(count, records // others)
        if left_bytes is not None:
            count = min(count, int(left_bytes / others / max(1.0, each.mean_bytes)))
        taken[each.lane] = count
        if records is not None:
            records -= count
        if left_bytes is not None:
            left_bytes -= count * each.mean_bytes
    if order and not any(taken.values()):
        # A record may be larger than the limit: the partition that lags most gets one offset.
        taken[order[-1].lane] = 1
    return taken
