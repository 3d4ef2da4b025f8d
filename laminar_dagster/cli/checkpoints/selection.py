"""Which checkpoint is meant: by id, by the beginning of an id, as the latest, or by epoch."""

from __future__ import annotations

import re
from typing import Final

from laminar_dagster.cli.errors import AmbiguousCheckpoint, NothingConfirmed
from laminar_dagster.core import layout
from laminar_dagster.core.errors import (
    IncompleteCheckpoint,
    IntegrityError,
    InvalidCheckpointId,
    NoCheckpointAvailable,
    ObjectMissing,
    UnknownCheckpoint,
)
from laminar_dagster.core.ids import CheckpointId, EpochNumber
from laminar_dagster.core.manifest import CheckpointManifest
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.history import without_checkpoint

LATEST: Final = "latest"

_PREFIX: Final = re.compile(r"[0-9a-f-]{1,35}", re.ASCII)
# With more matches than this it is no use to find out which of them are complete.
_FEW: Final = 16
_EXAMPLES: Final = 4


def find_checkpoint(checkpoints: CheckpointStore, wanted: str) -> CheckpointId:
    """The id that a text on the command line stands for. It need not have a manifest.

    Raises:
        InvalidCheckpointId: It cannot be the beginning of an id.
        UnknownCheckpoint, AmbiguousCheckpoint: None, or several, begin like that.
        NothingConfirmed, NoCheckpointAvailable: There is no latest one.
        IntegrityError: The pointer to the latest one is damaged.
    """
    text = wanted.strip().lower()
    if text == LATEST:
        return _find_latest(checkpoints)
    try:
        return CheckpointId(text)
    except InvalidCheckpointId:
        if not _PREFIX.fullmatch(text):
            raise InvalidCheckpointId(wanted[:64]) from None
    matches = [each for each in checkpoints.checkpoint_ids() if each.startswith(text)]
    if 1 < len(matches) <= _FEW:
        # Attempts without a manifest are in no list, so nobody who gives a prefix means them.
        matches = [each for each in matches if _exists(checkpoints, each)] or matches
    if not matches:
        raise UnknownCheckpoint(text, checkpoints.objects.url)
    if len(matches) > 1:
        examples = tuple(sorted(matches, reverse=True)[:_EXAMPLES])
        raise AmbiguousCheckpoint(text, len(matches), examples)
    return matches[0]


def read_checkpoint(
    checkpoints: CheckpointStore, checkpoint: CheckpointId, wanted: str | EpochNumber
) -> CheckpointManifest:
    """The manifest of a checkpoint that was found.

    Raises:
        UnknownCheckpoint, IncompleteCheckpoint, EpochWithoutCheckpoint: It has none, and why.
        IntegrityError: It is damaged, or the latest one is gone.
    """
    manifest = checkpoints.manifest(checkpoint)
    if manifest:
        return manifest
    if isinstance(wanted, EpochNumber):
        raise without_checkpoint(checkpoints, wanted)
    if wanted.strip().lower() == LATEST:
        raise ObjectMissing(layout.manifest_key(checkpoint))
    if any(checkpoints.objects.list(layout.checkpoint_folder(checkpoint))):
        raise IncompleteCheckpoint(checkpoint)
    raise UnknownCheckpoint(checkpoint, checkpoints.objects.url)


def _find_latest(checkpoints: CheckpointStore) -> CheckpointId:
    pointer = checkpoints.latest()
    if pointer:
        return pointer.checkpoint_id
    if any(checkpoints.candidates(limit=1)):
        raise NothingConfirmed(checkpoints.objects.url)
    raise NoCheckpointAvailable(checkpoints.objects.url)


def _exists(checkpoints: CheckpointStore, checkpoint: CheckpointId) -> bool:
    try:
        return checkpoints.manifest(checkpoint) is not None
    except IntegrityError:
        return True
