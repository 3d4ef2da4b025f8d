"""Keys and ids, beside the barest Python that gives the same kind of thing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Final

from bench.figures import Benchmark, Figure
from bench.measure import code, in_batches
from bench.surroundings import Surroundings
from laminar_dagster.core import layout
from laminar_dagster.core.ids import CheckpointId, EpochNumber, OperatorId, PartitionId
from laminar_dagster.runtime.clock import mint_checkpoint_id

_NANOSECOND: Final = 1e-9

# Name, what it builds, by the layout, by hand.
_PATHS: Final = (
    (
        "manifest",
        "the key of a manifest",
        "layout.manifest_key(checkpoint)",
        "f'checkpoints/{checkpoint}/manifest.json'",
    ),
    (
        "plan",
        "the key of a plan",
        "layout.plan_key(epoch)",
        "f'epochs/{epoch:020d}/plan.json'",
    ),
    (
        "snapshot",
        "the path of a snapshot within its checkpoint",
        "layout.snapshot_path(operator, partition)",
        "f'operators/{operator}/{partition:d}.snap'",
    ),
    (
        "checked",
        "the key of a path that a manifest names, checked anew",
        "layout.checkpoint_key(checkpoint, path)",
        "f'checkpoints/{checkpoint}/{path}'",
    ),
)


def paths(surroundings: Surroundings) -> Iterator[Figure]:
    """Keys."""
    operator, partition = OperatorId("window_aggregate"), PartitionId(17)
    names: dict[str, object] = {
        "layout": layout,
        "checkpoint": CheckpointId.from_parts(1_767_225_600_000, 1),
        "epoch": EpochNumber(123_456),
        "operator": operator,
        "partition": partition,
        "path": layout.snapshot_path(operator, partition),
    }
    for name, what, own, by_hand in _PATHS:
        measured, peer = in_batches(surroundings.effort, code(own, **names), code(by_hand, **names))
        yield Figure(
            f"path/{name}",
            f"build {what}",
            measured,
            limit=100 * _NANOSECOND,
            peer="a bare f-string",
            peer_sample=peer,
        )


def mint(surroundings: Surroundings) -> Iterator[Figure]:
    """Ids."""
    own, peer = in_batches(
        surroundings.effort,
        code("mint()", mint=mint_checkpoint_id),
        code("uuid4()", uuid4=uuid.uuid4),
    )
    yield Figure(
        "mint",
        "mint a checkpoint id (UUID v7), as checked text",
        own,
        limit=50 * _NANOSECOND,
        peer="uuid.uuid4()",
        peer_sample=peer,
    )


BENCHMARKS: Final = (
    Benchmark("path", "build object keys", paths),
    Benchmark("mint", "mint checkpoint ids", mint),
)
