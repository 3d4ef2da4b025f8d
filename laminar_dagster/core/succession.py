"""Fences off versions of a pipeline that were replaced by promoting a branch.

The output of a replaced version was corrected by the branch. A process that still runs that version
would publish more wrong output, unnoticed if the state is compatible. So every manifest after a
promotion lists the replaced fingerprints. The promotion and the list are one manifest, so there is
no moment between them; and the list is inherited, so it does not matter how late such a process
wakes up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from laminar_dagster.core.errors import VersionReplaced
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest

REPLACED: Final = "replaced_versions"
_SHOWN: Final = 12


def replaced_versions(manifest: CheckpointManifest | None) -> tuple[str, ...]:
    """The fingerprints of replaced versions, sorted."""
    return tuple(manifest.metadata.get(REPLACED, "").split()) if manifest else ()


def inherited(parent: CheckpointManifest | None) -> dict[str, str]:
    """The metadata that a manifest inherits from its parent."""
    found = replaced_versions(parent)
    return {REPLACED: " ".join(found)} if found else {}


def after_promotion(
    parent: CheckpointManifest, corrected: Iterable[str], successor: str
) -> dict[str, str]:
    """The metadata of the manifest by which a branch is promoted.

    Args:
        parent: The checkpoint before.
        corrected: The fingerprints whose output was corrected.
        successor: The fingerprint that goes on; it may be one that was replaced before.
    """
    over = {*replaced_versions(parent), *corrected} - {successor}
    return {REPLACED: " ".join(sorted(over))}


def require_current(
    fingerprint: str, epoch: EpochNumber, parent: CheckpointManifest | None
) -> None:
    """Refuse an epoch to a version that was replaced.

    Raises:
        VersionReplaced: The version was replaced.
    """
    if fingerprint in replaced_versions(parent):
        raise VersionReplaced(epoch, fingerprint[:_SHOWN])
