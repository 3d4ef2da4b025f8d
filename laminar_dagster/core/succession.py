"""Which versions of a pipeline were replaced by a branch, and may not go on.

A version that was replaced has published what was corrected since. A process that still has it
loaded would publish more of it, silently where the state fits. So every manifest after a promotion
names the fingerprints that are over. It is the manifest that makes the promotion, so there is no
moment between the two; and it is carried on, so it does not matter how late such a process wakes.
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
    """The fingerprints that are over, sorted."""
    return tuple(manifest.metadata.get(REPLACED, "").split()) if manifest else ()


def inherited(parent: CheckpointManifest | None) -> dict[str, str]:
    """The metadata that a manifest has from the checkpoint before."""
    found = replaced_versions(parent)
    return {REPLACED: " ".join(found)} if found else {}


def after_promotion(
    parent: CheckpointManifest, corrected: Iterable[str], successor: str
) -> dict[str, str]:
    """The metadata of the manifest by which a branch is promoted.

    Args:
        parent: The checkpoint before.
        corrected: The fingerprints whose output was corrected.
        successor: The one that goes on; also one that was replaced before may come back.
    """
    over = {*replaced_versions(parent), *corrected} - {successor}
    return {REPLACED: " ".join(sorted(over))}


def require_current(
    fingerprint: str, epoch: EpochNumber, parent: CheckpointManifest | None
) -> None:
    """Refuse an epoch to a version that was replaced.

    Raises:
        VersionReplaced: It was.
    """
    if fingerprint in replaced_versions(parent):
        raise VersionReplaced(epoch, fingerprint[:_SHOWN])
