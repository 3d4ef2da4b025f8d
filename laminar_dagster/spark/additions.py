"""Schema evolution of states: the partials added to each operator, computed on the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from laminar_dagster.config.definition import define
from laminar_dagster.config.model import PipelineModel
from laminar_dagster.core import layout
from laminar_dagster.core.additions import AddedPartial, additions_of, newest_additions
from laminar_dagster.core.definition import PipelineDefinition
from laminar_dagster.core.document import decode
from laminar_dagster.core.ids import EpochNumber, OperatorId
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.core.ports import ObjectStore
from laminar_dagster.spark.growth import Growth

Additions = Mapping[OperatorId, tuple[AddedPartial, ...]]


def additions_since(
    parent: CheckpointManifest | None, model: PipelineModel, epoch: EpochNumber, store: ObjectStore
) -> Additions:
    """All partials ever added to each operator that the parent has, this epoch's included.

    Depends on the parent and the pipeline alone, so every attempt gets the same result.
    """
    if parent is None:
        return {}
    before = {each.operator_id: each.added for each in parent.operators}
    if parent.fingerprint == model.fingerprint:
        return {operator: added for operator, added in before.items() if added}
    key = layout.definition_key(parent.fingerprint)
    old = decode(store.read(key), PipelineDefinition, key).operators
    known = {each.operator_id: each for each in old}
    found = {
        new.operator_id: additions_of(
            known.get(new.operator_id), new, before[new.operator_id], epoch
        )
        for new in define(model).operators
        if new.operator_id in before
    }
    return {operator: added for operator, added in found.items() if added}


def growth_of(added: Sequence[AddedPartial]) -> Growth:
    """Convert an operator's added partials to the form that executors need."""
    newest = newest_additions(added).values()
    return Growth(
        generation=max(each.generation for each in added),
        added=tuple((each.partial, each.generation) for each in newest),
        hidden=tuple(each.partial for each in newest if each.shows == "null"),
    )
