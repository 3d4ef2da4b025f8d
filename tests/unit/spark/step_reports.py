"""What a step of a bucket hands on, as the engine takes it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from msgspec import structs

from laminar_dagster.core.document import decode_part, encode_part
from laminar_dagster.core.errors import LaminarError
from laminar_dagster.core.ids import CheckpointId, EpochNumber
from laminar_dagster.core.manifest import Origin, PartitionSnapshotEntry
from laminar_dagster.spark.columns import CONTROL


def state_and_rows(
    out: pa.Table, attempt: CheckpointId, epoch: int
) -> tuple[tuple[PartitionSnapshotEntry, ...], list[dict[str, Any]]]:
    """The bucket's files, with their origin, and the rows that came out.

    Raises:
        LaminarError: What the step reported instead.
    """
    reports = [json.loads(text) for text in out.column(CONTROL).drop_null().to_pylist()]
    for report in reports:
        if "kind" in report:
            raise LaminarError.from_record(report)
    here = Origin(checkpoint_id=attempt, epoch=EpochNumber(epoch))
    entries = [
        decode_part(encode_part(report["state"]), PartitionSnapshotEntry, "entry")
        for report in reports
    ]
    files = tuple(each if each.origin else structs.replace(each, origin=here) for each in entries)
    return files, [row for row in out.to_pylist() if row[CONTROL] is None]
