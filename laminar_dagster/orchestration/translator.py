"""How sources, views and sinks become assets of Dagster: keys, groups, tags, owners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import dagster as dg

from laminar_dagster.config.assets import AssetConfig
from laminar_dagster.config.pipeline import PipelineConfig
from laminar_dagster.orchestration.names import PIPELINE_TAG, Names

_READ: Final = ("source", "reference")

AssetKind = Literal["source", "reference", "epoch", "view", "sink"]


@dataclass(frozen=True, slots=True)
class StreamAsset:
    """What there is to translate.

    Attributes:
        kind: ``epoch`` is that of the plan, the state and the manifest, whose keys are fixed.
        name: As in the pipeline's files.
        address: Where a source, a reference table or a sink is; empty for the others.
        project: The folder where relative paths begin.
    """

    config: PipelineConfig
    kind: AssetKind
    name: str
    address: str = ""
    project: Path = Path()

    @property
    def settings(self) -> AssetConfig:
        """What ``assets`` in the pipeline's ``pipeline.yml`` says of it."""
        assets = self.config.assets
        sections: Mapping[str, tuple[AssetConfig, ...]] = {
            "source": assets.sources,
            "reference": assets.references,
            "view": assets.views,
            "sink": assets.sinks,
        }
        found = (each for each in sections.get(self.kind, ()) if each.name == self.name)
        return next(found, AssetConfig(name=self.name))


class LaminarTranslator:
    """Names and describes the assets of a pipeline; a subclass changes what it overrides.

    By default it follows ``assets`` in ``pipeline.yml``.
    """

    def get_asset_key(self, asset: StreamAsset) -> dg.AssetKey:
        """The key. A source that a sink of the project writes has that sink's key instead."""
        settings, assets = asset.settings, asset.config.assets
        if settings.asset_key is not None:
            return dg.AssetKey(settings.asset_key.split("/"))
        prefix = settings.key_prefix or assets.key_prefix or str(asset.config.name)
        return dg.AssetKey([*prefix.split("/"), *self._own_name(asset)])

    def get_group_name(self, asset: StreamAsset) -> str:
        """The group."""
        config = asset.config
        return asset.settings.group_name or config.assets.group_name or Names(config.name).group

    def get_tags(self, asset: StreamAsset) -> Mapping[str, str]:
        """The tags. That of the pipeline is added to what its runs materialise."""
        return {**asset.config.assets.tags, **asset.settings.tags}

    def get_owners(self, asset: StreamAsset) -> Sequence[str]:
        """The owners: those of the pipeline, but for what it only reads."""
        inherited = () if asset.kind in _READ else asset.config.owners
        return asset.settings.owners or inherited

    def get_automation_condition(self, asset: StreamAsset) -> dg.AutomationCondition[Any] | None:
        """When Dagster materialises it by itself; None for never."""
        settings = asset.settings
        if settings.cron:
            return dg.AutomationCondition.on_cron(settings.cron)
        return {
            "eager": dg.AutomationCondition.eager(),
            "on_missing": dg.AutomationCondition.on_missing(),
        }.get(settings.automation_condition or "")

    def get_freshness_policy(self, asset: StreamAsset) -> dg.FreshnessPolicy | None:
        """After how long without a materialisation Dagster warns; None for never."""
        window = asset.settings.freshness_window
        return dg.FreshnessPolicy.time_window(window) if window else None

    def translate(self, asset: StreamAsset, spec: dg.AssetSpec) -> dg.AssetSpec:
        """The spec with all of that, but the key."""
        own = {} if asset.kind in _READ else {PIPELINE_TAG: str(asset.config.name)}
        return spec.replace_attributes(
            group_name=self.get_group_name(asset),
            owners=[*self.get_owners(asset)],
            tags={**spec.tags, **self.get_tags(asset), **own},
            automation_condition=self.get_automation_condition(asset),
            freshness_policy=self.get_freshness_policy(asset) or spec.freshness_policy,
        )

    def _own_name(self, asset: StreamAsset) -> list[str]:
        # A view is often called like its sink; lineage shows the last part of a key only.
        if asset.kind == "view":
            return [f"{asset.name}_staged"]
        if asset.kind in _READ:
            return [f"{asset.name}_source"]
        return [asset.name]
