"""Which letters there are, in epochs that are retained and in those that are collected."""

from __future__ import annotations

from collections.abc import Iterator

from laminar_dagster.cli.epochs.history import confirmed_epoch, epoch_numbers, read_epoch
from laminar_dagster.cli.errors import NoLetters, UnknownEpoch
from laminar_dagster.cli.output import Output
from laminar_dagster.core import layout
from laminar_dagster.core.errors import IntegrityError
from laminar_dagster.core.ids import EpochNumber
from laminar_dagster.runtime.checkpoints import CheckpointStore
from laminar_dagster.runtime.dead_letters import LetterKind, Letters, letters_of


def all_letters(checkpoints: CheckpointStore, output: Output) -> Iterator[Letters]:
    """What is still there, newest epoch first; a damaged epoch is told and passed over."""
    latest = confirmed_epoch(checkpoints)
    for epoch in epoch_numbers(checkpoints):
        try:
            past = read_epoch(checkpoints, epoch, latest)
        except IntegrityError as error:
            output.warn(str(error))
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


def _is_there(checkpoints: CheckpointStore, letters: Letters) -> bool:
    folder = layout.checkpoint_folder(letters.manifest.checkpoint_id)
    wanted = {folder + file.path for file in letters.files}
    found = {info.key for info in checkpoints.objects.list(f"{folder}dead_letters/")}
    return wanted <= found
