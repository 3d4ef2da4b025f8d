"""Errors that only the command line can raise: about what was asked for, not about the data."""

from __future__ import annotations

from dataclasses import dataclass

from laminar_dagster.core.errors import FailedError, UsageError


@dataclass(eq=False)
class AmbiguousCheckpoint(UsageError):
    """Several checkpoints begin like that."""

    prefix: str
    matches: int
    examples: tuple[str, ...]

    kind = "ambiguous_checkpoint"
    text = "{matches} checkpoints begin with {prefix}"
    hint = "give more of the id"

    def advice(self) -> str:
        """Name some of those that match."""
        dots = ", …" if self.matches > len(self.examples) else ""
        return f"give more of the id: {', '.join(self.examples)}{dots}"


@dataclass(eq=False)
class NothingConfirmed(UsageError):
    """There are checkpoints, and none that every sink has confirmed."""

    store: str

    kind = "nothing_confirmed"
    text = "{store} has no latest checkpoint: none is confirmed by every sink"
    hint = "`laminar checkpoints list` shows those there are; name one by its id or --epoch"


@dataclass(eq=False)
class FolderNotEmpty(UsageError):
    """A project is not made over files that are there."""

    folder: str

    kind = "folder_not_empty"
    text = "{folder} is not empty"
    hint = "give a folder that is empty, or not there yet"


@dataclass(eq=False)
class CannotMakeProject(UsageError):
    """A file or folder of a new project cannot be made."""

    path: str
    reason: str

    kind = "cannot_make_project"
    text = "{path} cannot be made: {reason}"
    hint = "check the path, and whether you may write there"


@dataclass(eq=False)
class Interrupted(FailedError):
    """Somebody asked to stop, and took away what the epoch at hand needed to be finished."""

    signal: int
    reason: str

    kind = "interrupted"
    text = "stopped as asked, before the epoch at hand was finished: {reason}"
    hint = "nothing is lost or doubled: the next run goes on from here"
