"""Dead letters: records that an epoch set aside, because they are bad or late.

Bad records could not be decoded, or their event time is too far ahead of the epoch's clock.

Both kinds lie in the checkpoint of the epoch that read them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from laminar_dagster.core import layout
from laminar_dagster.core.errors import (
    IntegrityError,
    InvalidConfig,
    NoLetters,
    RestoreFailed,
    UnknownEpoch,
    UnknownSource,
)
from laminar_dagster.core.ids import EpochNumber, SourceId
from laminar_dagster.core.manifest import CheckpointManifest, FileEntry
from laminar_dagster.core.ports import Source
from laminar_dagster.runtime.checked_files import read_verified
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.history import confirmed_epoch, epoch_numbers, read_epoch

LetterKind = Literal["bad", "late"]


@dataclass(frozen=True, slots=True)
class Letters:
    """The dead letters of one kind, of one source in one epoch."""

    manifest: CheckpointManifest
    source_id: SourceId
    kind: LetterKind
    files: tuple[FileEntry, ...]

    @property
    def epoch(self) -> EpochNumber:
        """The epoch that set them aside."""
        return self.manifest.epoch

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class Replayed:
    """The outcome of replaying dead letters into their source.

    Attributes:
        cut_off: Records of which only the beginning was stored; they are not replayed.
    """

    source_id: SourceId
    records: int
    cut_off: int
    places: tuple[str, ...]


def letters_of(manifest: CheckpointManifest) -> Iterator[Letters]:
    """The dead letters of an epoch, source by source."""
    for entry in manifest.dead_letters:
        late = tuple(file for file in entry.files if layout.is_late_path(file.path))
        bad = tuple(file for file in entry.files if file not in late)
        if bad:
            yield Letters(manifest, entry.source_id, "bad", bad)
        if late:
            yield Letters(manifest, entry.source_id, "late", late)


def all_letters(
    checkpoints: CheckpointStore, on_damage: Callable[[IntegrityError], None]
) -> Iterator[Letters]:
    """The letters that are still stored, newest epoch first.

    Args:
        checkpoints: The pipeline's checkpoints.
        on_damage: Called with the error of each damaged epoch, which is then skipped.
    """
    latest = confirmed_epoch(checkpoints)
    for epoch in epoch_numbers(checkpoints):
        try:
            past = read_epoch(checkpoints, epoch, latest)
        except IntegrityError as error:
            on_damage(error)
            continue
        if past is None or past.manifest is None or past.state == "prepared":
            continue
        for letters in letters_of(past.manifest):
            if past.state != "collected" or _is_there(checkpoints, letters):
                yield letters


def letters_of_epoch(
    checkpoints: CheckpointStore,
    epoch: int,
    source: str | None = None,
    kind: LetterKind | None = None,
) -> list[Letters]:
    """The letters of one epoch; at least one.

    Raises:
        UnknownEpoch: It has not begun.
        NoLetters: Nothing was set aside, or it has been collected.
    """
    past = read_epoch(checkpoints, EpochNumber(epoch), confirmed_epoch(checkpoints))
    if past is None:
        raise UnknownEpoch(epoch, max(epoch_numbers(checkpoints), default=0))
    found = [
        letters
        for letters in (letters_of(past.manifest) if past.manifest else ())
        if source in (None, letters.source_id) and kind in (None, letters.kind)
    ]
    if not found or past.state == "prepared":
        raise NoLetters(epoch, "nothing of the kind was set aside")
    there = [letters for letters in found if _is_there(checkpoints, letters)]
    if not there:
        raise NoLetters(epoch, "it has been collected; `retention.dead_letters` says when")
    return there


def read_letters(checkpoints: CheckpointStore, letters: Letters) -> Iterator[pa.Table]:
    """The records, file by file, each verified by its checksum.

    Bad ones have ``partition``, ``position``, ``raw``, ``reason`` and ``is_whole``; late ones the
    columns of their source.

    Raises:
        ObjectMissing, ChecksumMismatch: as their names say.
    """
    for file in letters.files:
        key = layout.checkpoint_key(letters.manifest.checkpoint_id, file.path)
        data = read_verified(checkpoints.objects, key, file.size_bytes, file.sha256)
        try:
            yield pa.ipc.open_file(io.BytesIO(data)).read_all()
        except pa.ArrowInvalid as error:
            raise RestoreFailed(letters.source_id, 0, f"{key} is no Arrow file: {error}") from None


def replay_letters(
    checkpoints: CheckpointStore, sources: Iterable[Source], letters: Letters
) -> Replayed:
    """Write bad records back to their source, once, for the next epoch to read them again.

    Raises:
        AlreadyReplayed: They were replayed before.
        UnknownSource: The pipeline no longer has the source.
        InvalidConfig: The source does not support replaying.
    """
    source: Any = next((each for each in sources if each.source_id == letters.source_id), None)
    if source is None:
        raise UnknownSource(letters.source_id)
    if not hasattr(source, "replay"):
        where = f"source {letters.source_id}"
        raise InvalidConfig(where, "it takes no records back", "send them to it by other means")
    table = pa.concat_tables([*read_letters(checkpoints, letters)])
    whole = table.filter(pc.field("is_whole"))
    cut_off = table.num_rows - whole.num_rows
    if not whole.num_rows:
        return Replayed(letters.source_id, 0, cut_off, ())
    places = source.replay(letters.manifest.checkpoint_id, whole)
    return Replayed(letters.source_id, whole.num_rows, cut_off, places)


def _is_there(checkpoints: CheckpointStore, letters: Letters) -> bool:
    folder = layout.checkpoint_folder(letters.manifest.checkpoint_id)
    wanted = {folder + file.path for file in letters.files}
    found = {info.key for info in checkpoints.objects.list(f"{folder}dead_letters/")}
    return wanted <= found
