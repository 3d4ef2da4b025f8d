"""Errors that only the command line can raise: about what was asked for, not about the data."""

from __future__ import annotations

from dataclasses import dataclass

from laminar_dagster.core.errors import FailedError, UsageError


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


@dataclass(eq=False)
class UnknownEpoch(UsageError):
    """An epoch that has not begun."""

    epoch: int
    newest: int

    kind = "unknown_epoch"
    text = "there is no epoch {epoch}: the newest is {newest}"
    hint = "`laminar epochs list` shows those there are"


@dataclass(eq=False)
class NoEpochs(UsageError):
    """The pipeline has not run yet."""

    pipeline: str

    kind = "no_epochs"
    text = "pipeline {pipeline} has no epoch yet"
    hint = "`laminar run {pipeline}` makes the first one"


@dataclass(eq=False)
class NoPipelines(UsageError):
    """The project's folder describes no pipeline."""

    project: str

    kind = "no_pipelines"
    text = "{project} has no pipeline: there is no dbt_like_configs/NAME/pipeline.yml"
    hint = "`laminar init DIR` makes an example; --project DIR looks elsewhere"


@dataclass(eq=False)
class SeveralPipelines(UsageError):
    """The project has several pipelines, and none is named."""

    names: tuple[str, ...]
    how: str = "name one of"

    kind = "several_pipelines"
    text = "the project has several pipelines, and none is named"

    def advice(self) -> str:
        """List them."""
        return f"{self.how}: {', '.join(self.names)}"


@dataclass(eq=False)
class UnknownPipeline(UsageError):
    """The project has no pipeline of that name."""

    name: str
    suggestion: str

    kind = "unknown_pipeline"
    text = "there is no pipeline {name!r}"
    hint = "{suggestion}"


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
class JavaMissing(UsageError):
    """Spark cannot start."""

    reason: str

    kind = "java_missing"
    text = "Spark needs Java 17 or later: {reason}"
    hint = "install one (Debian: openjdk-17-jre-headless), or set JAVA_HOME to it"


@dataclass(eq=False)
class Interrupted(FailedError):
    """Somebody asked to stop, and took away what the epoch at hand needed to be finished."""

    signal: int
    reason: str

    kind = "interrupted"
    text = "stopped as asked, before the epoch at hand was finished: {reason}"
    hint = "nothing is lost or doubled: the next run goes on from here"


@dataclass(eq=False)
class UnknownStateOperator(UsageError):
    """A checkpoint holds no state of that name."""

    operator: str
    epoch: int
    suggestion: str

    kind = "unknown_operator"
    text = "epoch {epoch} holds no state of an operator {operator!r}"
    hint = "{suggestion}"


@dataclass(eq=False)
class NoLetters(UsageError):
    """An epoch has no dead letters, or none any more."""

    epoch: int
    reason: str

    kind = "no_dead_letters"
    text = "epoch {epoch} has no dead letters: {reason}"
    hint = "`laminar dead-letters list` shows those there are"
