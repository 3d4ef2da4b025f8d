"""Errors that only the command line can raise: about what was asked for, not about the data."""

from __future__ import annotations

from dataclasses import dataclass

from laminar_dagster.core.errors import UsageError


@dataclass(eq=False)
class UnknownCheckpoint(UsageError):
    """No checkpoint goes by that name."""

    wanted: str
    store: str

    kind = "unknown_checkpoint"
    text = "{store} has no checkpoint {wanted}"
    hint = "`laminar checkpoints list` shows those there are"


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
class IncompleteCheckpoint(UsageError):
    """An attempt without a manifest: it is not, or not yet, a checkpoint."""

    checkpoint_id: str

    kind = "incomplete_checkpoint"
    text = "{checkpoint_id} has no manifest: the attempt is still running, or has failed"
    hint = "the next run of the pipeline finishes or replaces it"


@dataclass(eq=False)
class NothingConfirmed(UsageError):
    """There are checkpoints, and none that every sink has confirmed."""

    store: str

    kind = "nothing_confirmed"
    text = "{store} has no latest checkpoint: none is confirmed by every sink"
    hint = "`laminar checkpoints list` shows those there are; name one by its id or --epoch"


@dataclass(eq=False)
class EpochWithoutCheckpoint(UsageError):
    """An epoch has no checkpoint, or none any more."""

    epoch: int
    reason: str

    kind = "epoch_without_checkpoint"
    text = "epoch {epoch} has no checkpoint: {reason}"
    hint = "`laminar checkpoints list` shows the epochs that have one"
