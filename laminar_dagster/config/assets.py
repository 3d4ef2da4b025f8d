"""``assets`` of a ``pipeline.yml``: how an orchestrator's catalogue names and shows a pipeline."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

import msgspec

from laminar_dagster.config.cron import check_cron
from laminar_dagster.config.units import parse_duration

_OWNER: Final = re.compile(r"team:[\w-]+|[^@\s]+@[^@\s]+\.[^@\s]+")
_GROUP: Final = re.compile(r"[A-Za-z0-9_]+")
_CONDITION: Final = re.compile(r"eager|on_missing|on_cron\((.+)\)")


def check_owners(owners: Iterable[str]) -> None:
    """Refuse an owner that is neither a mail address nor a team.

    Raises:
        ValueError: Names it.
    """
    for owner in owners:
        if not _OWNER.fullmatch(owner):
            raise ValueError(f"`owners`: {owner[:80]!r} is neither a mail address nor team:…")


class AssetConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How one asset is shown.

    Attributes:
        name: Of the source, reference table, view or sink.
        asset_key: Its key, with slashes, in place of the one made of its name.
        key_prefix: Stands before its name, with slashes, in place of that of the pipeline.
        group_name: Its group, in place of that of the pipeline.
        tags: Beside those of the pipeline.
        owners: In place of those of the pipeline.
        automation_condition: ``eager``, ``on_missing`` or ``on_cron(0 * * * *)``.
        freshness: Warn when it was not materialised for so long.
    """

    name: str
    asset_key: str | None = None
    key_prefix: str | None = None
    group_name: str | None = None
    tags: dict[str, str] = {}
    owners: tuple[str, ...] = ()
    automation_condition: str | None = None
    freshness: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be a key, a group, an owner, a condition or a window."""
        _check_key("asset_key", self.asset_key)
        _check_key("key_prefix", self.key_prefix)
        if self.asset_key is not None and self.key_prefix is not None:
            raise ValueError("`asset_key` is the whole key: leave `key_prefix` out")
        _check_group(self.group_name)
        check_owners(self.owners)
        if self.automation_condition is not None:
            found = _CONDITION.fullmatch(self.automation_condition)
            if not found:
                raise ValueError(
                    f"`automation_condition` is {self.automation_condition[:80]!r}, which is none "
                    "of eager, on_missing, on_cron(0 * * * *)"
                )
            if found[1]:
                check_cron(found[1])
        if self.freshness is not None and parse_duration(self.freshness) < timedelta(minutes=1):
            raise ValueError("`freshness` is a minute at least")

    @property
    def cron(self) -> str | None:
        """The cron expression of ``on_cron(…)``."""
        found = _CONDITION.fullmatch(self.automation_condition or "")
        return found[1] if found else None

    @property
    def freshness_window(self) -> timedelta | None:
        """``freshness`` as a duration."""
        return parse_duration(self.freshness) if self.freshness else None


class AssetsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How the assets of a pipeline are shown.

    Attributes:
        key_prefix: Stands before the name of views, sinks and sources, with slashes, in place of
            the pipeline's name.
        group_name: The group of all of them, in place of the pipeline's name.
        tags: Of all of them.
        sources: How sources are shown, where it differs.
        references: How reference tables are shown, where it differs.
        views: How views are shown, where it differs.
        sinks: How sinks are shown, where it differs.
    """

    key_prefix: str | None = None
    group_name: str | None = None
    tags: dict[str, str] = {}
    sources: tuple[AssetConfig, ...] = ()
    references: tuple[AssetConfig, ...] = ()
    views: tuple[AssetConfig, ...] = ()
    sinks: tuple[AssetConfig, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what cannot be a prefix or a group."""
        _check_key("key_prefix", self.key_prefix)
        _check_group(self.group_name)


def _check_key(name: str, key: str | None) -> None:
    if key is not None and not all(part.strip() for part in key.split("/")):
        raise ValueError(f"`{name}` is {key[:80]!r}: names with a slash between them are expected")


def _check_group(group: str | None) -> None:
    if group is not None and not _GROUP.fullmatch(group):
        raise ValueError(f"`group_name` is {group[:80]!r}: letters, digits and '_' are expected")
