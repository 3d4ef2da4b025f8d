"""Errors of a request: what was asked for by name or number is not there.

The command line and the Python API raise the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from laminar_dagster.core.errors.usage import UsageError


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
class NoEpochs(UsageError):
    """The pipeline has not run yet."""

    pipeline: str

    kind = "no_epochs"
    text = "pipeline {pipeline} has no epoch yet"
    hint = "`laminar run {pipeline}` makes the first one"


@dataclass(eq=False)
class UnknownEpoch(UsageError):
    """An epoch that has not begun."""

    epoch: int
    newest: int

    kind = "unknown_epoch"
    text = "there is no epoch {epoch}: the newest is {newest}"
    hint = "`laminar epochs list` shows those there are"


@dataclass(eq=False)
class EpochWithoutCheckpoint(UsageError):
    """An epoch has no checkpoint, or none any more."""

    epoch: int
    reason: str

    kind = "epoch_without_checkpoint"
    text = "epoch {epoch} has no checkpoint: {reason}"
    hint = "`laminar checkpoints list` shows the epochs that have one"


@dataclass(eq=False)
class UnknownCheckpoint(UsageError):
    """No checkpoint goes by that name."""

    wanted: str
    store: str

    kind = "unknown_checkpoint"
    text = "{store} has no checkpoint {wanted}"
    hint = "`laminar checkpoints list` shows those there are"


@dataclass(eq=False)
class IncompleteCheckpoint(UsageError):
    """An attempt without a manifest: it is not, or not yet, a checkpoint."""

    checkpoint_id: str

    kind = "incomplete_checkpoint"
    text = "{checkpoint_id} has no manifest: the attempt is still running, or has failed"
    hint = "the next run of the pipeline finishes or replaces it"


@dataclass(eq=False)
class UnknownOperator(UsageError):
    """A checkpoint holds no state of an operator of that name."""

    operator: str
    epoch: int
    suggestion: str

    kind = "unknown_operator"
    text = "epoch {epoch} holds no state of an operator {operator!r}"
    hint = "{suggestion}"


@dataclass(eq=False)
class UnknownView(UsageError):
    """An epoch put out nothing of that name."""

    view: str
    epoch: int
    suggestion: str

    kind = "unknown_view"
    text = "epoch {epoch} put out no rows of a view or sink {view!r}"
    hint = "{suggestion}"


@dataclass(eq=False)
class UnlikeColumns(UsageError):
    """Records of several sources that have the same column with different types."""

    sources: tuple[str, ...]

    kind = "unlike_columns"
    text = "the records of these sources do not fit into one table"

    def advice(self) -> str:
        """Name the sources to choose from."""
        return f"ask for one source: {', '.join(self.sources)}"


@dataclass(eq=False)
class NoLetters(UsageError):
    """An epoch has no dead letters, or none any more."""

    epoch: int
    reason: str

    kind = "no_dead_letters"
    text = "epoch {epoch} has no dead letters: {reason}"
    hint = "`laminar dead-letters list` shows those there are"


@dataclass(eq=False)
class JavaMissing(UsageError):
    """Spark cannot start."""

    reason: str

    kind = "java_missing"
    text = "Spark needs Java 17 or later: {reason}"
    hint = "install one (Debian: openjdk-17-jre-headless), or set JAVA_HOME to it"
